"""The unit of reading bytes that left the memory: a frame of the journal, or part of a chunk.

Neither ever changes, and neither name is ever reused. The granule itself is therefore the key under
which its bytes are shared and kept, and kept bytes cannot be out of date.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.common.tier2.state import ChunkRef
from anabranch.segstore.ports import LogAddress

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """`size` bytes from `start` of a chunk reference's bytes."""

    ref: ChunkRef
    start: int
    size: int


Granule = LogAddress | ChunkRange

Look = Callable[[Granule], bytes | None]
"""The granule's bytes (a frame's payload), or None if they are not at hand."""


def granule_size(granule: Granule) -> int:
    """Bytes that the granule takes in memory."""
    return granule.payload_size if isinstance(granule, LogAddress) else granule.size


def windows(ref: ChunkRef, start: int, size: int, window: int) -> Iterator[ChunkRange]:
    """The granules, ascending, that hold `size` bytes from `start` of the reference.

    Windows are `window` bytes of the *object*, cut to the reference, so that they end where the
    chunk's checksums do. With 0 it is the range itself, for a read that no other one is expected to
    follow.
    """
    if window == 0:
        yield ChunkRange(ref, start, size)
        return
    at, end = start, start + size
    while at < end:
        number = (ref.offset + at) // window
        first = max(number * window - ref.offset, 0)
        beyond = min((number + 1) * window - ref.offset, ref.length)
        yield ChunkRange(ref, first, beyond - first)
        at = beyond


def part(data: bytes, start: int, end: int) -> Bytes:
    """The bytes [start, end), without a copy if they are most of `data`.

    A small part is copied; otherwise a waiting answer would keep the whole granule in memory.
    """
    if end - start == len(data):
        return data
    view = memoryview(data)[start:end]
    return view if 2 * len(view) >= len(data) else bytes(view)


def joined(parts: list[Bytes]) -> Bytes:
    """The parts as one; a single part is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)
