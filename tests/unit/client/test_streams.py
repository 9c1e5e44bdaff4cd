"""Administration of streams by the client, against a controller in memory."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client import Client, KeyRange, Position, ScalingPolicy, StreamConfig
from anabranch.client.admin.reshaping import merge, split
from anabranch.client.cuts import offsets_of, stream_cut
from anabranch.common.contracts.commands import (
    NewRange,
    OperationState,
    ScaleStream,
    TruncateStream,
)
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import (
    CutRefused,
    InvalidCut,
    InvalidName,
    InvalidRanges,
    InvalidRequest,
    OperationNotFound,
    OutcomeUnknown,
    ScaleRefused,
    StreamNotFound,
    Unavailable,
)
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import StreamState, fixed
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.fake_admin import AdminController
from kit.fake_control_plane import FakeControlPlane

STREAM = "plant/sensors"


@dataclass
class World:
    controller: AdminController
    control: FakeControlPlane
    client: Client

    def commands(self) -> list[object]:
        return list(self.controller.commanded.values())


@asynccontextmanager
async def world(segment_count: int = 2) -> AsyncIterator[World]:
    controller = AdminController()
    control = FakeControlPlane(controller)
    client = Client(control, clock=SystemClock(), ids=SeededIds(1), rng=system_rng())
    await client.scopes.create("plant")
    await client.streams.create(STREAM, fixed(segment_count))
    yield World(controller, control, client)
    await client.close()


async def test_a_split_and_a_merge_leave_the_keys_as_they_were() -> None:
    async with world() as w:
        streams = w.client.streams
        done = await streams.split_segment(STREAM, 0, 2)
        present = await streams.current_segments(STREAM)
        new = [s.segment_id for s in present.segments[:2]]
        await streams.merge_segments(STREAM, new[::-1])
        merged = await streams.current_segments(STREAM)
        followed = await streams.successors(STREAM, 0)
        described = await streams.describe_segment(STREAM, new[0])
        epochs = [epoch async for epoch in streams.epochs(STREAM)]
        events = [event async for event in streams.scaling_events(STREAM, 0, 2**62)]
        checked = await streams.check_scale(STREAM, 1)

    assert done.state is OperationState.SUCCEEDED
    assert [(s.key_start, s.key_end) for s in present.segments] == [
        (0, 0.25),
        (0.25, 0.5),
        (0.5, 1),
    ]
    assert [(s.key_start, s.key_end) for s in merged.segments] == [(0, 0.5), (0.5, 1)]
    assert [s.segment_id for s in followed.successors] == new
    assert (described.state, described.sealed_epoch) == ("sealed", 2)
    assert [(e.stream_epoch, e.splits, e.merges) for e in epochs] == [
        (2, 0, 1),
        (1, 1, 0),
        (0, 0, 0),
    ]
    assert [len(event.segments) for event in events] == [2, 3, 2]
    assert checked.status == "done"


async def test_a_stream_is_created_with_a_number_of_segments_or_with_a_configuration() -> None:
    async with world() as w:
        streams = w.client.streams
        await streams.create("plant/four", segments=4)
        await streams.create("plant/one")
        for segments in (0, 2):
            with pytest.raises(InvalidRequest):
                await streams.create("plant/none", fixed(2), segments=segments)
        with pytest.raises(InvalidRequest):
            await streams.create("plant/none", segments=0)
        counts = [
            (await streams.describe(f"plant/{name}")).segment_count for name in ("four", "one")
        ]
        names = [name async for name in streams.list("plant")]

    assert counts == [4, 1]
    assert names == ["four", "one", "sensors"]


async def test_a_scale_says_exactly_what_was_asked_for() -> None:
    async with world() as w:
        ranges = (KeyRange(0.0, 0.1), (0.1, 0.5))
        await w.client.streams.scale(STREAM, [0], ranges, expected_epoch=0, command_id="mine")
        scale = w.controller.commanded["mine"]

    assert isinstance(scale, ScaleStream)
    assert (scale.seal, scale.expected_epoch) == ((0,), 0)
    assert [(r.key_start, r.key_end) for r in scale.new_ranges] == [(0.0, 0.1), (0.1, 0.5)]


async def test_what_cannot_be_scaled_is_refused_by_name() -> None:
    async with world(segment_count=3) as w:
        streams = w.client.streams
        for wrong, error in (
            (streams.split_segment(STREAM, 9), ScaleRefused),
            (streams.split_segment(STREAM, 0, 1), InvalidRequest),
            (streams.split_segment(STREAM, 0, 1001), InvalidRequest),
            (streams.merge_segments(STREAM, [0, 2]), InvalidRanges),
            (streams.merge_segments(STREAM, [0, 0]), InvalidRequest),
            (streams.merge_segments(STREAM, [0]), InvalidRequest),
            (streams.scale(STREAM, [], [(0, 1)]), InvalidRequest),
            (streams.scale(STREAM, [0], []), InvalidRequest),
            (streams.scale(STREAM, [0], [(0.5, 0.1)]), InvalidRanges),
            (streams.scale(STREAM, [0], [(0, float("nan"))]), InvalidRanges),
            (streams.scale("no slash", [0], [(0, 1)]), InvalidName),
            (streams.seal(STREAM, command_id="with space"), InvalidRequest),
            (streams.seal(STREAM, command_id=""), InvalidRequest),
        ):
            with pytest.raises(error):
                await wrong
        assert len(w.commands()) == 2


async def test_a_stream_is_truncated_at_offsets_a_cut_or_a_readers_positions() -> None:
    async with world() as w:
        streams = w.client.streams
        tail = await streams.tail_cut(STREAM)
        positions = {f"{STREAM}/{number}.#epoch.0": Position(50, 3) for number in (1, 0)}
        for cut in ({1: 5, 0: 5}, positions, tail):
            await streams.truncate(STREAM, cut)
        head = await streams.head_cut(STREAM)
        cuts = [c.cut for c in w.commands() if isinstance(c, TruncateStream)]
        order = await streams.compare_cuts(STREAM, {0: 0, 1: 0}, tail)
        verdict = await streams.check_cut(STREAM, {0: 0})
        runs = [run async for run in streams.segments_between(STREAM, end=tail)]
        with pytest.raises(CutRefused):
            await streams.truncate(STREAM, {0: 0, 1: 0})
        with pytest.raises(InvalidRequest):
            await streams.truncate(STREAM, {})

    assert [[(o.segment_id, o.offset) for o in cut] for cut in cuts] == [
        [(0, 5), (1, 5)],
        [(0, 50), (1, 50)],
        [(0, 100), (1, 100)],
    ]
    assert offsets_of(head) == {0: 100, 1: 100}
    assert order.order == "before"
    assert not verdict.valid
    assert [(run.segment_id, run.start_offset) for run in runs] == [(0, 100), (1, 100)]


async def test_a_configuration_is_read_back_and_streams_are_found_by_their_tags() -> None:
    config = StreamConfig(ScalingPolicy(min_segments=2), tags=("wet",))
    async with world() as w:
        streams = w.client.streams
        await streams.update(STREAM, config)
        await streams.create("plant/other")
        read = await streams.config(STREAM)
        wet = [name async for name in streams.list("plant", tag="wet")]
        every = [name async for name in w.client.streams.list("plant")]
        described = [d async for d in streams.describe_all("plant")]
        await w.client.scopes.delete("plant", recursive=True)
        with pytest.raises(StreamNotFound):
            await streams.config(STREAM)

    assert read == config
    assert (wet, every) == (["sensors"], ["other", "sensors"])
    assert [(d.stream, d.segment_count) for d in described] == [("other", 1), ("sensors", 2)]


async def test_a_command_that_is_not_waited_for_gives_the_handle_of_its_operation() -> None:
    async with world() as w:
        w.controller.held = {"seal_stream"}
        handle = await w.client.streams.seal(STREAM, wait=False)
        found = await w.client.operations.describe(handle)
        with pytest.raises(OutcomeUnknown) as late:
            await w.client.operations.wait(handle, timeout_s=0.01)
        running = [o.operation async for o in w.client.operations.list("running")]
        w.controller.release()
        ended = await w.client.operations.wait(handle.operation_id)
        state = (await w.client.streams.describe(STREAM)).state

    assert handle.state is OperationState.RUNNING
    assert (found.state, found.kind, found.stream) == ("running", "seal", "sensors")
    assert late.value.fields["operation"] == handle.operation_id
    assert running == [handle.operation_id]
    assert (ended.state, state) == ("succeeded", StreamState.SEALED)


async def test_a_command_that_does_not_end_in_time_names_its_operation() -> None:
    async with world() as w:
        w.controller.held = {"seal_stream"}
        with pytest.raises(OutcomeUnknown) as late:
            await w.client.streams.seal(STREAM, command_id="mine")
    assert late.value.fields["operation"] == "mine"


async def test_the_failure_of_an_operation_is_raised_to_whoever_waits_for_it() -> None:
    async with world() as w:
        w.controller.held = {"seal_stream"}
        handle = await w.client.streams.seal(STREAM, wait=False)
        w.controller.failing = StreamNotFound("it went")
        w.controller.release()
        with pytest.raises(StreamNotFound, match="it went"):
            await w.client.operations.wait(handle)
        with pytest.raises(OperationNotFound):
            await w.client.operations.wait("unknown")


async def test_waiting_for_an_operation_outlives_a_controller_that_is_away_for_a_while() -> None:
    async with world() as w:
        handle = await w.client.streams.seal(STREAM)
        answers = itertools.count()

        def away_at_first(name: str) -> None:
            if next(answers) < 2:
                raise Unavailable("no controller answers")

        w.control.before_query = away_at_first
        assert (await w.client.operations.wait(handle)).state == "succeeded"

        def away(name: str) -> None:
            raise Unavailable("no controller answers")

        w.control.before_query = away
        with pytest.raises(Unavailable):
            await w.client.operations.wait(handle, timeout_s=0.01)


def _present(bounds: list[float]) -> list[SegmentInStream]:
    return [
        SegmentInStream(segment_id=number, name=str(number), key_start=low, key_end=high)
        for number, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


keys = st.floats(0, 1, exclude_min=True, exclude_max=True)


@given(st.sets(keys, max_size=6), st.integers(2, 1000), st.data())
def test_a_split_covers_the_segment_exactly_or_is_refused(
    inner: set[float], parts: int, data: st.DataObject
) -> None:
    present = _present([0.0, *sorted(inner), 1.0])
    segment = data.draw(st.sampled_from(present))
    try:
        seal, ranges = split(present, segment.segment_id, parts)
    except InvalidRequest:
        assert segment.key_end - segment.key_start < 1e-9
        return
    assert seal == (segment.segment_id,)
    assert len(ranges) == parts
    assert (ranges[0].key_start, ranges[-1].key_end) == (segment.key_start, segment.key_end)
    assert all(keys.key_start < keys.key_end for keys in ranges)
    assert all(a.key_end == b.key_start for a, b in itertools.pairwise(ranges))


@given(st.sets(keys, min_size=1, max_size=6), st.data())
def test_neighbours_are_merged_whatever_their_order(inner: set[float], data: st.DataObject) -> None:
    present = _present([0.0, *sorted(inner), 1.0])
    first = data.draw(st.integers(0, len(present) - 2))
    last = data.draw(st.integers(first + 1, len(present) - 1))
    chosen = data.draw(st.permutations(range(first, last + 1)))
    whole = NewRange(key_start=present[first].key_start, key_end=present[last].key_end)
    assert merge(present, chosen) == (tuple(range(first, last + 1)), (whole,))


def test_segments_that_do_not_lie_side_by_side_are_not_merged() -> None:
    with pytest.raises(InvalidRanges) as refused:
        merge(_present([0.0, 0.25, 0.5, 1.0]), [2, 0])
    assert refused.value.fields == {"segment": 0, "other": 2}


def test_positions_in_another_stream_are_no_cut_of_this_one() -> None:
    with pytest.raises(InvalidCut):
        stream_cut(stream_ref(STREAM), {"plant/other/0.#epoch.0": (0, 0)})


def test_a_cut_is_sorted_by_segment() -> None:
    cut = stream_cut(stream_ref(STREAM), {2**32: 1, 0: 2})
    assert [(o.segment_id, o.offset) for o in cut] == [(0, 2), (2**32, 1)]
