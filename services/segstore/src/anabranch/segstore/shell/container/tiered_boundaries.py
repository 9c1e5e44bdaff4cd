"""Looks up in tier 2 what an answer depends on: append boundaries, and the times of appends.

Boundaries are found by walking over the blocks' headers, which give their sizes. Extents begin and
end on boundaries. Boundaries and times never change, so a finding stays valid.

Times ascend along a segment, except for appends of transactions, which were written before the
commit that put them here, and after a clock was set back. The search therefore halves the list of
extents, and then checks the extents just before the one that it found.
"""

from dataclasses import replace

from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.tier2.state import TieredExtent
from anabranch.common.wire.block import HEADER_SIZE_BYTES, parse_header
from anabranch.segstore.domain.container.circumstances import (
    Given,
    InTierTwo,
    TieredBoundaries,
    TieredTime,
    TimesInTierTwo,
)
from anabranch.segstore.ports import TierTwo

_WINDOW_SIZE_BYTES = 1024 * 1024
_CHECKED_COUNT = 8
"""The extents before a finding that are checked for appends that are young enough already."""


async def look_up(tier_two: TierTwo, place: InTierTwo | TimesInTierTwo, given: Given) -> Given:
    """`given` with the finding that the answer depends on. Raises the errors of `TierTwo.read`."""
    if isinstance(place, InTierTwo):
        return replace(given, tiered=await find_boundaries(tier_two, place))
    return replace(given, tiered_time=await find_time(tier_two, place))


async def find_boundaries(tier_two: TierTwo, place: InTierTwo) -> TieredBoundaries:
    """The boundaries next to the place's offset.

    If the extent's inner boundaries are unknown, these are its ends. Raises the errors of
    `TierTwo.read`.
    """
    extent = place.extent
    lower, higher = await _boundaries(tier_two, extent, place.offset - extent.start)
    return TieredBoundaries(place.number, extent.start + lower, extent.start + higher)


async def _boundaries(tier_two: TierTwo, extent: TieredExtent, wanted: int) -> tuple[int, int]:
    """The boundaries at or around `wanted`: (highest at or below, lowest at or above).

    All offsets are relative to the extent. Walks over the blocks from the chunk's last sparse entry
    before `wanted`. If the extent does not hold blocks, only the sparse entries are known.
    """
    at, beyond = await tier_two.entries_around(extent.ref, wanted)
    window, window_at = b"", 0
    while at < wanted:
        if at + HEADER_SIZE_BYTES > window_at + len(window):
            window_at = at
            window = await _window(tier_two, extent, at)
        try:
            size = parse_header(window, at - window_at).size
        except (CorruptBlock, FormatTooNew):
            return at, beyond
        if at + size > wanted:
            return at, min(at + size, extent.ref.length)
        at += size
    return at, at


async def _window(tier_two: TierTwo, extent: TieredExtent, at: int) -> bytes:
    size = min(_WINDOW_SIZE_BYTES, extent.ref.length - at)
    return await tier_two.read(extent.ref, at, size)


async def find_time(tier_two: TierTwo, place: TimesInTierTwo) -> TieredTime:
    """The boundary before the first append that is young enough, by the entries of the chunks.

    It may lie one entry too early. Raises the errors of `TierTwo.read`.
    """
    extents, time_ms = place.extents, place.time_ms
    youngest: dict[int, int] = {}

    async def is_old(at: int) -> bool:
        if at not in youngest:
            entries = await tier_two.entry_times(extents[at].ref)
            youngest[at] = max(at_ms for _, at_ms in entries)
        return youngest[at] < time_ms

    found = len(extents)
    while True:
        low = 0
        while low < found:
            middle = (low + found) // 2
            if await is_old(middle):
                low = middle + 1
            else:
                found = middle
        for at in range(max(0, found - _CHECKED_COUNT), found):
            if not await is_old(at):
                found = at
                break
        else:
            break
    if found == len(extents):
        return TieredTime(place, None)
    began = 0
    for end, at_ms in await tier_two.entry_times(extents[found].ref):
        if at_ms >= time_ms:
            break
        began = end
    return TieredTime(place, extents[found].start + began)
