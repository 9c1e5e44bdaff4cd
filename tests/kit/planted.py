"""Known bugs, planted on purpose: a test that cannot find them proves nothing.

Each is a context manager under which the journal behaves as if one line were missing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore.adapters.group import Taken
from anabranch.segstore.adapters.journal import files, layout, reading, recovery
from anabranch.segstore.adapters.journal.commits import InlineCommits
from anabranch.segstore.adapters.journal.files import FileWriter, PlannedWrite
from anabranch.segstore.adapters.journal.group_commit import GroupCommit
from anabranch.segstore.adapters.journal.live import LiveFile
from anabranch.segstore.adapters.journal.view import JournalView
from anabranch.segstore.domain.log import formats
from anabranch.segstore.domain.log import scan as scan_module
from anabranch.segstore.domain.log.chain import KnownFiles
from anabranch.segstore.domain.log.formats import FILE_HEADER_SIZE_BYTES, FileEnd, FileHeader
from anabranch.segstore.ports import LogAddress
from kit.simdisk import SimDisk, SimFile


@contextmanager
def ack_before_sync() -> Iterator[None]:
    """Frames are acknowledged although their write was not synced."""

    def write(self: InlineCommits, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        file.write(buffers, offset)
        self._ended(None)

    with patch.object(InlineCommits, "write", write):
        yield


def no_fence_check() -> AbstractContextManager[object]:
    """The owner never looks whether it has been deposed."""
    return patch.object(layout, "fence_held", lambda _disk, _epoch: True)


def no_directory_sync() -> AbstractContextManager[object]:
    """Names are never made durable."""
    return patch.object(SimDisk, "sync_directory", lambda _self, _path="": None)


def skipped_crc() -> AbstractContextManager[object]:
    """Frames carry no checksum, and none is verified."""
    return patch.object(formats, "checksum", lambda _head, _payload, _seed: 0)


def cached_scan() -> AbstractContextManager[object]:
    """A scan believes the page cache, which may show what a failed sync dropped."""
    return patch.object(SimFile, "read_stored", SimFile.read)


@contextmanager
def one_seed_for_all_files() -> Iterator[None]:
    """What a file holds of its former life passes for frames of its present one."""
    with ExitStack() as patches:
        for module in (files, reading, scan_module):
            patches.enter_context(patch.object(module, "frame_seed", lambda _file_id: 7))
        yield


@contextmanager
def retired_without_directory_sync() -> Iterator[None]:
    """Files that go at once have no sync between them."""
    real = FileWriter.retire

    def retire(self: FileWriter, live: LiveFile) -> None:
        with patch.object(SimDisk, "sync_directory", lambda _self, _path="": None):
            real(self, live)

    with patch.object(FileWriter, "retire", retire):
        yield


def nothing_recorded() -> AbstractContextManager[object]:
    """The journal keeps no record of its files."""
    return patch.object(layout, "note_known", lambda _disk, _known: None)


def oldest_not_recorded() -> AbstractContextManager[object]:
    """Files go that the record still begins with."""
    return patch.object(FileWriter, "note_oldest", lambda _self, _oldest: None)


def newest_recorded_before_its_name() -> AbstractContextManager[object]:
    """The record names a file that may not be there after a crash."""
    real = FileWriter.roll

    def roll(self: FileWriter, oldest: int | None) -> LiveFile:
        file_id = self._next_file_id()
        layout.note_known(self._disk, KnownFiles(oldest or file_id, file_id))
        return real(self, oldest)

    return patch.object(FileWriter, "roll", roll)


@contextmanager
def a_free_file_stays_when_the_next_begins() -> Iterator[None]:
    """A file that was released as the present one is not retired when it no longer is."""
    real = GroupCommit._begin_next_file

    def begin(self: GroupCommit) -> bool:
        with patch.object(GroupCommit, "_retire_free", lambda _: False):
            return real(self)

    with patch.object(GroupCommit, "_begin_next_file", begin):
        yield


@contextmanager
def acknowledged_without_room() -> Iterator[None]:
    """Frames for which there is no file are taken for written."""
    real = GroupCommit._begin_commit

    def begin(self: GroupCommit, taken: list[Taken[JournalView]]) -> None:
        real(self, taken)
        if self.no_room and self._held:
            self._held = []
            for item in taken:
                address = LogAddress(1, FILE_HEADER_SIZE_BYTES, item.contents.size)
                item.view.source.frame_durable(item.contents, address)

    with patch.object(GroupCommit, "_begin_commit", begin):
        yield


@contextmanager
def a_frame_skipped_when_there_is_room_again() -> Iterator[None]:
    """What was held is forgotten, and what came after it is written."""
    real = GroupCommit.try_again

    def try_again(self: GroupCommit) -> None:
        waited = self.no_room
        real(self)
        if waited and not self.no_room:
            self._held = []

    with patch.object(GroupCommit, "try_again", try_again):
        yield


@contextmanager
def header_after_the_name() -> Iterator[None]:
    """A file that is used again gets its new name, and its header only later."""
    real = SimDisk.rename

    def rename(self: SimDisk, source: str, target: str) -> None:
        if "spare-" in source:
            file = self.open(source)
            header = file.read(0, formats.FILE_HEADER_SIZE_BYTES)
            file.write_synced([bytes(formats.FILE_HEADER_SIZE_BYTES)], 0)
            real(self, source, target)
            file.write_synced([header], 0)
            return
        real(self, source, target)

    with patch.object(SimDisk, "rename", rename):
        yield


@contextmanager
def ack_before_the_childs_answer() -> Iterator[None]:
    """Frames are acknowledged when their write was asked for."""
    real = GroupCommit._write

    def write(self: GroupCommit, write: PlannedWrite, then: Callable[[], None]) -> None:
        real(self, write, then)
        if self._then is not None:
            self._written(None)

    with patch.object(GroupCommit, "_write", write):
        yield


@contextmanager
def two_writes_outstanding() -> Iterator[None]:
    """A commit does not wait for the one before it."""
    real = GroupCommit._commit

    def commit(self: GroupCommit) -> None:
        self._then = None
        real(self)

    def schedule(self: GroupCommit) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self._commit)

    with (
        patch.object(GroupCommit, "_commit", commit),
        patch.object(GroupCommit, "_schedule_commit", schedule),
    ):
        yield


@contextmanager
def scan_not_synced() -> Iterator[None]:
    """What an open has read is not synced behind the reading."""

    def scan(file: DiskFile, header: FileHeader, end: FileEnd | None) -> scan_module.ScannedFile:
        return scan_module.scan_file(file.read_stored(0, file.size()), header, end)

    with patch.object(recovery, "_scan", scan):
        yield


JOURNAL_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "ack before sync": ack_before_sync,
    "no fence check": no_fence_check,
    "no directory sync": no_directory_sync,
    "skipped CRC": skipped_crc,
    "cached scan": cached_scan,
    "one seed for all files": one_seed_for_all_files,
    "header after the name": header_after_the_name,
    "ack before the child's answer": ack_before_the_childs_answer,
    "two writes outstanding": two_writes_outstanding,
    "scan not synced": scan_not_synced,
    "retired without directory sync": retired_without_directory_sync,
    "nothing recorded": nothing_recorded,
    "newest recorded before its name": newest_recorded_before_its_name,
    "oldest not recorded": oldest_not_recorded,
    "acknowledged without room": acknowledged_without_room,
    "a free file stays when the next begins": a_free_file_stays_when_the_next_begins,
    "a frame skipped when there is room again": a_frame_skipped_when_there_is_room_again,
}
