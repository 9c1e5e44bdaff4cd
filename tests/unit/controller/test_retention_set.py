"""The cuts that a stream records for its retention policy are bounded, and are stored whole."""

from dataclasses import replace
from itertools import pairwise

import pytest

from anabranch.common.eventsourcing.repository import SNAPSHOT_SIZE_BYTES_MAX
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import (
    RetentionPolicy,
    SegmentOffset,
)
from anabranch.controller.domain.policies import recording
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.retention_set import (
    CUT_PLACES_MAX,
    CUTS_MAX,
    CUTS_MIN,
    RecordedCut,
    RetentionSet,
)
from anabranch.controller.domain.stream.state import Stream
from kit.retained_world import AN_HOUR, BY_SIZE, HOUR_MS, Retained


@pytest.fixture
def world() -> Retained:
    return Retained()


def recorded(count: int, segments: int = 1) -> list[RecordedCut]:
    places = [
        tuple(SegmentOffset(segment_id(0, s), n) for s in range(segments)) for n in range(count)
    ]
    return [RecordedCut(1000 * n, 10 * n, place) for n, place in enumerate(places)]


@pytest.mark.parametrize("policy", [AN_HOUR, RetentionPolicy(BY_SIZE, 100)])
@pytest.mark.parametrize(("segments", "most"), [(1, CUTS_MAX), (100, 40), (900, CUTS_MIN)])
def test_recorded_cuts_are_bounded_and_those_that_stay_are_spread(
    policy: RetentionPolicy, segments: int, most: int
) -> None:
    kept: list[RecordedCut] = []
    for one in recorded(200, segments):
        kept.append(one)
        gone = recording.forgotten(policy, kept)
        kept = [known for known in kept if known not in gone]
        assert len(kept) <= most
        assert sum(len(known.cut) for known in kept) <= max(CUT_PLACES_MAX, CUTS_MIN * segments)

    assert (kept[0].at_ms, kept[-1].at_ms) == (0, 199_000)
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(kept)]
    assert max(gaps) <= 4 * 200_000 / len(kept)


def test_the_largest_set_leaves_room_in_a_snapshot() -> None:
    cuts = tuple(recorded(CUTS_MIN, 1000))
    stream = replace(Stream(), retention=RetentionSet(cuts=cuts))

    assert len(STREAM.encode_state(stream)) < SNAPSHOT_SIZE_BYTES_MAX // 2


async def test_what_is_remembered_goes_through_snapshots(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.write(10, 10, 10)
    world.clock.ms += HOUR_MS
    await world.look()
    pending = await world.stream()
    done = (await world.rest()).state

    for stream in (pending, done):
        assert STREAM.states.validate_json(STREAM.encode_state(stream)) == stream
    assert done.retention.releases
