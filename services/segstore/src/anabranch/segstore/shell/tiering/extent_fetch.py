"""Reads back bytes of extents that are to be written once more, verified.

Small extents that lie near each other in one chunk are read with one request, together with the
bytes between them, and the last few such windows are kept. This pays because segments that were
flushed together are usually merged, or rewritten, together. Each small extent is verified against
its own checksum, and parts of large ones against the checksums of the chunk's blocks. State owned:
the windows.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.errors import CorruptChunk, ObjectNotFound, Unavailable
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.state import ChunkRef, TieredExtent
from anabranch.segstore.ports import FetchRange

WINDOW_BYTES_MAX = 4 * 1024 * 1024
WINDOWS_MAX = 8
"""How many windows are kept until the chunk that needs them is written."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes [start, end) of a chunk."""

    name: str
    start: int
    end: int


class ExtentFetch:
    """Implements `ports.FetchRange` for ranges that extents hold, and passes on the others."""

    def __init__(
        self,
        extents: Mapping[int, Sequence[TieredExtent]],
        storage: ChunkStorage,
        reader: ChunkReader,
        otherwise: FetchRange,
    ) -> None:
        """`extents`: by segment number, ascending. `otherwise` fetches what they do not hold."""
        self._extents = extents
        self._starts = {
            number: [extent.start for extent in found] for number, found in extents.items()
        }
        self._storage = storage
        self._reader = reader
        self._otherwise = otherwise
        self._windows = _windows(
            extent.ref
            for found in extents.values()
            for extent in found
            if extent.ref.length <= WINDOW_BYTES_MAX
        )
        self._read: OrderedDict[_Window, bytes] = OrderedDict()

    async def __call__(self, number: int, offset: int, length: int) -> bytes:
        """See `ports.FetchRange`. Raises CorruptChunk, Unavailable, and the errors of
        `otherwise`."""
        extents, starts = self._extents.get(number, ()), self._starts.get(number, [])
        parts: list[bytes] = []
        end = offset + length
        while offset < end:
            at = bisect_right(starts, offset) - 1
            if at >= 0 and offset < starts[at] + extents[at].ref.length:
                skip = offset - starts[at]
                part = await self._part_of(extents[at].ref, skip, end - offset)
            else:
                upto = min(end, starts[at + 1]) if at + 1 < len(starts) else end
                part = await self._otherwise(number, offset, upto - offset)
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _part_of(self, ref: ChunkRef, skip: int, length: int) -> bytes:
        """At most `length` bytes of a reference, without its first `skip`."""
        if ref.length <= WINDOW_BYTES_MAX:
            return (await self._bytes_of(ref))[skip : skip + length]
        try:
            return await self._reader.read(ref, skip, min(length, ref.length - skip))
        except OSError as error:
            raise _unreadable(ref.name, error) from error

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


async def read_footer(reader: ChunkReader, name: str) -> chunks.ChunkFooter:
    """The footer of a chunk in use. Raises CorruptChunk, FormatTooNew, Unavailable."""
    try:
        return await reader.footer(name)
    except ObjectNotFound as error:
        raise _missing(name) from error
    except OSError as error:
        raise _unreadable(name, error) from error


def pieces_of(
    footer: chunks.ChunkFooter, refs: Iterable[ChunkRef]
) -> Mapping[ChunkRef, chunks.Piece]:
    """The pieces of the chunk that the references are, exactly. Raises CorruptChunk."""
    pieces = {(piece.offset, piece.length, piece.crc): piece for piece in footer.pieces}
    found: dict[ChunkRef, chunks.Piece] = {}
    for ref in refs:
        piece = pieces.get((ref.offset, ref.length, ref.crc))
        if piece is None:
            raise CorruptChunk("the chunk holds no such piece", name=footer.name, offset=ref.offset)
        found[ref] = piece
    return found


def _windows(refs: Iterable[ChunkRef]) -> dict[ChunkRef, _Window]:
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
