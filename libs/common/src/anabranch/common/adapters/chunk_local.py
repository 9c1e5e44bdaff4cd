"""Tier 2 in a local directory, over the `Disk` port.

    format            marks the directory as tier 2, with its format number; never changed
    tmp/<owner>/…     unfinished objects of the store `owner`; removed when it starts
    c3/….obj          objects, under their names and a suffix that no directory has

The storage writes an object to a temporary file, syncs it, and links it to its name, which fails if
the name is taken. Then it syncs the directories on the path of the name: all of them the first time
that this process uses them, because an earlier process may have created them and died before it
synced them. For the same reason it syncs them even if the name is taken: then that object is
durable. After a failed sync it creates no more objects, because a later successful sync proves
nothing: SyncFailed ends the store. State owned: the directories known to be durable, the counter of
temporaries.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from anabranch.common.errors import (
    CorruptChunk,
    DirectoryUnusable,
    DiskFailed,
    FormatTooNew,
    InvalidName,
    NoRoom,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    SyncFailed,
)
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.threads import ThreadPool
from anabranch.common.storage.ports import Buffer, Disk

FORMAT = 1
FORMAT_FILE = "format"
_FORMAT_WORDS = b"anabranch tier 2 format "
_SUFFIX = ".obj"
_TEMPORARY = "tmp"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789/-.")

THREADS_MAX = 8
"""Concurrent calls: a hanging directory holds this many threads, and objects in memory."""
SYNC_STEP_SIZE_BYTES = 1024 * 1024
"""The step in which objects are synced, so that other synced writes wait only briefly."""
DIRECTORIES_KEPT_MAX = 10_000
"""The largest number of directories that are remembered as durable."""

T = TypeVar("T")


class LocalChunkStorage:
    """Implements `ports.ChunkStorage`. `in_threads`: it runs blocking calls in its own threads."""

    def __init__(self, disk: Disk, ids: IdSource, owner: str, *, in_threads: bool) -> None:
        self._disk = disk
        self._threads = ThreadPool("tier2", THREADS_MAX) if in_threads else None
        self._temporary = f"{_TEMPORARY}/{owner}"
        self._temporary_prefix = f"{self._temporary}/{ids.new_id()}"
        self._temporary_count = 0
        self._durable_directories: set[str] = set()
        self._sync_failed = False
        self._counter_lock = threading.Lock()

    def open(self) -> None:
        """Check the format, remove leftovers and check that the directory is writable; blocks.

        Raises FormatTooNew (before any change), DirectoryUnusable.
        """
        try:
            if self._disk.exists(FORMAT_FILE):
                _check_format(self._read(FORMAT_FILE))
            self._disk.make_directory(self._temporary)
            for name in self._disk.list(self._temporary):
                self._disk.unlink(f"{self._temporary}/{name}")
            self._create_format()
        except NoRoom as error:
            if not self._disk.exists(FORMAT_FILE):
                raise _unusable(error) from error
            # The disk is full: objects can be read, and puts raise NoRoom.
        except (OSError, DiskFailed) as error:
            raise _unusable(error) from error

    def check_format(self) -> None:
        """Check the format without a change; blocks.

        Raises DirectoryUnusable if the directory is no tier 2, FormatTooNew.
        """
        try:
            _check_format(self._read(FORMAT_FILE))
        except (OSError, ObjectNotFound) as error:
            raise DirectoryUnusable(
                "the directory holds no tier 2",
                remedy="name the tier-2 directory of the segment stores",
                cause=str(error),
            ) from error

    def _create_format(self) -> None:
        """Try to create the format file at every start, which proves that the disk is writable."""
        try:
            self._create_durably(FORMAT_FILE, [_FORMAT_WORDS + b"%d\n" % FORMAT])
        except ObjectExists:
            _check_format(self._read(FORMAT_FILE))

    # --- the port -----------------------------------------------------------------------------

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        await self._call(functools.partial(self._put_new, _path(name), parts))

    async def get(self, name: str) -> bytes:
        return await self._call(functools.partial(self._read, _path(name)))

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        return await self._call(
            functools.partial(self._read_range, _path(name), offset, length, name)
        )

    async def size(self, name: str) -> int:
        return await self._call(functools.partial(self._size, _path(name)))

    async def list(self, prefix: str) -> Sequence[str]:
        return await self._call(functools.partial(self._list, prefix))

    async def delete(self, name: str) -> None:
        await self._call(functools.partial(self._remove, _path(name)))

    async def _call(self, work: Callable[[], T]) -> T:
        return work() if self._threads is None else await self._threads.run(work)

    # --- blocking work ------------------------------------------------------------------------

    def _put_new(self, path: str, parts: Sequence[Buffer]) -> None:
        try:
            self._create_durably(path, parts)
        except (OSError, ObjectNotFound) as error:
            raise DiskFailed(
                "an object of tier 2 could not be created", path=path, cause=str(error)
            ) from error

    def _create_durably(self, path: str, parts: Sequence[Buffer]) -> None:
        """Create the object and its name durably. Raises ObjectExists; then that one is durable."""
        if self._sync_failed:
            raise SyncFailed("an earlier sync of tier 2 failed", path=path)
        with self._counter_lock:
            self._temporary_count += 1
            temporary = f"{self._temporary_prefix}-{self._temporary_count}"
        directory = path.rpartition("/")[0]
        try:
            self._write_temporary(temporary, parts)
            self._link(temporary, path, directory)
        finally:
            self._remove(temporary)

    def _write_temporary(self, path: str, parts: Sequence[Buffer]) -> None:
        file = self._disk.create(path)
        try:
            offset = 0
            for step in _steps(parts):
                file.write(step, offset)
                self._synced(file.sync)
                offset += sum(map(len, step))
        finally:
            file.close()

    def _link(self, temporary: str, path: str, directory: str) -> None:
        if directory not in self._durable_directories:
            self._disk.make_directory(directory)
        try:
            self._disk.link(temporary, path)
        finally:
            self._sync_names(directory)

    def _sync_names(self, directory: str) -> None:
        if directory in self._durable_directories:
            self._synced(functools.partial(self._disk.sync_directory, directory))
            return
        for parent in _with_parents(directory):
            self._synced(functools.partial(self._disk.sync_directory, parent))
        if len(self._durable_directories) >= DIRECTORIES_KEPT_MAX:
            self._durable_directories.clear()  # All of them are synced once more.
        self._durable_directories.add(directory)

    def _synced(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except NoRoom as error:  # The directory could not be opened, so no sync was tried.
            raise OutcomeUnknown("a name in tier 2 was not synced", cause=str(error)) from error
        except (OSError, DiskFailed) as error:
            self._sync_failed = True
            raise SyncFailed("a sync of tier 2 failed", cause=str(error)) from error

    def _read(self, path: str) -> bytes:
        file = self._disk.open(path)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def _read_range(self, path: str, offset: int, length: int, name: str) -> bytes:
        file = self._disk.open(path)
        try:
            data = file.read(offset, length)
        finally:
            file.close()
        if len(data) != length:
            raise CorruptChunk("the object is truncated", name=name, offset=offset, length=length)
        return data

    def _size(self, path: str) -> int:
        file = self._disk.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _list(self, prefix: str) -> Sequence[str]:
        found: list[str] = []
        pending = [prefix.rpartition("/")[0]]
        while pending:
            directory = pending.pop()
            for name in self._names_in(directory):
                path = f"{directory}/{name}" if directory else name
                if name.endswith(_SUFFIX):
                    found.append(path.removesuffix(_SUFFIX))
                elif path not in (FORMAT_FILE, _TEMPORARY):
                    pending.append(path)
        return sorted(name for name in found if name.startswith(prefix))

    def _names_in(self, directory: str) -> Sequence[str]:
        """The names in a directory; none if the path is a foreign file."""
        try:
            return self._disk.list(directory)
        except NotADirectoryError:
            return ()

    def _remove(self, path: str) -> None:
        try:
            self._disk.unlink(path)
        except (FileNotFoundError, ObjectNotFound):
            return


def _unusable(error: OSError | DiskFailed) -> DirectoryUnusable:
    return DirectoryUnusable(
        "the directory of tier 2 cannot be written",
        remedy="choose a writable directory with free space for tier 2",
        cause=str(error),
    )


def _path(name: str) -> str:
    """The file of an object. Raises InvalidName."""
    parts = name.split("/")
    if not _NAME_CHARACTERS.issuperset(name) or any(part in ("", ".", "..") for part in parts):
        raise InvalidName("a tier-2 name has letters, digits, '-', '.' and '/' only", name=name)
    if parts[0] in (_TEMPORARY, FORMAT_FILE) or any(part.endswith(_SUFFIX) for part in parts):
        raise InvalidName("the tier-2 name is reserved for the store", name=name)
    return name + _SUFFIX


def _with_parents(directory: str) -> Iterator[str]:
    """The directory, then each of its parents, up to the root."""
    yield directory
    while directory:
        directory = directory.rpartition("/")[0]
        yield directory


def _check_format(data: bytes) -> None:
    """Check a format file. Raises FormatTooNew, DirectoryUnusable."""
    digits = data.removeprefix(_FORMAT_WORDS).strip()
    if not data.startswith(_FORMAT_WORDS) or not digits.isdigit():
        raise DirectoryUnusable(
            "the directory's format file does not describe a tier 2",
            remedy="choose another directory for tier 2, or restore its format file",
        )
    if int(digits) > FORMAT:
        raise FormatTooNew(
            "the directory of tier 2 was written by a newer release",
            found=int(digits), supported=FORMAT,
        )  # fmt: skip


def _steps(parts: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """Divide the parts, in order, into steps of `SYNC_STEP_SIZE_BYTES`; at least one step."""
    step: list[memoryview] = []
    room = SYNC_STEP_SIZE_BYTES
    for part in parts:
        view = memoryview(part)
        while len(view) >= room:
            yield [*step, view[:room]]
            view = view[room:]
            step, room = [], SYNC_STEP_SIZE_BYTES
        step.append(view)
        room -= len(view)
    if step or not parts:
        yield step
