"""A scope goes with all its streams, whatever they were doing and whoever dies meanwhile."""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import (
    Command,
    CreateScope,
    CreateStream,
    DeleteStream,
    SealStream,
)
from anabranch.common.contracts.place import STREAM, Part
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import Unavailable, WrongExpectedSequence
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.scope.emptying import derived_id, next_command
from anabranch.controller.domain.scope.state import Scope, ScopeStatus, ScopeStep
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCreated,
    StreamCreating,
    StreamJoinedScope,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from anabranch.controller.workflows import delete_scope_recursively
from kit.head_listing import Listing
from kit.workflow_world import (
    CREATE,
    DELETE,
    REF,
    SCALE,
    SCOPE_STEPS,
    SCOPE_SUBJECT,
    SEAL,
    STEPS,
    SUBJECT,
    World,
)

ROUNDS_MAX = 20


async def work_until_gone(world: World) -> Scope:
    """Run the scope's and the streams' workflows, as runners would, until the scope rests."""
    for _ in range(ROUNDS_MAX):
        try:
            return (await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)).state
        except StillWaiting:
            for name in world.listing.names:
                await world.rest(subject=stream_events(StreamRef(REF.scope, name)))
    raise AssertionError("the scope never came to rest")


async def brought_to(world: World, step: StreamStep | None) -> None:
    """A stream just before the step; None: at rest."""
    if step is not None:
        await world.reach(step)
        return
    await world.open_scope()
    await world.command(CREATE)
    await run_to_rest(world.workflow(), SUBJECT)


@pytest.mark.parametrize(
    "step", [None, *(s for s in StreamStep if s is not StreamStep.ARCHIVE_HISTORY)]
)
async def test_a_stream_is_deleted_from_wherever_it_is(step: StreamStep | None) -> None:
    world = World()
    await brought_to(world, step)

    await world.close_scope(recursive=True)
    scope = await work_until_gone(world)

    assert scope.status is ScopeStatus.DELETED
    assert [o.error for o in scope.operations] == [None, None]
    assert (await world.stream()).status is StreamState.DELETED
    assert world.segments.live() == []


async def test_many_streams_are_told_a_bounded_number_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delete_scope_recursively, "POSTED_MAX", 4)
    world = World()
    await world.open_scope()
    world.listing.names = {StreamName(f"x{index}") for index in range(10)}
    for name in world.listing.names:
        await world.command(CreateStream(command_id=f"c-{name}", scope=REF.scope, stream=name))
        await run_to_rest(world.workflow(), stream_events(StreamRef(REF.scope, name)))
    await world.close_scope(recursive=True)

    with pytest.raises(StillWaiting, match="10 streams are left"):
        await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
    assert len(world.queue.posted) == 4
    scope = await work_until_gone(world)

    assert scope.status is ScopeStatus.DELETED
    assert len(world.queue.posted) == 20


async def test_a_command_that_nobody_decides_is_posted_again_under_the_same_id() -> None:
    world = World()
    await brought_to(world, None)
    await world.close_scope(recursive=True)
    world.queue.is_stuck = True
    for _ in range(3):
        with pytest.raises(StillWaiting):
            await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
    assert len({command.command_id for command in world.queue.posted}) == 1
    world.queue.is_stuck = False
    for late in list(world.queue.posted):
        await world.queue.post(late)

    await work_until_gone(world)

    stream = await world.stream()
    assert [o.operation for o in stream.operations].count(world.queue.posted[0].command_id) == 1


async def test_who_sleeps_until_the_scope_has_another_life_tells_none_of_its_streams() -> None:
    world = World()
    await brought_to(world, None)
    await world.close_scope(recursive=True)
    slept = await world.scopes.load(SCOPE_SUBJECT)
    await work_until_gone(world)
    again = CreateScope(command_id="again", scope=REF.scope)
    await world.scope_command(again)
    stream = await world.streams.load(SUBJECT)
    creating = StreamCreating(
        command_id="c2", revision=stream.revision + 1, scope=REF.scope, stream=REF.stream,
        incarnation=2, scope_incarnation=2, at_ms=1,
        segments=(PlannedSegment(segment_id=9, key_start=0.0, key_end=1.0),),
    )  # fmt: skip
    for event in (creating, StreamJoinedScope(), StreamCreated()):
        stream = await world.streams.append(stream, [event])
    told = len(world.queue.posted)

    class Before(Listing):
        """Saw the names before it slept, and looks at the streams now."""

        async def live_parts(
            self, scope: ScopeName, incarnation: int
        ) -> Mapping[Part, Sequence[str]]:
            await super().live_parts(scope, incarnation)
            return {STREAM: [REF.stream]}

    sleeper = replace(
        world.context, streams=Before(world.streams, world.groups, names=[REF.stream])
    )
    with pytest.raises(StillWaiting):
        await SCOPE_STEPS[ScopeStep.DELETE_STREAMS](sleeper, slept)

    assert world.queue.posted[told:] == []
    assert (await world.stream()).status is StreamState.ACTIVE


async def test_another_controller_goes_on_after_a_crash_between_any_two_looks() -> None:
    for crashes in range(4):
        world = World()
        await brought_to(world, StreamStep.MAKE_SUCCESSORS)
        await world.close_scope(recursive=True)
        for _ in range(crashes):
            loaded = await world.scopes.load(SCOPE_SUBJECT)
            with pytest.raises(StillWaiting):
                await SCOPE_STEPS[ScopeStep.DELETE_STREAMS](world.context, loaded)
            loaded_stream = await world.streams.load(SUBJECT)
            due = next_step(loaded_stream.state)
            if due is not None:
                await STEPS[due](world.context, loaded_stream)
        world.context = world.controller(world.segments)

        scope = await work_until_gone(world)

        assert scope.status is ScopeStatus.DELETED
        assert world.segments.live() == []


async def test_a_queue_that_fails_fails_the_step_and_the_rest_follows() -> None:
    world = World()
    await brought_to(world, None)
    await world.close_scope(recursive=True)
    plain = world.queue.post

    async def fail(command: Command) -> None:
        raise Unavailable("the queue does not answer", command=command.kind)

    world.queue.post = fail  # type: ignore[method-assign]
    with pytest.raises(StepFailed):
        await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
    world.queue.post = plain  # type: ignore[method-assign]

    assert (await work_until_gone(world)).status is ScopeStatus.DELETED


async def test_a_plain_deletion_becomes_recursive_while_its_look_is_under_way() -> None:
    world = World()
    await brought_to(world, None)
    await world.close_scope("plain")
    plain = await world.scopes.load(SCOPE_SUBJECT)
    reopening = await SCOPE_STEPS[ScopeStep.DELETE_IF_EMPTY](world.context, plain)
    await world.close_scope("recursive", recursive=True)

    with pytest.raises(WrongExpectedSequence):
        await world.scopes.append(plain, [reopening])
    scope = await work_until_gone(world)

    assert scope.status is ScopeStatus.DELETED
    assert {o.operation for o in scope.operations if o.error is None} >= {"plain", "recursive"}


# --- against creations --------------------------------------------------------------------------

Act = Callable[[World], Awaitable[None]]


async def _create(world: World) -> None:
    scope = await world.scope()
    if scope.is_open:
        await world.command(CREATE)


async def _step_stream(world: World) -> None:
    loaded = await world.streams.load(SUBJECT)
    due = next_step(loaded.state)
    if due is not None:
        await world.streams.append(loaded, [await STEPS[due](world.context, loaded)])


async def _delete(world: World) -> None:
    await world.close_scope(recursive=True)


async def _step_scope(world: World) -> None:
    loaded = await world.scopes.load(SCOPE_SUBJECT)
    due = scope_next_step(loaded.state)
    if due is None:
        return
    try:
        event = await SCOPE_STEPS[due](world.context, loaded)
    except StillWaiting:
        return
    await world.scopes.append(loaded, [event])


CREATION, DELETION = [_create, _step_stream, _step_stream], [_delete, _step_scope, _step_scope]
ORDERS = [
    tuple(chosen)
    for chosen in itertools.product([True, False], repeat=6)
    if sum(chosen) == len(CREATION)
]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_stream_that_is_created_meanwhile_fails_or_is_deleted_too(
    order: tuple[bool, ...],
) -> None:
    world = World()
    await world.open_scope()
    creation, deletion = iter(CREATION), iter(DELETION)

    for is_creation in order:
        await next(creation if is_creation else deletion)(world)
    await run_to_rest(world.workflow(), SUBJECT)
    scope = await work_until_gone(world)

    assert scope.status is ScopeStatus.DELETED
    assert (await world.stream()).status in (None, StreamState.DELETED)
    assert world.segments.live() == []


# --- what a stream is told ----------------------------------------------------------------------


async def test_a_stream_is_told_what_it_needs_now_and_nothing_while_it_is_at_it() -> None:
    world = World()
    await world.reach(StreamStep.JOIN_SCOPE)
    kinds: list[str | None] = [told(await world.stream())]
    await run_to_rest(world.workflow(), SUBJECT)
    kinds.append(told(await world.stream()))
    for command in (SCALE, SEAL):
        await world.command(command)
        kinds.append(told(await world.stream()))
    await run_to_rest(world.workflow(), SUBJECT)
    kinds.append(told(await world.stream()))
    await world.command(DELETE)
    kinds.append(told(await world.stream()))
    await run_to_rest(world.workflow(), SUBJECT)
    kinds.append(told(await world.stream()))

    assert kinds == [
        "delete_stream",
        "seal_stream",
        "seal_stream",
        None,
        "delete_stream",
        None,
        None,
    ]


async def test_the_same_name_in_another_life_is_told_under_another_id() -> None:
    world = World()
    await brought_to(world, None)
    stream = await world.stream()

    first, again = next_command("w", stream), next_command("w", stream)
    other_life = next_command("w", replace(stream, incarnation=2))

    assert first == again
    assert first is not None
    assert other_life is not None
    assert first.command_id != other_life.command_id


def told(stream: Stream) -> str | None:
    command = next_command("w", stream)
    assert command is None or isinstance(command, SealStream | DeleteStream)
    assert command is None or command.incarnation == stream.incarnation
    return None if command is None else command.kind


def test_a_derived_id_tells_workflows_steps_and_things_apart() -> None:
    ids = {
        derived_id(*words)
        for words in itertools.product(["w", "v"], ["seal", "delete"], ["s/x/1", "s/x/2", "s/y/1"])
    }

    assert len(ids) == 12
    assert derived_id("w", "seal", "s/x/1") in ids
