"""Ports to disks and to tier 2. Each has a conformance suite that every adapter passes.

    Disk, DiskFile    blocking file operations; the simulated disk implements them too
    ChunkStorage      tier 2 objects: create-only, never changed

Errors of the operating system surface as `DiskFailed` (writes, syncs) or OSError (the rest).
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """An open file; every call blocks. Writes are visible at once, durable only when synced."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers in order from `offset` on; not durable."""
        ...

    def write_synced(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Like `write`, and durable on return (data, and size if it grew)."""
        ...

    def sync(self) -> None:
        """Make all earlier writes to this file durable (fdatasync)."""
        ...

    def read_stored(self, offset: int, length: int) -> bytes:
        """Like `read`, but from the disk: after a failed sync the page cache may show bytes that
        never reached it. Call it after a successful `sync`."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; shorter only at the end of the file."""
        ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A directory tree; paths are relative, ``/``-separated. Names are durable only after
    `sync_directory` of the directory that holds them ("" is the root)."""

    def create(self, path: str, size: int = 0) -> DiskFile:
        """Create a new file of `size` zero bytes, opened; nothing synced. The space is allocated.

        Raises ObjectExists; NoRoom, and there is no file.
        """
        ...

    def open(self, path: str) -> DiskFile:
        """Open an existing file for reading and writing. Raises ObjectNotFound."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str = "") -> Sequence[str]:
        """Names in a directory, sorted; empty if the directory does not exist."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; harmless if it exists. Nothing is synced."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name. Raises ObjectExists if `target` is taken."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target`."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str = "") -> None: ...


class ChunkStorage(Protocol):
    """Objects in tier 2. Names: ``[a-z0-9/-.]``, never reused."""

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        """Create an object; durable on return.

        Raises ObjectExists, DiskFailed; SyncFailed if no object can be created any more.
        """
        ...

    async def get(self, name: str) -> bytes:
        """A whole object. Raises ObjectNotFound."""
        ...

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`. Raises ObjectNotFound, CorruptChunk if shorter."""
        ...

    async def size(self, name: str) -> int:
        """The size of an object in bytes. Raises ObjectNotFound."""
        ...

    async def list(self, prefix: str) -> Sequence[str]:
        """Names that start with `prefix`, sorted."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object; harmless if it does not exist."""
        ...
