"""A handful of queries asked of a whole controller over a real NATS server."""

import asyncio

import pytest

from anabranch.common.contracts import operation_queries, queries, stream_queries
from anabranch.common.contracts.commands import (
    Accepted,
    CreateScope,
    CreateStream,
    NewRange,
    ScaleStream,
    SealStream,
    TruncateStream,
)
from anabranch.common.errors import OperationNotFound, SegmentNotFound, Unavailable
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import ScalingPolicy, SegmentOffset, StreamConfig
from kit.controller_caller import DEADLINE_S, Caller, StartController
from kit.fake_stores import FakeSegmentStores

FIRST = segment_id(0, 0)
SCALE = ScaleStream(
    command_id="scale",
    scope="s",
    stream="x",
    seal=(FIRST,),
    new_ranges=(NewRange(key_start=0, key_end=0.5), NewRange(key_start=0.5, key_end=1)),
)


async def created(caller: Caller, *tags: str) -> None:
    """The stream s/x of one segment."""
    await caller.perform(CreateScope(command_id="scope", scope="s"))
    config = StreamConfig(ScalingPolicy(min_segments=1), tags=tags)
    await caller.perform(CreateStream(command_id="create", scope="s", stream="x", config=config))


async def test_a_scaled_stream_tells_its_segments_cuts_and_epochs(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await created(caller)
        await caller.perform(SCALE)
        after = await caller.ask(
            "successors",
            stream_queries.Successors(scope="s", stream="x", segment_id=FIRST),
            stream_queries.SuccessorsFound,
        )
        low, high = (s.segment_id for s in after.successors)
        stores.segments["s/x/1.#epoch.1"].length = 7
        tail = await caller.ask(
            "tail_cut", stream_queries.TailCut(scope="s", stream="x"), stream_queries.CutFound
        )
        await caller.perform(
            TruncateStream(
                command_id="truncate",
                scope="s",
                stream="x",
                cut=(SegmentOffset(SegmentId(low), 5), SegmentOffset(SegmentId(high), 0)),
            )
        )
        head = await caller.ask(
            "head_cut", stream_queries.HeadCut(scope="s", stream="x"), stream_queries.CutFound
        )
        first = await caller.ask(
            "describe_segment",
            stream_queries.DescribeSegment(scope="s", stream="x", segment_id=FIRST),
            stream_queries.SegmentDescription,
        )
        epochs = await caller.ask(
            "list_epochs",
            stream_queries.ListEpochs(scope="s", stream="x"),
            stream_queries.EpochList,
        )
        with pytest.raises(SegmentNotFound):
            await caller.ask(
                "successors",
                stream_queries.Successors(scope="s", stream="x", segment_id=segment_id(7, 7)),
                stream_queries.SuccessorsFound,
            )

    assert (after.status, after.successors[0].predecessors) == ("followed", (FIRST,))
    assert [(s.segment_id, s.offset) for s in tail.segments] == [(low, 7), (high, 100)]
    assert [(s.segment_id, s.offset) for s in head.segments] == [(low, 5), (high, 0)]
    assert (first.state, first.size) == ("deleted", 100)
    assert [e.splits for e in epochs.epochs] == [1, 0]


async def test_a_scope_s_streams_are_listed_by_tag_with_their_descriptions(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await created(caller, "red")
        await caller.perform(CreateStream(command_id="other", scope="s", stream="y"))
        found = await caller.ask(
            "list_streams",
            queries.ListStreams(scope="s", tag="red", details=True),
            queries.StreamList,
        )
    assert found.streams == ("x",)
    assert found.descriptions is not None
    assert found.descriptions[0].config is not None
    assert found.descriptions[0].config.tags == ("red",)


async def test_what_is_stuck_says_why_until_it_goes_on(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await created(caller)
        stores.down = True
        accepted = await caller.send(SealStream(command_id="seal", scope="s", stream="x"))
        assert isinstance(accepted, Accepted)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await caller.ask(
                    "list_work", operation_queries.ListWork(), operation_queries.WorkList
                )
                if found.work and found.work[0].last_error is not None:
                    break
                await asyncio.sleep(0.02)
        operation = await caller.ask(
            "operation", queries.GetOperation(operation="seal"), queries.OperationFound
        )
        stores.down = False
        await caller.outcome(SealStream(command_id="seal", scope="s", stream="x"), accepted)
        at_rest = await caller.ask(
            "list_work", operation_queries.ListWork(), operation_queries.WorkList
        )
        ended = await caller.ask(
            "list_operations", operation_queries.ListOperations(), operation_queries.OperationList
        )
        with pytest.raises(OperationNotFound):
            await caller.ask(
                "operation", queries.GetOperation(operation="never"), queries.OperationFound
            )

    (work,) = found.work
    assert (work.scope, work.stream, work.kind, work.step) == ("s", "x", "seal", "seal_segments")
    assert work.last_error is not None
    assert isinstance(work.last_error.to_error(), Unavailable)
    assert (work.operations, work.attempts > 0) == (("seal",), True)
    assert (operation.state, operation.kind, operation.step) == ("running", "seal", "seal_segments")
    assert operation.last_error is not None
    assert at_rest.work == ()
    assert {o.operation: o.state for o in ended.operations} == {
        "scope": "succeeded",
        "create": "succeeded",
        "seal": "succeeded",
    }
