"""A whole controller scales, truncates and archives streams, and deletes scopes recursively."""

import asyncio

import pytest

from anabranch.common.contracts import queries
from anabranch.common.contracts.commands import (
    Accepted,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    NewRange,
    Rejected,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from anabranch.common.errors import CutRefused, InvalidRequest, ScopeExists, ScopeNotFound
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import SegmentOffset, fixed
from kit.controller_caller import Caller, StartController, until
from kit.fake_stores import FakeSegmentStores

COUNT = 400


def scale(caller: Caller, sealed: list[SegmentId], count: int) -> ScaleStream:
    return ScaleStream(
        command_id=caller.new_id(),
        scope="s",
        stream="x",
        seal=tuple(sealed),
        new_ranges=tuple(
            NewRange(key_start=keys.start, key_end=keys.end) for keys in even_ranges(count)
        ),
    )


def truncate(caller: Caller, segments: list[SegmentId], offset: int) -> TruncateStream:
    cut = tuple(SegmentOffset(segment, offset) for segment in sorted(segments))
    return TruncateStream(command_id=caller.new_id(), scope="s", stream="x", cut=cut)


async def test_a_stream_outlives_its_state_and_is_truncated_and_deleted_far_back(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    epochs = [[segment_id(0, number) for number in range(COUNT)]]
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        await caller.perform(
            CreateStream(command_id="c2", scope="s", stream="x", segment_count=COUNT)
        )
        for epoch in (1, 2, 3):
            await caller.perform(scale(caller, epochs[-1], COUNT))
            epochs.append([segment_id(epoch, epoch * COUNT + n) for n in range(COUNT)])

    async with controller():  # one that has never seen the epochs that were archived
        with pytest.raises(InvalidRequest):
            await caller.perform(truncate(caller, epochs[-1], 101))
        assert all(segment.start == 0 for segment in stores.segments.values())
        await caller.perform(truncate(caller, epochs[1], 10))
        assert len(stores.live()) == 3 * COUNT
        with pytest.raises(CutRefused):
            await caller.perform(truncate(caller, epochs[0], 100))
        await caller.perform(
            UpdateStream(command_id=caller.new_id(), scope="s", stream="x", config=fixed(49))
        )
        await caller.perform(SealStream(command_id="c3", scope="s", stream="x"))
        await caller.perform(DeleteStream(command_id="c4", scope="s", stream="x"))

    assert stores.live() == []
    assert len(stores.segments) == 4 * COUNT + 49 + 1, "and the tombstone of its watermarks"


async def test_a_scope_goes_with_all_that_is_in_it(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        async with asyncio.TaskGroup() as group:
            for name in "abcdef":
                create = CreateStream(command_id=f"c-{name}", scope="s", stream=name)
                group.create_task(caller.perform(create))
        await caller.perform(SealStream(command_id="c2", scope="s", stream="a"))
        stores.down = True
        half = await caller.send(CreateStream(command_id="c-x", scope="s", stream="x"))
        assert isinstance(half, Accepted)

        deletion = DeleteScope(command_id="c3", scope="s", recursive=True)
        accepted = await caller.send(deletion)
        assert isinstance(accepted, Accepted)
        refused = await caller.send(CreateScope(command_id="c4", scope="s"))
        late = await caller.send(CreateStream(command_id="c5", scope="s", stream="y"))
        stores.down = False
        await caller.outcome(deletion, accepted)

        assert isinstance(refused, Rejected)
        assert isinstance(refused.error.to_error(), ScopeExists)
        assert isinstance(late, Rejected)
        assert isinstance(late.error.to_error(), ScopeNotFound)
        assert stores.live() == []
        await caller.perform(CreateScope(command_id="c6", scope="s"))
        found = await caller.ask("list_streams", queries.ListStreams(scope="s"), queries.StreamList)
        assert found.streams == ()


async def test_a_creation_that_no_store_performs_can_be_deleted(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller() as lifetime:
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        stores.down = True
        await caller.send(CreateStream(command_id="c2", scope="s", stream="x"))
        deletion = DeleteStream(command_id="c3", scope="s", stream="x")
        accepted = await caller.send(deletion)
        assert isinstance(accepted, Accepted)
        await until(lambda: lifetime.ready)
        stores.down = False
        await caller.outcome(deletion, accepted)

        await caller.perform(CreateStream(command_id="c4", scope="s", stream="x"))
    assert stores.live() == ["s/x/1.#epoch.0"]
