"""Looks up in tier 2 what an answer depends on: append boundaries, and the times of appends.
`tiered_events.py` searches for the numbers of events.

Boundaries are found by walking over the blocks' headers, which give their sizes. Extents begin and
end on boundaries. Boundaries and times never change, so a finding stays valid.

Times ascend along a segment, except for appends of transactions, which were written before the
commit that put them here, and after a clock was set back. The search therefore halves the list of
extents, and then checks the extents just before the one that it found.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Around:
    """The boundaries at or around an offset of an extent, and the events before `lower`; relative
    to the extent."""

    lower: int
    higher: int
    event_count: int


async def look_up_boundaries(
    tier_two: TierTwo, place: InTierTwo | TimesInTierTwo, given: Given
) -> Given:
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
    found = await boundaries_around(tier_two, extent, place.offset - extent.start)
    event_count = -1
    if extent.events_before >= 0:
        event_count = extent.events_before + found.event_count
    return TieredBoundaries(
        place.number, extent.start + found.lower, extent.start + found.higher, event_count
    )


async def boundaries_around(tier_two: TierTwo, extent: TieredExtent, wanted: int) -> Around:
    """The boundaries at or around `wanted`: the highest at or below, and the lowest at or above.

    All offsets are relative to the extent. Walks over the blocks from the chunk's last sparse entry
    before `wanted`. If the extent does not hold blocks, only the sparse entries are known.
    """
    entries = ((0, 0), *await tier_two.entry_counts(extent.ref))
    listed = bisect_right(entries, wanted, key=lambda entry: entry[0]) - 1
    at, event_count = entries[listed]
    beyond = at if at == wanted else entries[listed + 1][0]
    window, window_at = b"", 0
    while at < wanted:
        if at + HEADER_SIZE_BYTES > window_at + len(window):
            window_at = at
            window = await _window(tier_two, extent, at)
        try:
            header = parse_header(window, at - window_at)
        except (CorruptBlock, FormatTooNew):
            return Around(at, beyond, event_count)
        if at + header.size > wanted:
            return Around(at, min(at + header.size, extent.ref.length), event_count)
        at += header.size
        event_count += 0 if header.is_part else header.event_count
    return Around(at, at, event_count)


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
