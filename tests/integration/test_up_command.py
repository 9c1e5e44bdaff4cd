"""The command `anabranch up` with the real services, as a user runs it.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from anabranch.client import connect

PROGRAM = """
import sys
import cyclopts
from anabranch.cli.up.command import up
from anabranch.common.errors import AnabranchError

app = cyclopts.App(name="anabranch")
app.command(up)
try:
    app()
except AnabranchError as error:
    sys.exit(f"{error.code}: {error} / {error.remedy}")
"""
SECONDS_MAX = 60


def start(
    data_dir: Path, cwd: Path | None = None
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return start_up("--data-dir", str(data_dir), cwd=cwd)


def directory_with_traps(path: Path) -> Path:
    """A directory with modules that leave a mark when one of them is imported."""
    path.mkdir()
    for name in ("nkeys", "nats", "structlog", "sitecustomize"):
        mark = path / f"{name}-was-imported"
        (path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\nraise ImportError({name!r})\n")
    return path


@contextlib.contextmanager
def start_up(
    *options: str, cwd: Path | None = None, as_json: bool = True, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    form = ["--json"] if as_json else []
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, "up", *options, *form],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing happens after a clean stop; children die with it


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def wait_for(lines: Iterator[dict[str, Any]], **fields: object) -> dict[str, Any]:
    """The next line that has these fields; if none comes, what came instead."""
    seen = []
    for line in lines:
        if fields.items() <= line.items():
            return line
        seen.append(line)
    raise AssertionError(f"no line with {fields} after {seen[-3:]}")


def files_in(directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob("*")]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(pid: int, module: str) -> int:
    """The child of `pid` that runs `module`."""
    (found,) = [
        child
        for child in children_of(pid)
        if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    ]
    return found


def test_a_cluster_survives_the_death_of_its_segment_store_and_stops_when_told(
    tmp_path: Path,
) -> None:
    data_dir, traps = tmp_path / "data", directory_with_traps(tmp_path / "traps")
    with start(data_dir, cwd=traps) as process:
        lines = lines_of(process)
        ready = wait_for(lines, event="ready")
        assert json.loads((data_dir / "endpoints.json").read_text()) == ready["endpoints"]
        password = json.loads((data_dir / "nats-credentials.json").read_text())["password"]
        family = [process.pid, *children_of(process.pid)]
        assert len(family) >= 5, "a supervisor, NATS and three services"
        for pid in family:
            for shown in ("cmdline", "environ"):
                assert password.encode() not in Path(f"/proc/{pid}/{shown}").read_bytes()
        health = (data_dir / "run" / "gateway.port").read_text().strip()
        with urlopen(f"http://127.0.0.1:{health}/metrics", timeout=SECONDS_MAX) as metrics:
            assert password.encode() not in metrics.read()

        os.kill(child_of(process.pid, "anabranch.segstore"), signal.SIGKILL)
        restarted = wait_for(lines, part="segstore", restarts=1)
        assert restarted["reason"] == "ended by SIGKILL"
        wait_for(lines, part="segstore", state="ready")

        process.send_signal(signal.SIGTERM)
        last = list(lines)
        assert last[-1] == {"event": "stopped"}
        assert process.wait(SECONDS_MAX) == 0
        assert password not in str([ready, *last])
        assert process.stderr is not None
        assert password not in process.stderr.read()

    logs = [path.read_text() for path in (data_dir / "logs").iterdir()]
    assert any("nats_credentials_file" in log for log in logs), "a service logs its settings"
    assert password not in "".join(logs)
    assert not (data_dir / "endpoints.json").exists()
    assert not [name for name in files_in(traps) if name.endswith("was-imported")]


def commands_shown_by(process: subprocess.Popen[str]) -> list[str]:
    """The commands at the end of what a ready cluster shows."""
    assert process.stdout is not None
    lines = iter(process.stdout)
    assert "In another terminal:\n" in lines
    commands: list[str] = []
    while not commands or " read " not in commands[-1]:
        commands.append(next(lines))
    return commands


def test_what_a_ready_cluster_shows_works_in_another_terminal(tmp_path: Path) -> None:
    beside_python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with start_up("--data-dir", str(tmp_path / "my data"), as_json=False) as process:
        commands = commands_shown_by(process)
        terminal = subprocess.run(
            ["sh", "-e"],
            input="".join(commands),
            cwd=tmp_path,
            env={**os.environ, "PATH": beside_python},
            stdout=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
            check=True,
        )

    assert terminal.stdout.splitlines()[-1] == "hello, stream"


def test_a_second_start_is_refused_with_the_holder_and_what_to_do(tmp_path: Path) -> None:
    with start(tmp_path) as first:
        next(lines_of(first))
        with start(tmp_path) as second:
            _, refusal = second.communicate(timeout=SECONDS_MAX)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=SECONDS_MAX)

    assert second.returncode == 1
    assert refusal.startswith("directory-in-use: another cluster runs in this data directory")
    assert f"pid={first.pid}" in refusal
    assert "Traceback" not in refusal
    assert first.returncode == 0


async def test_an_ephemeral_cluster_works_and_leaves_no_file_behind(tmp_path: Path) -> None:
    with start_up("--ephemeral", "--no-redis", TMPDIR=str(tmp_path)) as process:
        lines = lines_of(process)
        remark = wait_for(lines, event="remark", part="redis")
        assert remark["reason"] == "disabled by --no-redis: buckets by rendezvous"
        ready = wait_for(lines, event="ready")
        async with connect(Path(ready["endpoints_file"])) as client:
            await client.scopes.create("demo")
            await client.streams.create("demo/numbers", segments=2)
            async with client.writer("demo/numbers") as writer:
                for number in range(100):
                    writer.write(b"%d" % number, key=f"{number % 7}")
            async with client.reader("demo/numbers", until_tail=True) as reader:
                read = {event.payload async for event in reader}
        assert not [path for path in files_in(tmp_path) if "/segstore/" in path]
        process.send_signal(signal.SIGTERM)
        assert list(lines)[-1] == {"event": "stopped"}
        assert process.wait(SECONDS_MAX) == 0

    assert read == {b"%d" % number for number in range(100)}
    assert files_in(tmp_path) == []


def test_an_ephemeral_cluster_ends_with_the_store_that_held_everything(tmp_path: Path) -> None:
    with start_up("--ephemeral", TMPDIR=str(tmp_path)) as process:
        wait_for(lines_of(process), event="ready")
        os.kill(child_of(process.pid, "anabranch.segstore"), signal.SIGKILL)
        _, refusal = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1
    assert "kept all data in memory" in refusal
    assert files_in(tmp_path) == []


def test_an_ephemeral_cluster_takes_no_data_directory(tmp_path: Path) -> None:
    with start_up("--ephemeral", "--data-dir", str(tmp_path)) as process:
        _, refusal = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1
    assert refusal.startswith("invalid-setting: an ephemeral cluster keeps nothing")
