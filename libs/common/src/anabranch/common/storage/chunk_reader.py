"""Reads the bytes of chunks to which the catalog refers, and verifies all of them.

A whole reference is checked against its own CRC; a part of one is read in whole 64 KiB blocks,
whose CRCs are in the chunk's footer. State owned: a small cache of footers.
"""

from collections import OrderedDict
from collections.abc import Sequence

from anabranch.common.errors import Corrupt, CorruptChunk, ObjectNotFound
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.state import ChunkRef

FOOTER_GUESS_BYTES = 32 * 1024
FOOTERS_CACHED_MAX = 64
GAP_BYTES_MAX = 64 * 1024
"""Fewer bytes between two references of a chunk are read with them and dropped."""
SPAN_BYTES_MAX = 16 * 1024 * 1024
"""The most that one request for several references asks for."""


class ChunkReader:
    """Reads through one storage."""

    def __init__(self, storage: ChunkStorage) -> None:
        self._storage = storage
        self._footers: OrderedDict[str, chunks.ChunkFooter] = OrderedDict()

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` of the reference, verified.

        Raises CorruptChunk, also if the chunk is missing, because a manifest named it.
        """
        assert offset >= 0
        assert length >= 0
        assert offset + length <= ref.length
        if length == 0:
            return b""
        try:
            if length == ref.length:
                return await self._read_whole(ref)
            return await self._read_part(ref, ref.offset + offset, length)
        except ObjectNotFound as error:
            raise CorruptChunk("a chunk that is in use is missing", name=ref.name) from error
        except Corrupt:
            self._footers.pop(ref.name, None)
            raise

    async def read_all(self, refs: Sequence[ChunkRef]) -> list[bytes]:
        """The whole references of one chunk, in their order, verified; neighbours in one request.

        Raises CorruptChunk, also if the chunk is missing.
        """
        found: dict[int, bytes] = {}
        for span in spans_of(refs):
            first, last = (
                refs[span[0]].offset,
                max(refs[at].offset + refs[at].length for at in span),
            )
            try:
                data = await self._storage.get_range(refs[0].name, first, last - first)
            except ObjectNotFound as error:
                raise CorruptChunk(
                    "a chunk that is in use is missing", name=refs[0].name
                ) from error
            for at in span:
                begin = refs[at].offset - first
                found[at] = _checked(refs[at], data[begin : begin + refs[at].length])
        return [found[at] for at in range(len(refs))]

    async def entries(self, ref: ChunkRef) -> tuple[chunks.SparseEntry, ...]:
        """The append boundaries that the chunk lists for the reference; the last one is its end.

        They are relative to the reference, ascending and sparse. Raises CorruptChunk, also if the
        chunk is missing.
        """
        try:
            footer = await self.footer(ref.name)
        except ObjectNotFound as error:
            raise CorruptChunk("a chunk that is in use is missing", name=ref.name) from error
        return chunks.referred_piece(footer, ref).entries

    async def boundaries(self, ref: ChunkRef) -> tuple[int, ...]:
        """The boundaries inside the reference. Raises the errors of `entries`."""
        entries = await self.entries(ref)
        return tuple(entry.offset for entry in entries if 0 < entry.offset < ref.length)

    async def _read_whole(self, ref: ChunkRef) -> bytes:
        return _checked(ref, await self._storage.get_range(ref.name, ref.offset, ref.length))

    async def _read_part(self, ref: ChunkRef, position: int, length: int) -> bytes:
        """Whole 64 KiB blocks around the range, each verified, then the range."""
        footer = await self.footer(ref.name)
        chunks.referred_piece(footer, ref)
        first, end = chunks.block_span(footer, position, length)
        data = await self._storage.get_range(ref.name, first, end - first)
        chunks.check_blocks(footer, first, data)
        return data[position - first : position - first + length]

    async def footer(self, name: str) -> chunks.ChunkFooter:
        """A chunk's footer, verified. Raises ObjectNotFound, CorruptChunk, FormatTooNew."""
        known = self._footers.get(name)
        if known is not None:
            self._footers.move_to_end(name)
            return known
        size = await self._storage.size(name)
        guess = min(size, FOOTER_GUESS_BYTES)
        tail = await self._storage.get_range(name, size - guess, guess)
        needed = chunks.footer_size(tail, name, size)
        if needed > len(tail):
            tail = await self._storage.get_range(name, size - needed, needed)
        footer = chunks.decode_footer(tail, name, size)
        self._footers[name] = footer
        while len(self._footers) > FOOTERS_CACHED_MAX:
            self._footers.popitem(last=False)
        return footer


def spans_of(refs: Sequence[ChunkRef]) -> list[list[int]]:
    """Indexes of references of one chunk, by ascending offset, in groups for one request each."""
    spans: list[list[int]] = []
    first = last = 0
    for at in sorted(range(len(refs)), key=lambda at: refs[at].offset):
        begin, end = refs[at].offset, refs[at].offset + refs[at].length
        if spans and begin - last <= GAP_BYTES_MAX and end - first <= SPAN_BYTES_MAX:
            spans[-1].append(at)
        else:
            spans.append([at])
            first = begin
        last = max(last, end)
    return spans


def _checked(ref: ChunkRef, data: bytes) -> bytes:
    if chunks.crc_of([data]) != ref.crc:
        raise CorruptChunk(
            "the checksum of a chunk's piece does not match", name=ref.name, offset=ref.offset
        )
    return data
