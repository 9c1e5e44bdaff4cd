"""The demo's reader group: four processes that share the stream, of which one is killed.

They read while the stream is written and scaled. The killed reader has segments; the others notice
its death by its lease alone. Each reader records its processed batches in a file.
"""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.cli.demo.check import Written
from anabranch.cli.demo.group_records import GroupCheck, GroupOutcome, Kill, records_of
from anabranch.cli.figures import counted
from anabranch.client import Client, GroupStream, ReaderGroupConfig
from anabranch.common.errors import Retry, Unavailable
from anabranch.common.runtime.clock import Clock

GROUP = "demo/readers"
READERS = ("reader-1", "reader-2", "reader-3", "reader-4")
LEASE_MS = 2_500
PROGRAM = "anabranch.cli.demo.group_reader"
JOINING_S_MAX = 60.0
PROCESSING_S_MAX = 120.0
POLL_S = 0.05
LAG_POLL_S = 0.5


class GroupReading:
    """Owns the readers' processes, and the record of the killed one."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        processes: dict[str, Process],
        clock: Clock,
        tasks: asyncio.TaskGroup,
        remark: Callable[[str], None],
    ) -> None:
        self._client = client
        self._remark = remark
        self._group = client.reader_group(GROUP)
        self._folder = folder
        self._processes = processes
        self._clock = clock
        self._tasks = tasks
        self._killing: asyncio.Task[Kill] | None = None
        self._progress: list[tuple[float, int]] = []

    async def wait_joined(self) -> None:
        """Wait until all readers have joined the group. Raises Unavailable."""
        async with self._deadline(JOINING_S_MAX, "the readers did not join their group in time"):
            while len((await self._group.readers()).keys() & set(READERS)) < len(READERS):
                await self._clock.sleep(POLL_S)

    def look(self, rows: int, kill_at: int) -> None:
        """Note the number of written rows; from `kill_at` on, kill a reader."""
        self._progress.append((self._clock.monotonic(), rows))
        if rows >= kill_at and self._killing is None:
            self._killing = self._tasks.create_task(self._kill())

    async def _kill(self) -> Kill:
        """Kill the reader with the most segments, and wait until the others take them over."""
        readers = await self._group.readers()
        victim = max(sorted(readers), key=lambda reader_id: len(readers[reader_id]))
        process = self._processes.pop(victim)
        process.send_signal(signal.SIGKILL)
        at_s = self._clock.monotonic()
        self._remark(f"killed {victim}, which had {counted(len(readers[victim]), 'segment')}")
        await process.wait()
        async with self._deadline(PROCESSING_S_MAX, "no reader took over from the killed one"):
            while victim in await self._readers_online():
                await self._clock.sleep(POLL_S)
        kill = Kill(victim, at_s, readers[victim], self._clock.monotonic())
        self._remark(f"other readers took over from {victim} after {kill.takeover_seconds:.1f} s")
        return kill

    async def _readers_online(self) -> set[str]:
        try:
            return set(await self._group.readers())
        except Retry:  # the store is restarting
            return set(READERS)

    async def finish(
        self, written: Written, tell: Callable[[int], None] = lambda _behind: None
    ) -> GroupOutcome:
        """Wait until all events are processed, let the readers leave, and check their records.

        `tell` takes the number of events that the group is still behind.
        """
        assert self._killing is not None
        kill = await self._killing
        async with self._deadline(
            PROCESSING_S_MAX, "the group did not reach the stream's end in time"
        ):
            while (lag := (await self._group.status()).lag).bytes:
                tell(lag.events)
                await self._clock.sleep(LAG_POLL_S)
            tell(0)
            for process in self._processes.values():
                assert process.stdin is not None
                process.stdin.close()
            for process in self._processes.values():
                await process.wait()
        failed = {each: process.returncode for each, process in self._processes.items()}
        if any(failed.values()):
            raise Unavailable(
                "a reader of the group failed", remedy=f"read the logs in {self._folder}"
            )
        return await asyncio.to_thread(self._check, written, kill)

    def _check(self, written: Written, kill: Kill) -> GroupOutcome:
        check = GroupCheck(written, kill)
        noted = {each: record_path(self._folder, each).read_bytes() for each in READERS}
        check.look({reader_id: list(records_of(data)) for reader_id, data in noted.items()})
        return check.outcome(self._progress)

    @asynccontextmanager
    async def _deadline(self, seconds: float, late: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise Unavailable(late, remedy=f"read the logs in {self._folder}") from error


@asynccontextmanager
async def group_reading(
    client: Client,
    endpoints_file: Path,
    stream: str,
    *,
    folder: Path,
    clock: Clock,
    remark: Callable[[str], None],
) -> AsyncIterator[GroupReading]:
    """Readers that have joined a new group of the stream; all of them end with the block.

    `folder`: the place of their records. `remark` takes a line for people about the kill.
    """
    await asyncio.to_thread(_prepare, folder)
    config = ReaderGroupConfig((GroupStream(stream),), lease_ms=LEASE_MS)
    await client.reader_groups.create(GROUP, config)
    processes: dict[str, Process] = {}
    try:
        for reader_id in READERS:
            processes[reader_id] = await _start(endpoints_file, reader_id, folder)
        async with asyncio.TaskGroup() as tasks:
            reading = GroupReading(
                client, folder, processes=processes, clock=clock, tasks=tasks, remark=remark
            )
            await reading.wait_joined()
            yield reading
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                process.kill()
            await process.wait()


def record_path(folder: Path, reader_id: str) -> Path:
    """The file in which a reader records its processed batches."""
    return folder / f"{reader_id}.jsonl"


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True)
    for reader_id in READERS:
        record_path(folder, reader_id).touch()


async def _start(endpoints_file: Path, reader_id: str, folder: Path) -> Process:
    arguments = (str(endpoints_file), GROUP, reader_id, str(record_path(folder, reader_id)))
    with (folder / f"{reader_id}.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", PROGRAM, *arguments,
            stdin=PIPE, stdout=DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
