"""Finds the bytes of a segment in tier 2 that are older than a time, by the footers of chunks.

A footer lists an append boundary about every 64 KiB, with the time of the youngest append since the
boundary before, so a boundary may be found up to 64 KiB too early. The segment stores find times in
bytes that only tier 2 has by the same rule.
"""

from collections.abc import Sequence

from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.tier2.state import TieredExtent

CHECKED_BEFORE = 2
"""Extents before a found one that are looked at again: commits of transactions take in older
appends after younger ones, and halving may miss a young extent between old ones."""


async def older_than(
    reader: ChunkReader, extents: Sequence[TieredExtent], time_ms: int
) -> int | None:
    """The boundary before the first append that is not older than the time; None: all are older.

    Reads the footers of about log2 of the extents. Raises CorruptChunk.
    """
    youngest: dict[int, int] = {}

    async def is_old(place: int) -> bool:
        if place not in youngest:
            entries = await reader.entries(extents[place].ref)
            youngest[place] = max((each.time_ms for each in entries), default=0)
        return youngest[place] < time_ms

    low, high = 0, len(extents)
    while low < high:
        middle = (low + high) // 2
        if await is_old(middle):
            low = middle + 1
        else:
            high = middle
    before = range(max(0, low - CHECKED_BEFORE), low)
    young = [place for place in before if not await is_old(place)]
    place = young[0] if young else low
    if place == len(extents):
        return None
    began = 0
    for entry in await reader.entries(extents[place].ref):
        if entry.time_ms >= time_ms:
            break
        began = entry.offset
    return extents[place].start + began
