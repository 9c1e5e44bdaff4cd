"""Reading frames of the journal beside its commits: what a file that goes meanwhile may do."""

import asyncio
import threading
from collections.abc import Callable, Coroutine

import pytest

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.errors import CorruptJournal, Deposed, ObjectNotFound, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.ports import DiskFile
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES
from anabranch.segstore.ports import LogAddress
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource
from kit.simdisk import SimDisk, SimFile


class InterruptedDisk(SimDisk):
    """Lets something happen between a file's opening and its reading."""

    def __init__(self) -> None:
        super().__init__()
        self.on_open: Callable[[DiskFile], None] | None = None

    def open(self, path: str) -> SimFile:
        file = super().open(path)
        if self.on_open is not None and path.startswith("journal-"):
            happening, self.on_open = self.on_open, None
            happening(file)
        return file


class Opened:
    """A journal with frames in several files."""

    def __init__(self, *, in_threads: bool = False) -> None:
        self.disk = InterruptedDisk()
        self.callbacks = Callbacks()
        self.journal = open_journal(
            self.disk,
            ids=SeededIds(1),
            schedule=self.callbacks,
            file_size=4096,
            in_threads=in_threads,
        )
        run_at_once(self.journal.create_log(0, "log"))
        self.source = ScriptedSource()
        self.view = run_at_once(self.journal.open_log(0, "log", 1, self.source))
        self.append(4)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.source.put(bytes(3000))
            self.view.ready()
            self.callbacks.run()

    def read(self, sequence: int) -> bytes:
        return asyncio.run(self.view.read_aside(self.address(sequence)))

    def address(self, sequence: int) -> LogAddress:
        return self.source.addresses[sequence]

    def damage(self, sequence: int) -> Callable[[DiskFile], None]:
        position = self.address(sequence).position + FRAME_HEADER_SIZE_BYTES
        return lambda file: file.write_synced([b"?"], position)


class HungDisk(SimDisk):
    """A directory whose server is gone: whoever opens a file waits."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()

    def open(self, path: str) -> SimFile:
        self.back.wait()
        return super().open(path)


async def test_a_tier_two_that_hangs_keeps_no_reader_of_the_journal_waiting() -> None:
    opened, hung = Opened(in_threads=True), HungDisk()
    tier_two = DeadlineChunkStorage(
        LocalChunkStorage(hung, SeededIds(2), "node-1", in_threads=True), limit_s=0.02
    )
    try:
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(refused(tier_two.get("c0/gone"))) for _ in range(100)]
        assert all(read.done() for read in reads)
        async with asyncio.timeout(5):
            assert await opened.view.read_aside(opened.address(2)) == bytes(3000)
    finally:
        hung.back.set()


async def refused(call: Coroutine[None, None, bytes]) -> None:
    with pytest.raises(Unavailable):
        await call


def test_a_damaged_frame_is_told_by_name() -> None:
    opened = Opened()
    opened.disk.on_open = opened.damage(2)
    with pytest.raises(CorruptJournal) as caught:
        opened.read(2)
    assert caught.value.fields["position"] == opened.address(2).position


def test_a_file_that_was_used_again_while_it_was_read_is_no_damage() -> None:
    # given a read whose file is open
    opened = Opened()
    damage = opened.damage(1)

    def used_again(file: DiskFile) -> None:
        run_at_once(opened.view.release(1))
        opened.append(4)
        damage(file)

    opened.disk.on_open = used_again
    # when the file gets other contents before it is read, then the frame is just not there
    with pytest.raises(ObjectNotFound):
        opened.read(1)
    assert opened.read(3) == opened.source.taken[3]


def test_what_was_read_while_the_journal_ended_is_not_handed_out() -> None:
    opened = Opened()
    opened.disk.on_open = lambda _: opened.journal.end(Deposed("another owner"))
    with pytest.raises(Deposed):
        opened.read(2)


def test_another_containers_frame_is_not_handed_out() -> None:
    opened = Opened()
    run_at_once(opened.journal.create_log(1, "other"))
    other = run_at_once(opened.journal.open_log(1, "other", 1, ScriptedSource()))
    with pytest.raises(CorruptJournal):
        asyncio.run(other.read_aside(opened.address(2)))
