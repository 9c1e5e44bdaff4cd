"""Writes one chunk of a flush plan: fetches its pieces, checksums them, creates the object.

Each call of `fetch` returns at most 2 MiB and lets other tasks run afterwards, so the work on one
part is bounded as well. Only one chunk's bytes are in memory at a time.
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
    """Create one chunk; returns its extents by segment number, in the plan's order.

    Raises DiskFailed, Unavailable, and the errors of `fetch`. No reference to the chunk exists
    then.
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
        (plan.segment_number, _extent(plan, name, piece))
        for plan, piece in zip(planned, pieces, strict=True)
    ]


def _extent(plan: PlannedPiece, name: str, piece: chunks.Piece) -> TieredExtent:
    ref = ChunkRef(name, piece.offset, piece.length, piece.crc)
    return TieredExtent(plan.start, ref, plan.events_before)


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
