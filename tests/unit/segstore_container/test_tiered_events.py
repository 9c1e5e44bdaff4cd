"""The search for an event's number among extents, some of which know their numbers."""

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.tier2.state import ChunkRef, TieredExtent
from anabranch.common.wire.block_encoding import encode_block
from anabranch.segstore.domain.container.circumstances import EventsInTierTwo
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.tiered_events import find_event, last_known
from kit.thorough import one_in

NUMBER = 7


class FakeTierTwo:
    """Holds the blocks of extents, by the name of their object, and lists every second boundary."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[tuple[bytes, int]]] = {}
        self.listed = 0

    async def entry_counts(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        self.listed += 1
        found, end, count = [], 0, 0
        blocks = self.blocks[ref.name]
        for at, (block, events) in enumerate(blocks, 1):
            end, count = end + len(block), count + events
            if at % 2 == 0 or at == len(blocks):
                found.append((end, count))
        return tuple(found)

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        data = b"".join(block for block, _ in self.blocks[ref.name])
        return data[offset : offset + length]


@dataclass
class Drawn:
    """A segment of stretches: extents, of which some know their number, and gaps in memory."""

    tier_two: FakeTierTwo
    place: EventsInTierTwo
    boundaries: list[tuple[int, int]]
    """From the start on."""
    tiered: list[tuple[int, int]]
    """The numbers [from, to) of the events that extents hold."""


stretches = st.lists(
    st.tuples(
        st.sampled_from(["known", "unknown", "gap"]),
        st.lists(st.integers(1, 3), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)


def drawn(
    parts: list[tuple[str, list[int]]], wanted: int, start_at: int, *, start_known: bool
) -> Drawn | None:
    """The event at `wanted`, modulo the kept ones, is wanted. None if no extent is left."""
    tier_two, boundaries = FakeTierTwo(), [(0, 0)]
    extents, gaps, tiered = list[TieredExtent](), dict[int, int](), list[tuple[int, int]]()
    gap = 0
    for kind, counts in parts:
        start, before = boundaries[-1]
        blocks = [
            (encode_block([b"x"] * n, writer_id=bytes(16), first_event_number=1,
                          base_timestamp_ms=0), n)
            for n in counts
        ]  # fmt: skip
        for block, events in blocks:
            end, count = boundaries[-1]
            boundaries.append((end + len(block), count + events))
        if kind == "gap":
            gap += sum(counts)
            continue
        name = f"chunk {len(extents)}"
        tier_two.blocks[name] = blocks
        ref = ChunkRef(name, 0, boundaries[-1][0] - start, 0)
        extents.append(TieredExtent(start, ref, before if kind == "known" else -1))
        tiered.append((before, boundaries[-1][1]))
        if gap:
            gaps[start] = gap
        gap = 0
    begin = boundaries[start_at % (len(boundaries) // 2 + 1)]
    while extents and extents[0].start + extents[0].ref.length <= begin[0]:
        extents, tiered = extents[1:], tiered[1:]
    if not extents or begin[1] >= tiered[-1][1]:
        return None
    wanted = begin[1] + wanted % (tiered[-1][1] - begin[1])
    first = extents[0].start
    gaps = {at: count for at, count in gaps.items() if at >= first}
    if first in gaps:
        before_first = dict(boundaries)[first]
        gaps[first] = max(before_first - max(begin[1], before_first - gaps[first]), 0)
    place = EventsInTierTwo(
        NUMBER, wanted, tuple(extents), gaps, tiered[-1][1],
        begin[0], begin[1] if start_known else -1,
    )  # fmt: skip
    return Drawn(tier_two, place, [found for found in boundaries if found >= begin], tiered)


@given(stretches, st.integers(0, 60), st.integers(0, 30), st.booleans())
@settings(max_examples=400 // one_in(4))
def test_it_is_found_at_a_boundary_before_it_whatever_is_known(
    parts: list[tuple[str, list[int]]], wanted: int, start_at: int, start_known: bool
) -> None:
    story = drawn(parts, wanted, start_at, start_known=start_known)
    if story is None:
        return
    wanted = story.place.event_index
    found = asyncio.run(find_event(cast("TierTwo", story.tier_two), story.place))
    boundary = (found.boundary.offset, found.boundary.event_count)
    if boundary[0] >= story.place.start:
        assert boundary in story.boundaries
        assert boundary[1] <= wanted
    else:
        assert found.start_event_count == story.boundaries[0][1]
    if any(first <= wanted < end for first, end in story.tiered):
        exact = max(held for held in story.boundaries if held[1] <= wanted)
        assert exact[0] - max(boundary[0], story.place.start) <= 120, "one block too early at most"


def test_with_all_numbers_known_one_footer_is_read() -> None:
    parts = [("known", [1, 2, 3])] * 200
    for wanted in (0, 5, 6, 600, 1199):
        story = drawn(parts, wanted, 0, start_known=True)
        assert story is not None
        asyncio.run(find_event(cast("TierTwo", story.tier_two), story.place))
        assert story.tier_two.listed == 1


@pytest.mark.parametrize("size", [0, 1, 2, 7, 40])
def test_the_last_known_extent_is_found_as_by_looking_at_all(size: int) -> None:
    for unknown in range(3):
        extents = [
            TieredExtent(at, ChunkRef("", 0, 1, 0), -1 if at % 3 < unknown else at // 2)
            for at in range(size)
        ]
        for wanted in range(-1, size):
            known = [at for at, held in enumerate(extents) if 0 <= held.events_before <= wanted]
            assert last_known(extents, wanted) == (known[-1] if known else -1)
