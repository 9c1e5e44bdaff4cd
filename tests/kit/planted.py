"""Known bugs, planted on purpose: a test that cannot find them proves nothing.

Each is a context manager under which the journal behaves as if one line were missing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore.adapters.journal import files, layout, reading
from anabranch.segstore.adapters.journal.files import FileWriter
from anabranch.segstore.domain.log import formats, scan
from anabranch.segstore.domain.log.formats import FrameContent
from kit.simdisk import SimDisk, SimFile


class _NeverSynced:
    """A file whose synced writes are not."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def write_synced(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._file.write(buffers, offset)


@contextmanager
def ack_before_sync() -> Iterator[None]:
    """Frames are acknowledged although their write was not synced."""
    real = FileWriter.write

    def write(self: FileWriter, contents: Sequence[FrameContent]) -> list[int]:
        file = self._file
        with patch.object(self, "_file", _NeverSynced(file)):
            return real(self, contents)

    with patch.object(FileWriter, "write", write):
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
    return patch.object(SimFile, "forget_cached", lambda _self: None)


@contextmanager
def one_seed_for_all_files() -> Iterator[None]:
    """What a file holds of its former life passes for frames of its present one."""
    with ExitStack() as patches:
        for module in (files, reading, scan):
            patches.enter_context(patch.object(module, "frame_seed", lambda _file_id: 7))
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


JOURNAL_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "ack before sync": ack_before_sync,
    "no fence check": no_fence_check,
    "no directory sync": no_directory_sync,
    "skipped CRC": skipped_crc,
    "cached scan": cached_scan,
    "one seed for all files": one_seed_for_all_files,
    "header after the name": header_after_the_name,
}
