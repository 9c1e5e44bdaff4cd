"""Writing one chunk of a flush plan: fetch its pieces, checksum them, create the object.

`fetch` is asked for at most 4 MiB at a time, and one chunk's bytes are held at a time.
"""

from collections.abc import Sequence

from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.state import ChunkRef, TieredExtent
from anabranch.segstore.domain.storage.plan import PlannedChunk, PlannedPiece
from anabranch.segstore.ports import FetchRange
from anabranch.segstore.shell.tier2_put import NewObjects

FETCH_BYTES_MAX = 4 * 1024 * 1024


async def write_chunk(
    objects: NewObjects, planned: PlannedChunk, fetch: FetchRange
) -> list[tuple[int, TieredExtent]]:
    """Create one chunk; its extents by segment number, in the plan's order.

    Raises DiskFailed, Unavailable, and what `fetch` raises: nothing refers to the chunk then.
    """
    parts: list[bytes] = []
    pieces: list[chunks.Piece] = []
    offset = 0
    for plan in planned:
        fetched = await _fetch_piece(plan, fetch)
        pieces.append(_piece(plan, offset, chunks.crc_of(fetched)))
        parts += fetched
        offset += plan.size
    name = await _put_chunk(objects, tuple(pieces), parts, offset)
    return [
        (
            piece.segment_number,
            TieredExtent(piece.start, ChunkRef(name, piece.offset, piece.length, piece.crc)),
        )
        for piece in pieces
    ]


async def _put_chunk(
    objects: NewObjects, pieces: tuple[chunks.Piece, ...], parts: list[bytes], data_length: int
) -> str:
    crcs = chunks.block_crcs_of(parts)

    def contents(name: str) -> Sequence[Buffer]:
        footer = chunks.ChunkFooter(name, data_length, pieces, crcs)
        return [*parts, chunks.encode_footer(footer)]

    return await objects.put(contents)


async def _fetch_piece(plan: PlannedPiece, fetch: FetchRange) -> list[bytes]:
    parts: list[bytes] = []
    for start in range(plan.start, plan.end, FETCH_BYTES_MAX):
        length = min(FETCH_BYTES_MAX, plan.end - start)
        part = await fetch(plan.segment_number, start, length)
        assert len(part) == length
        parts.append(part)
    return parts


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
