"""Writing one chunk of a flush plan: fetch its pieces, checksum them, create the object.

`fetch` is asked for at most 2 MiB at a time and lets others go on after each, so what is done with
the bytes in one piece is bounded as well. One chunk's bytes are held at a time.
"""

from collections.abc import AsyncIterator, Sequence

from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.state import ChunkRef, TieredExtent
from anabranch.segstore.domain.storage.plan import PlannedChunk, PlannedPiece
from anabranch.segstore.ports import FetchRange
from anabranch.segstore.shell.tiering.put import NewObjects

FETCH_BYTES_MAX = 2 * 1024 * 1024


async def write_chunk(
    objects: NewObjects, planned: PlannedChunk, fetch: FetchRange
) -> list[tuple[int, TieredExtent]]:
    """Create one chunk; its extents by segment number, in the plan's order.

    Raises DiskFailed, Unavailable, and what `fetch` raises: nothing refers to the chunk then.
    """
    parts: list[bytes] = []
    pieces: list[chunks.Piece] = []
    blocks = chunks.BlockCrcs()
    offset = 0
    for plan in planned:
        crc = 0
        async for part in _fetched(plan, fetch):
            crc = chunks.crc_of([part], crc)
            blocks.add(part)
            parts.append(part)
        pieces.append(_piece(plan, offset, crc))
        offset += plan.size
    crcs = blocks.end()

    def contents(name: str) -> Sequence[Buffer]:
        footer = chunks.ChunkFooter(name, offset, tuple(pieces), crcs)
        return [*parts, chunks.encode_footer(footer)]

    name = await objects.put(contents)
    return [
        (
            piece.segment_number,
            TieredExtent(piece.start, ChunkRef(name, piece.offset, piece.length, piece.crc)),
        )
        for piece in pieces
    ]


async def _fetched(plan: PlannedPiece, fetch: FetchRange) -> AsyncIterator[bytes]:
    for start in range(plan.start, plan.end, FETCH_BYTES_MAX):
        length = min(FETCH_BYTES_MAX, plan.end - start)
        part = await fetch(plan.segment_number, start, length)
        assert len(part) == length
        yield part


def _piece(plan: PlannedPiece, offset: int, crc: int) -> chunks.Piece:
    return chunks.Piece(
        segment_name=plan.segment_name,
        segment_number=plan.segment_number,
        start=plan.start,
        offset=offset,
        length=plan.size,
        crc=crc,
        entries=plan.entries,
    )
