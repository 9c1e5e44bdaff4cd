"""Reads back the bytes that a flush gathers: small extents of merged segments.

Extents that lie near each other in one chunk are read with one request, together with the bytes
between them, and the last few such windows are kept. This pays because transactions whose segments
were flushed together are usually merged together. Every extent is verified against its own
checksum.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.common.errors import CorruptChunk, ObjectNotFound, Unavailable
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.state import ChunkRef, TieredExtent
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.storage.gather import Marks, gathered, marks_of, to_gather
from anabranch.segstore.ports import FetchRange

WINDOW_BYTES_MAX = 4 * 1024 * 1024
WINDOWS_MAX = 8
"""How many windows are kept until the flush has written its chunks."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes [start, end) of a chunk."""

    name: str
    start: int
    end: int


class Gathering:
    """A cut that also moves its small adopted extents, and the function that fetches its bytes."""

    def __init__(
        self,
        cut: ContainerCut,
        extents: Mapping[int, Sequence[TieredExtent]],
        storage: ChunkStorage,
        fetch: FetchRange,
    ) -> None:
        """`extents`: the gathered extents by segment number, ascending."""
        self.cut = cut
        self._extents = extents
        self._starts = {
            number: [extent.start for extent in found] for number, found in extents.items()
        }
        self._storage = storage
        self._fetch = fetch
        self._windows = _windows([extent.ref for found in extents.values() for extent in found])
        self._read: OrderedDict[_Window, bytes] = OrderedDict()

    async def fetch(self, number: int, offset: int, length: int) -> bytes:
        """See `ports.FetchRange`. Raises CorruptChunk, Unavailable, and the errors of the
        container's fetch."""
        extents, starts = self._extents.get(number, ()), self._starts.get(number, [])
        parts: list[bytes] = []
        end = offset + length
        while offset < end:
            at = bisect_right(starts, offset) - 1
            if at >= 0 and offset < starts[at] + extents[at].ref.length:
                skip = offset - starts[at]
                part = (await self._bytes_of(extents[at].ref))[skip : skip + end - offset]
            else:
                upto = min(end, starts[at + 1]) if at + 1 < len(starts) else end
                part = await self._fetch(number, offset, upto - offset)
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _bytes_of(self, ref: ChunkRef) -> bytes:
        window = self._windows[ref]
        data = self._read.get(window)
        if data is None:
            data = await self._read_window(window)
            self._read[window] = data
            if len(self._read) > WINDOWS_MAX:
                self._read.popitem(last=False)
        self._read.move_to_end(window)
        at = ref.offset - window.start
        part = data[at : at + ref.length]
        if chunks.crc_of([part]) != ref.crc:
            raise CorruptChunk(
                "the checksum of a chunk's piece does not match", name=ref.name, offset=ref.offset
            )
        return part

    async def _read_window(self, window: _Window) -> bytes:
        size = window.end - window.start
        try:
            return await self._storage.get_range(window.name, window.start, size)
        except ObjectNotFound as error:
            raise _missing(window.name) from error
        except OSError as error:
            raise _unreadable(window.name, error) from error


async def gather(
    cut: ContainerCut,
    fetch: FetchRange,
    *,
    storage: ChunkStorage,
    reader: ChunkReader,
    size_max: int,
) -> Gathering:
    """Add the extents to gather to the cut. Raises CorruptChunk, FormatTooNew, Unavailable."""
    extents = {segment.state.number: to_gather(segment, size_max) for segment in cut.segments}
    extents = {number: found for number, found in extents.items() if found}
    if not extents:
        return Gathering(cut, {}, storage, fetch)
    marks = await _marks([extent for found in extents.values() for extent in found], reader)
    segments = tuple(
        gathered(segment, {extent: marks[extent] for extent in extents[segment.state.number]})
        if segment.state.number in extents
        else segment
        for segment in cut.segments
    )
    return Gathering(replace(cut, segments=segments), extents, storage, fetch)


async def _marks(extents: Sequence[TieredExtent], reader: ChunkReader) -> dict[TieredExtent, Marks]:
    by_chunk: dict[str, list[TieredExtent]] = {}
    for extent in extents:
        by_chunk.setdefault(extent.ref.name, []).append(extent)
    marks: dict[TieredExtent, Marks] = {}
    for name, found in by_chunk.items():
        try:
            footer = await reader.footer(name)
        except ObjectNotFound as error:
            raise _missing(name) from error
        except OSError as error:
            raise _unreadable(name, error) from error
        pieces = {(piece.offset, piece.length, piece.crc): piece for piece in footer.pieces}
        for extent in found:
            ref = extent.ref
            piece = pieces.get((ref.offset, ref.length, ref.crc))
            if piece is None:
                raise CorruptChunk("the chunk holds no such piece", name=name, offset=ref.offset)
            marks[extent] = marks_of(extent, piece.entries)
    return marks


def _windows(refs: Sequence[ChunkRef]) -> dict[ChunkRef, _Window]:
    """The window with which each reference is read."""
    windows: dict[ChunkRef, _Window] = {}
    taken: list[ChunkRef] = []

    def end() -> None:
        if taken:
            last = taken[-1]
            window = _Window(last.name, taken[0].offset, last.offset + last.length)
            windows.update(dict.fromkeys(taken, window))
            taken.clear()

    for ref in sorted(refs, key=lambda ref: (ref.name, ref.offset)):
        if taken and (
            ref.name != taken[0].name
            or ref.offset + ref.length - taken[0].offset > WINDOW_BYTES_MAX
        ):
            end()
        taken.append(ref)
    end()
    return windows


def _unreadable(name: str, error: OSError) -> Unavailable:
    return Unavailable("tier 2 cannot be read", name=name, cause=str(error))


def _missing(name: str) -> CorruptChunk:
    return CorruptChunk("a chunk that is in use is missing", name=name)
