"""A side of a comparison runs its own code, keeps the rows that it has, and ends in time."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import SystemClock
from bench.case import LONG, QUICK, Case, Sample, case_of
from bench.clock import Stopwatch
from bench.compare import side as side_program
from bench.compare.checkout import Checkout, checkout, differences
from bench.compare.process import ended, rows_of
from bench.compare.side import at_least, foreign
from bench.systems.port import Label, System
from kit.bench_fake import FakeStopwatch, FakeSystem

ROOT = Path(__file__).resolve().parents[3]
CASE = case_of(32)


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.hooksPath=")
    subprocess.run(["git", "-C", directory, *identity, *arguments], check=True, capture_output=True)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny project with one commit, and a change that is not in it."""
    root = tmp_path_factory.mktemp("repository")
    git(root, "init", "-q", "-b", "trunk")
    write(root / "bench/run.py", "committed")
    write(root / "libs/client/src/anabranch/client/__init__.py", "")
    write(root / "services/segstore/src/anabranch/segstore/__init__.py", "")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    write(root / "bench/run.py", "changed")
    return root


def test_a_revision_is_exported_as_it_was_committed(repository: Path, tmp_path: Path) -> None:
    found = checkout("trunk", repository, tmp_path / "old")

    assert (found.root / "bench/run.py").read_text() == "committed"
    assert found.described.startswith("trunk (")


def test_a_directory_is_taken_as_it_is(repository: Path, tmp_path: Path) -> None:
    found = checkout(str(repository), ROOT, tmp_path / "new")

    assert (found.root / "bench/run.py").read_text() == "changed"
    assert found.described.endswith("-dirty)")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("asked", ["no-such-thing", "--output=x", "libs"])
def test_what_is_neither_a_checkout_nor_a_revision_is_refused(
    asked: str, repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="neither a checkout"):
        checkout(asked, repository, tmp_path / "old")


def test_a_sides_own_code_comes_before_everything_installed(repository: Path) -> None:
    environment = Checkout(repository, "").environment({"PYTHONPATH": "/elsewhere", "HOME": "/h"})

    assert environment["HOME"] == "/h"
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        str(repository),
        str(repository / "libs/client/src"),
        str(repository / "services/segstore/src"),
    ]


def test_code_from_another_checkout_is_noticed(repository: Path) -> None:
    """This process runs the code of this checkout, so that of the other one is not its own."""
    assert list(foreign(ROOT)) == []
    assert [each.split()[0] for each in foreign(repository)] == [
        "anabranch.client", "anabranch.segstore", "bench",
    ]  # fmt: skip


def test_what_differs_beside_the_product_is_told(tmp_path: Path) -> None:
    old, new = Checkout(tmp_path / "old", ""), Checkout(tmp_path / "new", "")
    for each in (old, new):
        write(each.root / "requirements.lock", "a==1")
        write(each.root / "bench/workloads/w1.py", "same")
    write(new.root / "bench/workloads/w2.py", "only here")

    assert differences(old, old, old.root) == []
    assert differences(old, new, old.root) == [
        "each ran its own bench, and they differ in bench/workloads/w2.py"
    ]
    write(old.root / "requirements.lock", "a==2")
    assert "requirements.lock differs" in differences(old, new, new.root)[0]


class Fixed:
    """A workload with samples ready: the second round loses events, the third may break."""

    name = "W0"
    event_bytes: tuple[int, ...] = (32,)

    def __init__(self) -> None:
        self.warm_ups: list[bool] = []

    def suits(self, label: Label) -> bool:
        return True

    async def measure(
        self, system: System, case: Case, effort: object, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        self.warm_ups.append(warm_up)
        if system.label.system == "broken" and len(self.warm_ups) == 4:
            raise ValueError("it broke")
        rate = 100 * len(self.warm_ups)
        return Sample(rate, 1.0, 0.5, verified=rate != 300, p50_ms=4.0)


async def test_a_side_writes_the_median_of_its_rounds_after_a_warm_up() -> None:
    workload, effort = Fixed(), replace(QUICK, rounds=3)

    line = await side_program.line_of(workload, CASE, FakeSystem(FakeStopwatch()), effort)

    assert workload.warm_ups == [True, False, False, False]
    assert line["events_per_s"] == 300
    assert (line["p50_ms"], line["ack_p50_ms"]) == (4.0, None)
    assert line["verified"] is False
    assert line["workload"] == "W0"


def test_the_rounds_of_a_comparison_are_not_too_short_and_long_ones_stay_long() -> None:
    assert at_least(QUICK).awaited_s > QUICK.awaited_s
    assert at_least(QUICK).bytes_max == QUICK.bytes_max
    assert at_least(LONG) == LONG


async def test_a_row_that_fails_on_a_side_is_written_as_failed() -> None:
    system = FakeSystem(FakeStopwatch(), system="broken")

    line = await side_program.line_of(Fixed(), CASE, system, QUICK)

    assert line["error"] == "ValueError: it broke"
    assert line["verified"] is False  # the round before lost events


def test_what_a_killed_side_has_written_is_kept_but_for_half_a_line() -> None:
    line = '{"workload": "W1", "event_bytes": 1, "settings": "s", "events_per_s": 5.0}'

    assert [row.value for row in rows_of(f"{line}\n{line}\n{line[:40]}")] == [5.0, 5.0]
    assert rows_of("") == []


def runs(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_side_that_does_not_end_is_killed_with_all_that_it_started() -> None:
    program = "import subprocess; print(subprocess.Popen(['cat']).pid, flush=True); input()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    started = int(await process.stdout.readline())

    error = await ended(process, 0.0)

    assert error == "not finished after 0 s"
    assert process.returncode == -9
    await process.stdout.read()  # ends when the last one that could write has closed its files
    async with asyncio.timeout(10):
        while runs(started):
            await SystemClock().sleep(0.01)


@pytest.mark.parametrize(("status", "error"), [(0, None), (3, "exit status 3")])
async def test_the_exit_status_of_a_side_is_told(status: int, error: str | None) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", f"exit({status})")

    assert await ended(process, 60.0) == error
