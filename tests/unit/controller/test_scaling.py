"""Scales cover the keys exactly, whatever the number of segments, and ids never come twice."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.contracts.commands import NewRange, ScaleStream, UpdateStream
from anabranch.common.errors import Busy, InvalidRanges
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import number_of
from anabranch.common.model.stream import (
    SEGMENT_COUNT_MAX,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
    fixed,
)
from anabranch.controller.domain.stream import causes, events, scaling
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand, decide
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from kit.thorough import one_in
from kit.workflow_world import CREATE, REF

AWKWARD_COUNTS = (49, 98, 103, 107, 161, 187)
"""Of these, count × (1 / count) is not 1 in floating point."""
ELASTIC = StreamConfig(ScalingPolicy(ScalingType.EVENT_RATE, 10, 2, 1))


class Life:
    """A stream that does at once whatever is asked of it, its invariants checked at every step."""

    def __init__(self, config: StreamConfig) -> None:
        self.stream = Stream()
        self.revision = 0
        self.command(CREATE.model_copy(update={"config": config}))
        self.store(events.StreamJoinedScope())
        self.store(events.StreamCreated())

    def command(self, command: StreamCommand) -> None:
        at = Circumstances(self.revision + 1, 1, 1, lambda: History(self.stream.epochs))
        self.store(*decide(self.stream, command, at))

    def store(self, *decided: events.StreamEvent) -> None:
        self.revision += 1
        after = STREAM.apply(self.stream, decided)
        STREAM.check(self.stream, after)
        self.stream = after

    def scale(self, command: StreamCommand) -> None:
        self.command(command)
        plan = self.stream.intents[0].scale
        assert plan is not None
        self.store(events.StreamSuccessorsMade())
        self.store(events.StreamScaled(sizes=tuple(1 for _ in plan.sealed)))


def update(config: StreamConfig, number: int) -> UpdateStream:
    return UpdateStream(command_id=f"u{number}", scope=REF.scope, stream=REF.stream, config=config)


def scale(stream: Stream, seal: list[int], ranges: list[tuple[float, float]]) -> ScaleStream:
    return ScaleStream(
        command_id=f"s{stream.stream_epoch}",
        scope=REF.scope,
        stream=REF.stream,
        seal=tuple(stream.segments[index].segment_id for index in seal),
        new_ranges=tuple(NewRange(key_start=low, key_end=high) for low, high in ranges),
    )


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_an_update_leads_from_and_to_any_number_of_segments(count: int) -> None:
    life = Life(fixed(count))
    assert len(life.stream.segments) == count

    for number, wanted in enumerate((1, count, 3, count)):
        life.scale(update(fixed(wanted), number))

        assert len(life.stream.segments) == wanted
        assert [s.keys for s in life.stream.segments] == even_ranges(wanted)


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_a_scale_by_hand_leads_back_from_any_number_of_segments(count: int) -> None:
    life = Life(ELASTIC)
    parts = [(keys.start, keys.end) for keys in even_ranges(count)]

    life.scale(scale(life.stream, [0], parts))
    life.scale(scale(life.stream, list(range(count)), [(0.0, 1.0)]))

    assert len(life.stream.segments) == 1


def test_what_misses_the_last_key_by_a_rounding_error_is_refused() -> None:
    life = Life(ELASTIC)

    with pytest.raises(InvalidRanges):
        life.command(scale(life.stream, [0], [(0.0, 0.5), (0.5, 49 * (1 / 49))]))


def test_a_stream_of_most_segments_can_be_replaced_whole() -> None:
    life = Life(ELASTIC)
    parts = [(keys.start, keys.end) for keys in even_ranges(SEGMENT_COUNT_MAX)]
    life.scale(scale(life.stream, [0], parts))

    life.scale(scale(life.stream, list(range(SEGMENT_COUNT_MAX)), parts))

    assert len(life.stream.segments) == SEGMENT_COUNT_MAX


@given(st.data())
@settings(max_examples=60 // one_in(4))
def test_no_number_is_used_twice_in_any_life(data: st.DataObject) -> None:
    life = Life(ELASTIC)
    used = [number_of(s.segment_id) for s in life.stream.segments]
    for _ in range(data.draw(st.integers(1, 8))):
        segments = life.stream.segments
        first = data.draw(st.integers(0, len(segments) - 1))
        last = data.draw(st.integers(first, min(first + 3, len(segments) - 1)))
        low, high = segments[first].keys.start, segments[last].keys.end
        inner = data.draw(st.sets(st.sampled_from([0.25, 0.5, 0.625]), max_size=3))
        bounds = [low, *(low + (high - low) * part for part in sorted(inner)), high]
        ranges = list(itertools.pairwise(bounds))
        life.scale(
            scale(life.stream, list(range(first, last + 1)), data.draw(st.permutations(ranges)))
        )
        used += [number_of(s.segment_id) for s in life.stream.epochs[-1].created]

    assert len(set(used)) == len(used)
    assert [record.stream_epoch for record in life.stream.epochs] == list(
        range(len(life.stream.epochs))
    )


def test_an_update_that_a_pending_scale_would_undercut_has_to_wait() -> None:
    life = Life(ELASTIC)
    life.scale(scale(life.stream, [0], [(0.0, 0.5), (0.5, 1.0)]))
    merge = scale(life.stream, [0, 1], [(0.0, 1.0)])
    life.command(merge)
    two = StreamConfig(ScalingPolicy(ScalingType.EVENT_RATE, 10, 2, 2))

    life.command(update(two, 1))

    assert life.stream.config == ELASTIC
    life.store(events.StreamSuccessorsMade())
    life.store(events.StreamScaled(sizes=(1, 1)))
    assert next_step(life.stream) is StreamStep.APPLY_UPDATE
    plan = scaling.evened(life.stream, two)
    life.store(events.StreamUpdateApplied(**plan._asdict()))
    assert (life.stream.config, scaling.count_after_scale(life.stream)) == (two, 2)
    assert [intent.commands for intent in life.stream.intents] == [(update(two, 1).command_id,)]
    with pytest.raises(Busy):
        life.command(merge.model_copy(update={"command_id": "other"}))


# --- causes -------------------------------------------------------------------------------------


def test_a_scale_keeps_the_cause_that_its_command_names() -> None:
    life = Life(ELASTIC)
    halves, whole = [(0.0, 0.5), (0.5, 1.0)], [(0.0, 1.0)]
    why = causes.detailed(causes.AUTO_SPLIT, "segment 0 with 30 events/s")
    life.scale(scale(life.stream, [0], halves).model_copy(update={"cause": why}))
    life.scale(scale(life.stream, [0, 1], whole))
    assert [record.cause for record in life.stream.epochs] == [
        "create", "auto-split: segment 0 with 30 events/s", "manual",
    ]  # fmt: skip
    kept = STREAM.states.validate_json(STREAM.encode_state(life.stream))
    assert kept.epochs == life.stream.epochs


def test_details_of_a_cause_are_bounded_because_they_are_kept_for_ever() -> None:
    cause = causes.detailed(causes.AUTO_MERGE, "segments " + ", ".join(map(str, range(999))))
    assert len(cause) == causes.DETAILED_LENGTH_MAX
    assert cause.startswith("auto-merge: segments 0, 1, ")
    assert cause.endswith("…")
