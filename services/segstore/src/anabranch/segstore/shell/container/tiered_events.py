"""Searches tier 2 for the append boundary next to an event's number.

An extent of a topic's segment says how many events lie before it, so a binary search over the
extents in memory finds the right one, and its chunk's footer lists the boundaries in it. The events
of extents without a number are counted by their footers, from the nearest number that is known: of
another extent, of the segment's start, or of its end.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.container.circumstances import (
    EventBoundary,
    EventsInTierTwo,
    Given,
    InTierTwo,
    TieredEvent,
    TimesInTierTwo,
)
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.tiered_boundaries import (
    boundaries_around,
    look_up_boundaries,
)


async def look_up(
    tier_two: TierTwo, place: InTierTwo | TimesInTierTwo | EventsInTierTwo, given: Given
) -> Given:
    """`given` with the finding that the answer depends on. Raises the errors of `TierTwo.read`."""
    if isinstance(place, EventsInTierTwo):
        return replace(given, tiered_event=await find_event(tier_two, place))
    return await look_up_boundaries(tier_two, place, given)


def last_known(extents: Sequence[TieredExtent], event_index: int) -> int:
    """The index of the last extent that is known to have at most so many events before it; -1 if
    there is none."""
    found, low, high = -1, 0, len(extents)
    while low < high:
        middle = at = (low + high) // 2
        while at >= low and extents[at].events_before < 0:
            at -= 1
        if at < low:
            low = middle + 1
        elif extents[at].events_before <= event_index:
            found, low = at, middle + 1
        else:
            high = at
    return found


async def find_event(tier_two: TierTwo, place: EventsInTierTwo) -> TieredEvent:
    """The last listed boundary with at most so many events before it. Raises the errors of
    `TierTwo.read`."""
    extents, wanted = place.extents, place.event_index
    at = last_known(extents, wanted)
    before = extents[at].events_before if at >= 0 else await _before_first(tier_two, place)
    at = max(at, 0)
    if wanted < before:
        count = await _before_start(tier_two, place, before)
        return TieredEvent(place, EventBoundary(place.start, count), count)
    while True:
        extent = extents[at]
        entries = ((0, 0), *await tier_two.entry_counts(extent.ref))
        end, count = entries[-1]
        ended = EventBoundary(extent.start + end, before + count)
        if wanted < ended.event_count or at == len(extents) - 1:
            break
        following = ended.event_count + place.gaps.get(extents[at + 1].start, 0)
        if wanted < following:
            return TieredEvent(place, ended, place.start_event_count)
        at, before = at + 1, following
    listed = bisect_right(entries, wanted - before, key=lambda entry: entry[1]) - 1
    offset, count = entries[listed]
    boundary = EventBoundary(extent.start + offset, before + count)
    start_event_count = place.start_event_count
    if boundary.offset < place.start:
        start_event_count = await _before_start(tier_two, place, before)
    return TieredEvent(place, boundary, start_event_count)


async def _before_first(tier_two: TierTwo, place: EventsInTierTwo) -> int:
    """How many events the segment has before the first extent, counted from the segment's start
    or, if their number is not known, back from the first known number."""
    extents = place.extents
    if place.start_event_count >= 0:
        within = place.start - extents[0].start
        if within <= 0:
            return place.start_event_count + place.gaps.get(extents[0].start, 0)
        found = await boundaries_around(tier_two, extents[0], within)
        return place.start_event_count - found.event_count
    event_count, following = place.event_count, -1
    at = next((at for at, held in enumerate(extents) if held.events_before >= 0), len(extents))
    if at < len(extents):
        event_count, following = extents[at].events_before, extents[at].start
    for extent in reversed(extents[:at]):
        entries = await tier_two.entry_counts(extent.ref)
        event_count -= place.gaps.get(following, 0) + entries[-1][1]
        following = extent.start
    return event_count


async def _before_start(tier_two: TierTwo, place: EventsInTierTwo, before_first: int) -> int:
    """How many events the segment has before its start; `before_first`: before the first extent."""
    first = place.extents[0]
    if place.start_event_count >= 0:
        return place.start_event_count
    if place.start <= first.start:
        return before_first - place.gaps.get(first.start, 0)
    found = await boundaries_around(tier_two, first, place.start - first.start)
    return before_first + found.event_count
