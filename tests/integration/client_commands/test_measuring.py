"""The commands `anabranch perf …` and `anabranch top`, against a fake controller and store."""

import asyncio
import json
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.command_line import CommandLine
from kit.fake_admin import AdminController
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.fake_streams import FakeStream
from kit.nats_controller import nats_controller

DEADLINE_S = 20
LOOK_S = 0.01
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class World:
    """A fake cluster; `directory` holds its endpoints.json."""

    directory: Path
    controller: FakeController
    store: FakeSegmentStore
    commands: CommandLine

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "ANABRANCH_DATA_DIR": str(self.directory),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TERM": "xterm-256color",
        }

    async def lines(self, *arguments: str) -> list[str]:
        """What a command prints that succeeds."""
        return await self.commands.lines(*arguments, "--data-dir", str(self.directory))

    async def record(self, *arguments: str) -> dict[str, object]:
        """The JSON of a command that prints one object."""
        (line,) = await self.lines(*arguments, "--json")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def world(
    url: str,
    directory: Path,
    output: pytest.CaptureFixture[str],
    kind: type[FakeController] = FakeController,
) -> AsyncIterator[World]:
    (directory / "endpoints.json").write_text(json.dumps({"nats": url}))
    async with FakeSegmentStore() as store:
        connection = await connect_nats(nats_target(url), "fake controller")
        controller = kind(store, page_size=1000)
        try:
            async with nats_controller(controller, connection):
                with capture_logs():  # the program sends them to stderr
                    yield World(directory, controller, store, CommandLine(output))
        finally:
            await connection.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  another process works on it
            await asyncio.sleep(LOOK_S)


# --- perf -----------------------------------------------------------------------------------


async def test_loads_are_measured_and_leave_nothing(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys) as w:
        written = await w.record("perf", "write", "--events", "300", "--keys", "7", "--size", "64")
        assert (written["events"], written["bytes"]) == (300, 300 * 64)
        paced = await w.lines("perf", "write", "--events", "20", "--rate", "1000", "--writers", "2")
        assert paced[0].startswith("perf write perf/write-")
        timed = await w.record("perf", "latency", "--events", "10", "--size", "8")
        assert (timed["events"], timed["missing"]) == (10, 0)
        scaled = await w.record("perf", "scale", "--scales", "2", "--every", "0.5", "--rate", "200")
        assert scaled["verified"] is True
        assert w.controller.scopes == {}


async def test_a_kept_stream_is_read_and_a_named_one_is_written_to(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys) as w:
        kept = await w.record("perf", "write", "--events", "40", "--size", "10", "--keep")
        stream = str(kept["stream"])
        await w.record("perf", "write", stream, "--events", "2", "--size", "10")
        read = await w.record("perf", "read", stream)
        assert (read["events"], read["bytes"], read["ended"]) == (42, 420, "end")
        nothing = await w.record("perf", "read", stream, "--follow", "--seconds", "0.05")
        assert (nothing["events"], nothing["arrival_ms"]) == (0, None)


async def test_amounts_out_of_range_are_refused_before_anything_is_created(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys) as w:
        for option in ("--seconds=0", "--size=7", "--writers=0", "--rate=0", "--segments=0"):
            ended = await w.commands.run("perf", "write", option, "--data-dir", str(tmp_path))
            assert (ended.code, ended.out) == (1, "")
            assert "try: give" in ended.err
        assert w.controller.scopes == {}


async def test_ctrl_c_ends_a_load_with_its_figures_so_far(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys) as w:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "anabranch.cli"),
            *("perf", "write", "--rate", "500", "--seconds", "600", "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=w.environment,
        )
        await until(lambda: any(segment.data for segment in w.store.segments.values()))
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        assert process.returncode == 130, err
        record = json.loads(out)
        assert record["ended"] == "interrupted"
        assert record["events"] > 0
        assert w.controller.scopes == {}


# --- top ------------------------------------------------------------------------------------


def with_streams(w: World) -> None:
    w.controller.scopes["plant"] = {"sensors": FakeStream(2), "old": FakeStream(1)}


async def test_top_prints_one_snapshot_where_there_is_no_terminal(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys, AdminController) as w:
        with_streams(w)
        lines = await w.lines("top", "--limit", "1")
        assert lines[0] == "streams (2, 1 more)"
        assert lines[1].split() == [
            "STREAM", "EVENTS/S", "BYTES/S", "SEGMENTS", "EPOCH", "SCALING", "STATE",
        ]  # fmt: skip
        assert {"reader groups (0)", "cluster (3)", "work (0)"} <= set(lines)
        record = await w.record("top", "--once")
        streams = record["streams"]
        assert isinstance(streams, dict)
        assert streams["value"]["count"] == 2


async def test_top_prints_a_record_per_snapshot_for_programs_until_ctrl_c(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys, AdminController) as w:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "anabranch.cli"),
            *("top", "--json", "--interval", "0.2"),
            stdout=asyncio.subprocess.PIPE,
            env=w.environment,
        )
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            first, second = [json.loads(await process.stdout.readline()) for _ in range(2)]
            assert first["at_ms"] < second["at_ms"]
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130


async def test_top_fills_a_terminal_follows_keys_and_quits(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(nats_url, tmp_path, capsys, AdminController) as w:
        with_streams(w)
        ours, theirs = os.openpty()
        before = termios.tcgetattr(theirs)
        termios.tcsetwinsize(theirs, (24, 80))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "anabranch.cli", "top", "--interval", "0.2"),
            stdin=theirs, stdout=theirs, stderr=theirs, env=w.environment,
        )  # fmt: skip
        terminal = Terminal(ours)
        try:
            await terminal.until("plant/sensors", "READER GROUPS (0)", "[a] all")
            assert max(map(len, terminal.screens()[-1])) <= 80
            os.write(ours, b"c")
            await terminal.until("[c] cluster")
            os.write(ours, b"q")
            async with asyncio.timeout(DEADLINE_S):
                assert await process.wait() == 0
            assert termios.tcgetattr(theirs) == before
        finally:
            terminal.close()
            os.close(theirs)
            if process.returncode is None:
                process.kill()
                await process.wait()


class Terminal:
    """Our end of a pseudo-terminal, and all that a program has drawn on it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._drawn = ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def screens(self) -> list[list[str]]:
        """Each screen that was drawn whole, as lines without their styles."""
        return [
            [line.rstrip() for line in _CONTROL.sub("", drawn).splitlines()]
            for drawn in self._drawn.split("\x1b[H")
        ]

    async def until(self, *words: str) -> None:
        """Return when one screen shows all of these."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._shows(words):
                self._news.clear()
                await self._news.wait()

    def _shows(self, words: tuple[str, ...]) -> bool:
        texts = ["\n".join(lines) for lines in self.screens()]
        return any(all(word in text for word in words) for text in texts)

    def _read(self) -> None:
        self._drawn += os.read(self._descriptor, 65_536).decode()
        self._news.set()
