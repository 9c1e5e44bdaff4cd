"""The roofline: the same payload bytes written and synced by one process, with nothing around.

One file, preallocated and zero-filled before the clock runs. Every write is one `pwritev` with
`RWF_DSYNC`, as the journal of the segment store does it. How many bytes travel together is a
setting: one block of the client, or as many as a client may have in flight.
"""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.case import MIB, Case
from bench.systems.port import Label

_READ_EVENTS = 1_000


class DiskStream:
    """A file that is written from its start."""

    def __init__(self, descriptor: int, case: Case, frame_bytes: int) -> None:
        self._descriptor = descriptor
        self._event_bytes = case.event_bytes
        self._frame_bytes = frame_bytes
        self._joined = memoryview(b"".join(case.events))
        self._offset = 0

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        frame: list[memoryview] = []
        room = self._frame_bytes
        for _ in batches:  # every batch is the whole pool, which is joined already
            rest = self._joined
            while len(rest) >= room:
                frame.append(rest[:room])
                self._write(frame)
                rest = rest[room:]
                frame, room = [], self._frame_bytes
            if rest:
                frame.append(rest)
                room -= len(rest)
        if frame:
            self._write(frame)

    async def append(self, event: bytes) -> None:
        self._write([event])

    def _write(self, buffers: Sequence[bytes | memoryview]) -> None:
        size = sum(map(len, buffers))
        written = os.pwritev(self._descriptor, buffers, self._offset, os.RWF_DSYNC)
        assert written == size, "the disk is full"
        self._offset += size

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        step, size = self._event_bytes * _READ_EVENTS, self._event_bytes
        for offset in range(0, self._offset, step):
            data = os.pread(self._descriptor, min(step, self._offset - offset), offset)
            yield [data[start : start + size] for start in range(0, len(data), size)]


class Disk:
    """The file system under the benchmark's directory."""

    def __init__(self, frame_bytes: int, file_bytes: int) -> None:
        self.label = Label("disk", f"{frame_bytes // 1024} KiB a sync", "D2")
        self._frame_bytes = frame_bytes
        self._file_bytes = file_bytes
        self._descriptor = -1

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        self._descriptor = os.open(directory / "file", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            zeros = bytes(MIB)
            for offset in range(0, self._file_bytes, MIB):
                os.pwrite(self._descriptor, zeros, offset)
            os.fsync(self._descriptor)
            yield
        finally:
            os.close(self._descriptor)

    def pids(self) -> list[int]:
        return []

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[DiskStream]:
        yield DiskStream(self._descriptor, case, self._frame_bytes)
