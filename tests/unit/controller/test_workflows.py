"""Every workflow step survives a crash before it, a crash after it, and being run twice."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from anabranch.common.contracts.commands import CreateStream
from anabranch.common.contracts.place import STREAM
from anabranch.common.errors import StaleRequest, Unavailable
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.scope.state import Scope, ScopeStatus
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamIntentJoined
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from kit.fed_mirror import mirror_of
from kit.workflow_world import (
    REF,
    SCOPE_STEPS,
    SCOPE_SUBJECT,
    SEAL,
    STEPS,
    SUBJECT,
    World,
)

END = {
    StreamStep.JOIN_SCOPE: (StreamState.ACTIVE, 3),
    StreamStep.CREATE_SEGMENTS: (StreamState.ACTIVE, 3),
    StreamStep.MAKE_SUCCESSORS: (StreamState.ACTIVE, 6),
    StreamStep.SEAL_PREDECESSORS: (StreamState.ACTIVE, 6),
    StreamStep.APPLY_UPDATE: (StreamState.ACTIVE, 10),
    StreamStep.CHECK_CUT: (StreamState.ACTIVE, 3),
    StreamStep.TRUNCATE_SEGMENTS: (StreamState.ACTIVE, 3),
    StreamStep.SEAL_SEGMENTS: (StreamState.SEALED, 3),
    StreamStep.DELETE_SEGMENTS: (StreamState.DELETED, 0),
    StreamStep.START_COMMIT: (StreamState.ACTIVE, 3),
    StreamStep.COMMIT_TRANSACTIONS: (StreamState.ACTIVE, 3),
    StreamStep.MAKE_ROLLED_SEGMENTS: (StreamState.ACTIVE, 12),
    StreamStep.SEAL_BEFORE_ROLL: (StreamState.ACTIVE, 12),
    StreamStep.FINISH_ROLLED: (StreamState.ACTIVE, 12),
    StreamStep.NOTE_ABORTS: (StreamState.ACTIVE, 3),
    StreamStep.END_TRANSACTIONS: (StreamState.SEALED, 3),
    StreamStep.ARCHIVE_OUTCOMES: (StreamState.ACTIVE, 3),
}
WAITING = StreamStep.END_TRANSACTIONS
"""It does its work again and again until others have done theirs."""
NO_REQUESTS = {
    StreamStep.JOIN_SCOPE,
    StreamStep.FINISH_ROLLED,
    StreamStep.NOTE_ABORTS,
    StreamStep.ARCHIVE_OUTCOMES,
}
"""The rest of these workflows asks nothing of the stores."""


async def finish(world: World, step: StreamStep) -> None:
    rested = await world.rest()
    assert (rested.state.status, len(world.segments.live())) == END[step]
    assert rested.state.intents == ()


@pytest.mark.parametrize("step", END)
async def test_a_crash_before_the_step_is_just_a_reload(step: StreamStep) -> None:
    world = World()
    await world.reach(step)

    await finish(world, step)


@pytest.mark.parametrize("step", END)
async def test_a_crash_after_the_work_and_before_its_event_repeats_the_work(
    step: StreamStep,
) -> None:
    world = World()
    loaded = await world.reach(step)
    with suppress(StillWaiting):
        await STEPS[step](world.context, loaded)

    await finish(world, step)


@pytest.mark.parametrize("step", [s for s in END if s is not WAITING])
async def test_the_step_run_twice_ends_in_the_same_event(step: StreamStep) -> None:
    world = World()
    loaded = await world.reach(step)

    first = await STEPS[step](world.context, loaded)
    second = await STEPS[step](world.context, loaded)

    assert first == second


@pytest.mark.parametrize("step", [s for s in END if s not in NO_REQUESTS])
@pytest.mark.parametrize("done", [0, 1, 2])
async def test_a_store_that_fails_in_the_middle_fails_the_step_and_the_rest_follows(
    step: StreamStep, done: int
) -> None:
    world = World()
    await world.reach(step)
    world.segments.fail_after = len(world.segments.requests) + done
    with pytest.raises(StepFailed) as failure:
        await world.rest()
    assert isinstance(failure.value.error, Unavailable)
    world.segments.fail_after, world.segments.down = None, False

    await finish(world, step)


async def test_who_joins_in_the_middle_does_not_change_the_stamp() -> None:
    world = World()
    loaded = await world.reach(StreamStep.CREATE_SEGMENTS)
    await STEPS[StreamStep.CREATE_SEGMENTS](world.context, loaded)
    await world.streams.append(loaded, [StreamIntentJoined(command_id="late")])

    await finish(world, StreamStep.CREATE_SEGMENTS)


async def test_an_overtaken_controller_cannot_bring_segments_back() -> None:
    world = World()
    stale = await world.reach(StreamStep.CREATE_SEGMENTS)
    await finish(world, StreamStep.CREATE_SEGMENTS)
    await world.command(SEAL)
    await finish(world, StreamStep.SEAL_SEGMENTS)

    with pytest.raises(StaleRequest):
        await STEPS[StreamStep.CREATE_SEGMENTS](world.context, stale)


async def test_a_stream_of_a_thousand_segments_is_created_few_at_a_time() -> None:
    world = World()
    await world.open_scope()
    running, most = 0, 0
    plain = world.segments.create_segment

    async def counted(segment: str, stamp: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await plain(segment, stamp)  # type: ignore[arg-type]
        running -= 1

    world.segments.create_segment = counted  # type: ignore[method-assign]
    await world.command(
        CreateStream(command_id="c", scope=REF.scope, stream=REF.stream, segment_count=1000)
    )

    rested = await run_to_rest(world.workflow(), SUBJECT)

    assert rested.state.status is StreamState.ACTIVE
    assert len(world.segments.live()) == 1000
    assert 1 < most <= 32


# --- a scope's deletion against a stream's creation ---------------------------------------------


Act = Callable[[World], Awaitable[None]]


async def _step_stream(world: World) -> None:
    loaded = await world.streams.load(SUBJECT)
    due = next_step(loaded.state)
    if due is not None:
        await world.streams.append(loaded, [await STEPS[due](world.context, loaded)])


async def _step_scope(world: World) -> None:
    loaded = await world.scopes.load(SCOPE_SUBJECT)
    due = scope_next_step(loaded.state)
    if due is not None:
        event = await SCOPE_STEPS[due](world.context, loaded)
        await world.scopes.append(loaded, [event])


async def _create(world: World) -> None:
    scope = (await world.scopes.load(SCOPE_SUBJECT)).state
    if not scope.is_open:
        return
    await world.command(CreateStream(command_id="create", scope=REF.scope, stream=REF.stream))


async def _delete(world: World) -> None:
    await world.close_scope()


def interleavings(left: list[Act], right: list[Act]) -> list[list[Act]]:
    if not left or not right:
        return [left + right]
    return [[left[0], *rest] for rest in interleavings(left[1:], right)] + [
        [right[0], *rest] for rest in interleavings(left, right[1:])
    ]


ORDERS = interleavings([_create, _step_stream, _step_stream], [_delete, _step_scope])


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: "-".join(a.__name__[1:] for a in o))
async def test_creation_and_deletion_never_both_succeed(order: list[Act]) -> None:
    world = World()
    await world.open_scope()

    for act in order:
        await act(world)

    scope, stream = await _both(world)
    if stream.is_live:
        assert scope.status is ScopeStatus.ACTIVE
        assert stream.status is StreamState.ACTIVE
    else:
        assert world.segments.live() == []


def test_all_orders_are_tried() -> None:
    assert len(ORDERS) == 10


async def test_a_creation_decided_on_a_scope_that_closed_since_fails() -> None:
    world = World()
    await world.open_scope()
    await world.close_scope()
    await _step_scope(world)
    await world.command(CreateStream(command_id="create", scope=REF.scope, stream=REF.stream))

    rested = await run_to_rest(world.workflow(), SUBJECT)

    assert rested.state.status is StreamState.DELETED
    failed = rested.state.operations[-1]
    assert failed.error is not None
    assert failed.error.code == "scope-not-found"
    assert world.segments.requests == []


async def _both(world: World) -> tuple[Scope, Stream]:
    scope = (await world.scopes.load(SCOPE_SUBJECT)).state
    return scope, (await world.streams.load(SUBJECT)).state


# --- the mirror as the listing ------------------------------------------------------------------


async def test_the_mirror_lists_what_was_stored_before_the_question() -> None:
    world = World()
    mirror = mirror_of(world.store)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(mirror.serve())
        await world.open_scope()
        await world.command(CreateStream(command_id="c", scope=REF.scope, stream=REF.stream))

        assert (await mirror.live_parts(REF.scope, 1))[STREAM] == ["x"]
        assert not any((await mirror.live_parts(REF.scope, 2)).values())
        found = mirror.stream(StreamRef(REF.scope, REF.stream))
        assert found == await world.streams.load(SUBJECT)
        assert mirror.with_work() == [SUBJECT]
        serving.cancel()
