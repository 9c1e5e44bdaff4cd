"""What the documents and the help tell readers to type works as printed, against a real cluster.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from anabranch.cli import __main__ as command_line
from anabranch.cli.app import application
from anabranch.cli.catalogue import ENTRIES, commands
from anabranch.client import (
    Client,
    JsonSerializer,
    ScopeExists,
    StreamExists,
    TableNotFound,
    connect,
)
from kit.command_examples import ENDS_WITH_1, NOT_RUN, ExampleWorld, is_run
from kit.documents import BrokenDocument, DocumentSession, runnable_blocks
from kit.forked_commands import forked_commands

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNING = [
    path.relative_to(ROOT).as_posix()
    for path in DOCUMENTS
    if re.search(r"^```.* (run|output)", path.read_text(), re.MULTILINE)
]
STARTS_A_CLUSTER = ["docs/fail-over.md", "docs/replication.md", "docs/topics.md"]
"""Their first block starts a cluster in the directory that ANABRANCH_DATA_DIR names."""
STARTS_REAL_PROGRAMS = "README.md"
"""Its commands start as users start them; those of the others fork, which takes far less time."""
STOP_SECONDS_MAX = 30
STARTED_SECONDS_MAX = 30
CAUGHT_UP_SECONDS_MAX = 60
EXAMPLES = [example for _, command in commands(ENTRIES) for example in command.examples]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A reader's environment beside a running cluster."""
    data_dir = tmp_path_factory.mktemp("documents") / "data"
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "ANABRANCH_DATA_DIR": str(data_dir),
    }
    up = [str(programs / "anabranch"), "up", "--data-dir", str(data_dir), "--json"]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            assert any(json.loads(line).get("event") == "ready" for line in cluster.stdout)
            yield environment
            cluster.terminate()
            cluster.communicate(timeout=STOP_SECONDS_MAX)
        finally:
            cluster.kill()


@pytest.fixture(scope="module")
def quick_environment(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The same, in which the command does not import everything anew each time."""
    with forked_commands(tmp_path_factory.mktemp("commands")) as programs:
        yield {**environment, "PATH": f"{programs}{os.pathsep}{environment['PATH']}"}


def test_every_example_in_the_help_succeeds_and_leaves_nothing(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("ANABRANCH_DATA_DIR", environment["ANABRANCH_DATA_DIR"])
    monkeypatch.chdir(tmp_path)
    complaints = ""

    def perform(arguments: list[str]) -> tuple[int, str]:
        nonlocal complaints
        code = command_line.run(arguments)
        shown = capsys.readouterr()
        complaints = shown.err
        return code, shown.out

    world = ExampleWorld(perform, tmp_path, Path(environment["ANABRANCH_DATA_DIR"]))
    world.prepare()
    wrong = []
    for example in filter(is_run, EXAMPLES):
        code, _ = perform(world.words(example))
        if code != (1 if example in ENDS_WITH_1 else 0):
            wrong.append(f"{example}: {code}: {complaints}")
    world.tidy_up()
    assert wrong == []


@pytest.mark.parametrize("document", [one for one in RUNNING if one not in STARTS_A_CLUSTER])
def test_every_block_that_is_marked_to_run_does_what_the_document_says(
    document: str,
    environment: dict[str, str],
    quick_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_DATA_DIR", environment["ANABRANCH_DATA_DIR"])
    monkeypatch.chdir(ROOT)
    chosen = environment if document == STARTS_REAL_PROGRAMS else quick_environment
    with DocumentSession(ROOT, chosen) as session:
        session.run(runnable_blocks(document, (ROOT / document).read_text()))


@pytest.mark.parametrize("document", STARTS_A_CLUSTER)
def test_a_guide_that_starts_a_cluster_does_what_it_says(
    document: str, quick_environment: dict[str, str], tmp_path: Path
) -> None:
    own = {
        **quick_environment,
        "ANABRANCH_DATA_DIR": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    with DocumentSession(ROOT, own) as session:
        session.run(runnable_blocks(document, (ROOT / document).read_text()))


VIEW = ROOT / "docs/examples/count_by_key.py"


def test_the_example_of_a_view_is_short_and_shown_as_it_is() -> None:
    program = VIEW.read_text()
    assert len(program.splitlines()) <= 30
    assert f"```python\n{program}```\n" in (ROOT / "docs/views.md").read_text()


async def test_the_example_of_a_view_counts_each_event_once_although_it_is_killed(
    environment: dict[str, str],
) -> None:
    data_dir = Path(environment["ANABRANCH_DATA_DIR"])
    run = [sys.executable, str(VIEW), str(data_dir)]
    async with connect(data_dir) as client, stream_of_the_example(client):
        async with client.writer("demo/flights") as writer:
            for number in range(5000):
                writer.write(b"", key=f"gate {number % 7}")
            await writer.flush()
            program = await asyncio.create_subprocess_exec(*run, env=environment)
            async with asyncio.timeout(STARTED_SECONDS_MAX):
                while not await counts(client):  # noqa: ASYNC110  another process counts
                    await asyncio.sleep(0.01)
            for number in range(5000):
                writer.write(b"", key=f"gate {number % 5}")
            await asyncio.sleep(0)
            program.kill()
            await program.wait()
        again = await asyncio.create_subprocess_exec(*run, "--once", env=environment)
        async with asyncio.timeout(CAUGHT_UP_SECONDS_MAX):
            assert await again.wait() == 0
        async with client.reader("demo/flights", until_tail=True) as reader:
            expected = Counter([event.key async for event in reader])
        assert expected.total() >= 10_000
        assert await counts(client) == expected


@contextlib.asynccontextmanager
async def stream_of_the_example(client: Client) -> AsyncIterator[None]:
    """The stream that the example reads; neither it nor the view is there afterwards."""
    with contextlib.suppress(ScopeExists):
        await client.scopes.create("demo")
    with contextlib.suppress(StreamExists):
        await client.streams.create("demo/flights", segments=2)
    try:
        yield
    finally:
        await client.reader_groups.delete("demo/counters")
        await client.tables.delete("demo/counts")
        await client.streams.seal("demo/flights")
        await client.streams.delete("demo/flights")


async def counts(client: Client) -> dict[str, int]:
    """The rows of the example's view; none before it has begun."""
    try:
        async with client.table("demo/counts", value=JsonSerializer()) as table:
            return {entry.key.decode(): entry.value async for entry in table.entries()}
    except TableNotFound:
        return {}


def test_the_documents_that_teach_by_example_have_blocks_that_run() -> None:
    assert {"README.md", "docs/nats.md", "docs/tutorial.md", *STARTS_A_CLUSTER} <= set(RUNNING)


@pytest.mark.parametrize("example", [example for example in EXAMPLES if not is_run(example)])
def test_an_example_that_is_not_run_is_a_command_line_that_can_be_parsed(example: str) -> None:
    words = shlex.split(example)[1:]
    application(words).parse_args(words, exit_on_error=False, print_error=False)


def test_every_reason_not_to_run_an_example_belongs_to_one() -> None:
    for beginning in NOT_RUN:
        assert any(example.startswith(beginning) for example in EXAMPLES), beginning


@contextlib.contextmanager
def told(*words: str) -> Iterator[None]:
    with pytest.raises(BrokenDocument) as broken:
        yield
    for word in words:
        assert word in str(broken.value)


def page(*lines: str) -> str:
    return "\n".join(("# A page", "", *lines, ""))


def run(text: str) -> None:
    with DocumentSession(ROOT, os.environ) as session:
        session.run(runnable_blocks("page.md", text))


def test_blocks_share_names_and_an_event_loop_and_print_what_is_documented() -> None:
    run(
        page(
            "```python run", "import asyncio", "queue = asyncio.Queue()", "```",
            "```python", "this is only shown", "```",
            "```python run", "await queue.put(5)", "print(await queue.get())", "```", "",
            "```text output", "5", "```",
            "```sh run", "echo one", "echo two >&2", "```",
            "```text output", "one", "```",
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["```python run", "x = 1", "x.missing", "```"], ["page.md:4", "line 5", "missing"]),
        (["```python run", "import asyncio", "await asyncio.Event(", "```"], ["page.md:4"]),
        (["```python run", "assert 1 == 2", "```"], ["page.md:4", "AssertionError"]),
        (["```sh run", "false", "echo fine", "```"], ["page.md:4", "ends with 1"]),
        (["```sh run", "echo a", "```", "```text output", "b", "```"], ["page.md:4", "b", "a"]),
        (["```python run", "print(1)", "```", "```text output", "```"], ["page.md:4", "1"]),
        (["```text output", "b", "```"], ["page.md:4", "follows no code"]),
        (["```ruby run", "puts 1", "```"], ["page.md:4", "ruby run"]),
    ],
)
def test_a_broken_block_is_named_with_its_line(lines: list[str], words: list[str]) -> None:
    with told(*words):
        run(page(*lines))
