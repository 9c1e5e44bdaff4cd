"""The machine's file system as `ports.Disk`, and the preparation of a directory for a journal.

Writes go through `pwritev` in batches of at most 1,024 buffers. A synced write is one call with
`RWF_DSYNC` if the file system supports it, otherwise a write and an fdatasync. An I/O error raises
`DiskFailed`: the content of the disk is then unknown, and the caller must not retry in place. A
full disk, or a process without a free file descriptor, raises `NoRoom`: the new file does not
exist, and the caller may try again later.

`read_stored` reads with `O_DIRECT`, past the page cache. After a failed sync Linux marks the pages
clean, so a cached read would return, and a later sync confirm, bytes that were never written. On a
file system without direct reads (some in memory or in user space) it drops the cached pages before
the read, as far as the kernel can.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from anabranch.common.errors import (
    DirectoryInUse,
    DirectoryUnusable,
    DiskFailed,
    NoRoom,
    ObjectExists,
    ObjectNotFound,
)
from anabranch.common.storage.mounts import MOUNT_TABLE, is_network, mount_at
from anabranch.common.storage.ports import Buffer

BUFFERS_PER_CALL_MAX = 1024
LOCK_FILE = "lock"
DIRECT_READ_SIZE_BYTES = 1024 * 1024
_ZEROS = bytes(1024 * 1024)
_DIRECT_ALIGNMENT = 4096
_NO_DIRECT_READS = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
_DISK_ERRORS = frozenset({errno.EIO, errno.EROFS, errno.EFBIG})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class _Named:
    """Turns errors of the operating system in its block into the project's errors.

    It is a class, not a generator, because every synced write passes through it.
    """

    __slots__ = ("_path", "_verb")

    def __init__(self, verb: str, path: str) -> None:
        self._verb = verb
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if isinstance(error, FileExistsError):
            raise ObjectExists("the name is taken", path=self._path) from error
        if isinstance(error, FileNotFoundError):
            raise ObjectNotFound("no such file or directory", path=self._path) from error
        if error.errno in _DISK_ERRORS or error.errno in _NO_ROOM:
            kind = NoRoom if error.errno in _NO_ROOM else DiskFailed
            raise kind(
                f"{self._verb} failed: {os.strerror(error.errno or 0)}", path=self._path
            ) from error


class _Synced(_Named):
    """As `_Named`, for a sync: also a lack of space is a failed sync."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            reason = f"{self._verb} failed: {os.strerror(error.errno or 0)}"
            raise DiskFailed(reason, path=self._path) from error
        super().__exit__(kind, error, trace)


class LocalFile:
    """An open file. Blocking; used by one thread at a time."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._sync_flag = getattr(os, "RWF_DSYNC", 0)

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        with _Named("write", self._path):
            self._write(buffers, offset, 0)

    def write_synced(self, buffers: Sequence[Buffer], offset: int) -> None:
        with _Named("synced write", self._path):
            if self._sync_flag and len(buffers) <= BUFFERS_PER_CALL_MAX:
                try:
                    self._write(buffers, offset, self._sync_flag)
                except OSError as error:
                    if error.errno != errno.EOPNOTSUPP:
                        raise
                    self._sync_flag = 0
                else:
                    return
            self._write(buffers, offset, 0)
            os.fdatasync(self._fd)

    def _write(self, buffers: Sequence[Buffer], offset: int, flags: int) -> None:
        for first in range(0, len(buffers), BUFFERS_PER_CALL_MAX):
            batch = buffers[first : first + BUFFERS_PER_CALL_MAX]
            size = sum(memoryview(part).nbytes for part in batch)
            written = os.pwritev(self._fd, batch, offset, flags)
            while written < size:
                rest = _without_start(batch, written)
                written += os.pwritev(self._fd, rest, offset + written, flags)
            offset += size

    def sync(self) -> None:
        with _Synced("sync", self._path):
            os.fdatasync(self._fd)

    def read_stored(self, offset: int, length: int) -> bytes:
        with _Named("direct read", self._path):
            try:
                return _read_direct(self._fd, offset, length)
            except OSError as error:
                if error.errno not in _NO_DIRECT_READS:
                    raise
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return self.read(offset, length)

    def read(self, offset: int, length: int) -> bytes:
        with _Named("read", self._path):
            data = os.pread(self._fd, length, offset)
            if len(data) == length:
                return data
            parts = [data]
            have = len(data)
            while parts[-1] and have < length:
                parts.append(os.pread(self._fd, length - have, offset + have))
                have += len(parts[-1])
            return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        """The descriptor, for another process that writes to the file."""
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


def _read_direct(fd: int, offset: int, length: int) -> bytes:
    """Read with `O_DIRECT`, which needs aligned memory and offsets. Raises OSError."""
    direct = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    parts: list[bytes] = []
    try:
        end = min(offset + length, os.fstat(direct).st_size)
        at = offset - offset % _DIRECT_ALIGNMENT
        with mmap.mmap(-1, DIRECT_READ_SIZE_BYTES) as buffer:
            while at < end:
                found = os.preadv(direct, [buffer], at)
                if at + found < end:
                    found -= found % _DIRECT_ALIGNMENT
                if not found:
                    raise OSError(errno.EIO, "a direct read found nothing before the file's end")
                parts.append(buffer[max(0, offset - at) : min(found, end - at)])
                at += found
    finally:
        os.close(direct)
    return b"".join(parts)


def _without_start(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """The buffers without their first `size` bytes."""
    rest: list[Buffer] = []
    for part in buffers:
        view = memoryview(part).cast("B")
        if size < view.nbytes:
            rest.append(view[size:])
        size = max(0, size - view.nbytes)
    return rest


class LocalDisk:
    """A directory of the machine's file system; paths are relative to it.

    `hold_directories`: a synced directory stays open until `close`, so that its next sync needs no
    free file descriptor. Use it for trees with few directories.
    """

    def __init__(
        self, root: Path, *, read_only: bool = False, hold_directories: bool = False
    ) -> None:
        self.root = root
        self._root = str(root)
        self._held: dict[str, int] | None = {} if hold_directories else None
        self._open_flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC

    def _at(self, path: str) -> str:
        """The path as text, not a `Path`, because the journal checks its fence after every sync."""
        assert "/../" not in f"/{path}/", path
        assert path[:1] != "/", path
        return f"{self._root}/{path}"

    def create(self, path: str, size: int = 0) -> LocalFile:
        full = self._at(path)
        with _Named("create", full):
            fd = os.open(full, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                if size:
                    _allocate(fd, size)
            except OSError:
                os.close(fd)
                Path(full).unlink()  # A part of it may be allocated.
                raise
        return LocalFile(fd, full)

    def open(self, path: str) -> LocalFile:
        full = self._at(path)
        with _Named("open", full):
            return LocalFile(os.open(full, self._open_flags), full)

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._at(path))  # noqa: PTH116
        except FileNotFoundError:
            return False
        return True

    def list(self, path: str = "") -> Sequence[str]:
        full = self._at(path)
        with _Named("list", full):
            try:
                return sorted(os.listdir(full))  # noqa: PTH208
            except FileNotFoundError:
                return []

    def make_directory(self, path: str) -> None:
        full = self._at(path)
        with _Named("make directory", full):
            Path(full).mkdir(parents=True, exist_ok=True)

    def link(self, source: str, target: str) -> None:
        with _Named("link", self._at(target)):
            os.link(self._at(source), self._at(target))

    def rename(self, source: str, target: str) -> None:
        with _Named("rename", self._at(target)):
            Path(self._at(source)).rename(self._at(target))

    def unlink(self, path: str) -> None:
        with _Named("unlink", self._at(path)):
            Path(self._at(path)).unlink()

    def sync_directory(self, path: str = "") -> None:
        full = self._at(path)
        if self._held is None:
            with _Named("open directory", full):
                fd = _open_directory(full)
            try:
                _fsync(fd, full)
            finally:
                os.close(fd)
            return
        if path not in self._held:
            with _Named("open directory", full):
                self._held[path] = _open_directory(full)
        _fsync(self._held[path], full)

    def close(self) -> None:
        """Close the held directories. Repeatable."""
        held, self._held = self._held, None
        for fd in (held or {}).values():
            os.close(fd)


def _open_directory(path: Path | str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _fsync(fd: int, path: str) -> None:
    with _Synced("sync directory", path):
        os.fsync(fd)


def _allocate(fd: int, size: int) -> None:
    """Take the space, so that no later write within it finds the disk full."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        for offset in range(0, size, len(_ZEROS)):
            part = _ZEROS[: size - offset]
            if os.pwrite(fd, part, offset) != len(part):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _sync_directory(path: Path | str) -> None:
    fd = _open_directory(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def prepare_directory(
    path: Path, *, hold_directories: bool = False, mount_table: Path = MOUNT_TABLE
) -> LocalDisk:
    """Open the directory as a disk; create it and its parents durably if they are missing.

    Raises DirectoryUnusable: not a directory, not writable, on a network file system.
    """
    full = path.expanduser().resolve()
    try:
        make_durably(full)
    except OSError as error:
        raise DirectoryUnusable(
            f"cannot create the directory: {error.strerror}", path=str(full)
        ) from error
    if not os.access(full, os.W_OK | os.X_OK | os.R_OK):
        raise DirectoryUnusable("the directory is not writable", path=str(full))
    mount = mount_at(full, mount_table)
    if mount is not None and is_network(mount.kind):
        raise DirectoryUnusable(
            "the directory lies on a network file system", path=str(full), file_system=mount.kind
        )
    return LocalDisk(full, hold_directories=hold_directories)


def make_durably(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents durably. Repeatable.

    `mode`: the mode of the directory itself if this call creates it. The call also syncs the name
    of an existing directory, because its creator may have died before the sync. Raises OSError.
    """
    missing = [part for part in directory.parents if not part.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=mode, exist_ok=True)
    for made in (directory, *missing):
        _sync_directory(made.parent)


def write_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file atomically and durably, with its name.

    A reader, also after a loss of power, finds the old content or the new. Raises OSError; then the
    old content may remain.
    """
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)  # A process that died may have left it, with other rights.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    draft.replace(path)
    _sync_directory(path.parent)


class DirectoryLock:
    """An advisory lock on a directory; one process at a time holds it."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def fd(self) -> int | None:
        """The descriptor of the lock, for a child process that shares it; None if the lock is not
        held."""
        return self._fd

    def release(self) -> None:
        """Release the lock. Repeatable. After a crash the operating system releases it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def lock_directory(root: Path, *, take_over: bool = False) -> DirectoryLock:
    """Lock the directory for this process.

    `take_over`: continue if another process holds the lock; the journal's fence then decides.
    Raises DirectoryInUse, which names the holder.
    """
    path = root / LOCK_FILE
    with _Named("lock", str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            if take_over:
                return DirectoryLock(None)
            raise DirectoryInUse(
                "another process uses the directory", path=str(root), pid=holder
            ) from None
        _write_holder(fd)
    return DirectoryLock(fd)


def _write_holder(fd: int) -> None:
    """Write the holder's process id, for people; a full disk is not an error."""
    text = f"{os.getpid()}\n".encode()
    try:
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
