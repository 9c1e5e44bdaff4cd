"""Reader groups are created, reset and deleted, whoever dies meanwhile and whatever comes late."""

from contextlib import suppress
from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import Command, CreateStream
from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    RemoveSubscriber,
)
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import StreamNotFound, Unavailable, WrongExpectedSequence
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamName
from anabranch.common.model.reader_group import (
    GroupState,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.domain.scope.state import ScopeStatus
from anabranch.controller.workflows.context import WorkContext
from kit.controlled_groups import (
    CREATE,
    DELETE,
    ROUNDS_MAX,
    GroupWorld,
    X,
    Y,
    config,
)
from kit.workflow_world import (
    GROUP_REF,
    GROUP_STEPS,
    GROUP_SUBJECT,
    REF,
    SCOPE_SUBJECT,
    STATE_SUBJECT,
)

END = {
    GroupStep.JOIN_SCOPE: (GroupState.ACTIVE, 0, 3, {"s/x": [0], "s/y": [0]}),
    GroupStep.MAKE_STATE_STREAM: (GroupState.ACTIVE, 0, 3, {"s/x": [0], "s/y": [0]}),
    GroupStep.SUBSCRIBE: (GroupState.ACTIVE, 0, 3, {"s/x": [0], "s/y": [0]}),
    GroupStep.RESUBSCRIBE: (GroupState.ACTIVE, 1, 3, {"s/x": [], "s/y": [1]}),
    GroupStep.UNSUBSCRIBE: (GroupState.DELETED, 0, 2, {"s/x": [], "s/y": []}),
    GroupStep.DELETE_STATE_STREAM: (GroupState.DELETED, 0, 2, {"s/x": [], "s/y": []}),
}
"""State, generation, live segments, and by stream the generations that subscribe."""


class Killed(Exception):
    """The process is gone."""


async def finish(world: GroupWorld, step: GroupStep) -> None:
    group = await world.work()
    assert await world.outcome() == END[step]
    assert group.pending == ()
    assert all(o.error is None for o in group.operations)


async def perform_until_done(
    world: GroupWorld, context: WorkContext, loaded: Loaded[ReaderGroup], step: GroupStep
) -> None:
    """The step alone, again and again while the others work."""
    for _ in range(ROUNDS_MAX):
        try:
            await GROUP_STEPS[step](context, loaded)
        except StillWaiting:
            await world.work_others()
        else:
            return
    raise AssertionError("the step never ended")


@pytest.mark.parametrize("step", END)
async def test_a_crash_before_the_step_is_just_a_reload(step: GroupStep) -> None:
    world = GroupWorld()
    await world.come_to(step)

    await finish(world, step)


@pytest.mark.parametrize("step", END)
async def test_a_crash_after_the_work_and_before_its_event_repeats_the_work(
    step: GroupStep,
) -> None:
    world = GroupWorld()
    loaded = await world.come_to(step)
    await perform_until_done(world, world.context, loaded, step)

    await finish(world, step)


@pytest.mark.parametrize("step", END)
async def test_the_step_run_twice_tells_others_the_same_and_ends_in_the_same_event(
    step: GroupStep,
) -> None:
    world = GroupWorld()
    loaded = await world.come_to(step)

    ended = []
    for _ in range(ROUNDS_MAX):
        told = len(world.queue.posted)
        for _ in range(2):
            with suppress(StillWaiting):
                ended.append(await GROUP_STEPS[step](world.context, loaded))
        now = world.queue.posted[told:]
        assert len({c.command_id for c in now}) == len({(c.kind, _about(c)) for c in now})
        await world.work_others()
        if len(ended) >= 2:
            break

    assert ended[0] == ended[1]


def _about(command: Command) -> str:
    return str(getattr(command, "stream", ""))


class DyingQueue:
    """Of a controller that dies at command number `at`, before or after it is queued."""

    def __init__(self, world: GroupWorld, at: int, *, performed: bool) -> None:
        self._world = world
        self._at = at
        self._performed = performed
        self._count = 0

    async def post(self, command: Command) -> None:
        if self._count == self._at and not self._performed:
            raise Killed
        self._count += 1
        await self._world.queue.post(command)
        if self._count > self._at:
            raise Killed


TOLD = {
    GroupStep.MAKE_STATE_STREAM: 1,
    GroupStep.SUBSCRIBE: 2,
    GroupStep.RESUBSCRIBE: 2,
    GroupStep.UNSUBSCRIBE: 2,
    GroupStep.DELETE_STATE_STREAM: 2,
}
"""How many commands the step posts."""
KILLS = [
    (step, at, performed)
    for step, count in TOLD.items()
    for at in range(count)
    for performed in (False, True)
]


@pytest.mark.parametrize(("step", "at", "performed"), KILLS)
async def test_another_controller_ends_what_a_killed_one_began_and_the_dead_changes_nothing(
    step: GroupStep, at: int, performed: bool
) -> None:
    world = GroupWorld()
    loaded = await world.come_to(step)
    dying = replace(world.context, commands=DyingQueue(world, at, performed=performed))
    with pytest.raises((Killed, ExceptionGroup)):
        await perform_until_done(world, dying, loaded, step)

    world.context = world.controller(world.segments)
    await finish(world, step)

    before = await world.outcome()
    try:
        event = await GROUP_STEPS[step](world.context, loaded)
    except StillWaiting:
        pass
    else:
        with pytest.raises(WrongExpectedSequence):
            await world.groups.append(loaded, [event])
    for late in list(world.queue.posted):
        await world.queue.post(late)
    await world.work_others()
    assert await world.outcome() == before


async def test_what_is_not_answered_fails_the_step_and_is_told_again() -> None:
    world = GroupWorld()
    await world.come_to(GroupStep.SUBSCRIBE)

    class Down:
        async def post(self, _command: Command) -> None:
            raise Unavailable("no queue")

    down = replace(world.context, commands=Down())
    with pytest.raises(StepFailed):
        await run_to_rest(world.group_workflow(down), GROUP_SUBJECT)

    await finish(world, GroupStep.SUBSCRIBE)


# --- others come and go -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "known"),
    [
        (GroupStep.SUBSCRIBE, {"s/x": [], "s/y": [0]}),
        (GroupStep.RESUBSCRIBE, {"s/x": [], "s/y": [1]}),
        (GroupStep.UNSUBSCRIBE, {"s/x": [], "s/y": []}),
    ],
)
async def test_a_stream_that_is_deleted_meanwhile_holds_nothing_up(
    step: GroupStep, known: dict[str, list[int]]
) -> None:
    world = GroupWorld()
    await world.come_to(step)
    await world.end(X)

    group = await world.work()

    assert group.pending == ()
    assert (await world.outcome())[3] == known  # type: ignore[index]


async def test_a_group_of_a_stream_that_is_not_there_is_refused() -> None:
    world = GroupWorld()
    await world.prepare()
    await world.end(X)

    with pytest.raises(StreamNotFound):
        await world.group_command(CREATE)


async def test_a_stream_that_came_again_under_its_name_does_not_know_the_group() -> None:
    world = GroupWorld()
    await world.prepare()
    await world.do(CREATE)
    await world.end(X)
    again = CreateStream(command_id="again", scope="s", stream=StreamName("x"))
    await world.command(again)
    await world.work_others()

    for late in list(world.queue.posted):
        await world.queue.post(late)

    assert (await world.at(stream_events(X))).subscriptions.present == ()


async def test_a_group_without_retention_tells_its_streams_nothing() -> None:
    world = GroupWorld()
    await world.prepare()
    silent = CREATE.model_copy(update={"config": config("s/x", "s/y", retention="none")})

    await world.do(silent)
    await world.do(DELETE)

    told = {type(command) for command in world.queue.posted}
    assert not told & {AddSubscriber, RemoveSubscriber}


async def test_the_same_name_lives_again_with_a_state_stream_of_its_own() -> None:
    world = GroupWorld()
    await world.prepare()
    await world.do(CREATE)
    await world.do(DELETE)

    group = await world.do(CREATE.model_copy(update={"command_id": "create-again"}))

    assert (group.status, group.incarnation) == (GroupState.ACTIVE, 2)
    state = await world.at(STATE_SUBJECT)
    assert (state.status, state.incarnation) == (StreamState.ACTIVE, 2)
    for late in list(world.queue.posted):
        await world.queue.post(late)
    await world.work_others()
    assert await world.outcome() == (GroupState.ACTIVE, 0, 3, {"s/x": [0], "s/y": [0]})


async def test_a_state_stream_that_an_earlier_life_left_behind_is_not_used() -> None:
    world = GroupWorld()
    await world.prepare()
    left = CreateStream(command_id="left", scope="s", stream=GROUP_REF.state_stream.stream)
    await world.command(left)
    await world.work_others()

    await world.do(CREATE)

    state = await world.at(STATE_SUBJECT)
    assert (state.status, state.incarnation) == (StreamState.ACTIVE, 2)


@pytest.mark.parametrize("step", [GroupStep.MAKE_STATE_STREAM, GroupStep.DELETE_STATE_STREAM])
async def test_who_wakes_in_a_later_life_of_the_group_leaves_its_state_stream_alone(
    step: GroupStep,
) -> None:
    world = GroupWorld()
    loaded = await world.come_to(step)
    if (await world.work()).is_live:
        await world.do(DELETE)
    await world.do(CREATE.model_copy(update={"command_id": "create-again"}))
    told = len(world.queue.posted)

    with suppress(StillWaiting):
        await GROUP_STEPS[step](world.context, loaded)
    await world.work_others()

    assert world.queue.posted[told:] == []
    assert await world.outcome() == (GroupState.ACTIVE, 0, 3, {"s/x": [0], "s/y": [0]})


async def test_a_group_is_deleted_whose_state_stream_is_gone() -> None:
    world = GroupWorld()
    await world.prepare()
    await world.do(CREATE)
    await world.end(GROUP_REF.state_stream)

    await world.do(DELETE)

    assert await world.outcome() == END[GroupStep.UNSUBSCRIBE]


@pytest.mark.parametrize(
    "step", [GroupStep.JOIN_SCOPE, GroupStep.MAKE_STATE_STREAM, GroupStep.SUBSCRIBE]
)
async def test_what_was_told_before_a_deletion_and_is_decided_after_it_leaves_nothing(
    step: GroupStep,
) -> None:
    world = GroupWorld()
    loaded = await world.come_to(step)
    world.queue.is_stuck = True
    with suppress(StillWaiting):
        await GROUP_STEPS[step](world.context, loaded)
    late = list(world.queue.posted)
    world.queue.is_stuck = False

    group = await world.do(DELETE)
    for command in late:
        await world.queue.post(command)
    await world.work_others()

    assert await world.outcome() == END[GroupStep.UNSUBSCRIBE]
    assert group.operations[0].error is not None


# --- the scope ----------------------------------------------------------------------------------


async def delete_scope(world: GroupWorld) -> None:
    """Run all workflows until the scope rests."""
    for _ in range(ROUNDS_MAX):
        try:
            await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
            return
        except StillWaiting:
            with suppress(StillWaiting):
                await run_to_rest(world.group_workflow(), GROUP_SUBJECT)
            await world.work_others()
    raise AssertionError("the scope never came to rest")


@pytest.mark.parametrize("step", END)
async def test_a_scope_takes_its_groups_along_wherever_they_are(step: GroupStep) -> None:
    world = GroupWorld()
    await world.come_to(step)

    await world.close_scope(recursive=True)
    await delete_scope(world)
    if (await world.group()).is_live:
        await world.work()

    assert (await world.scope()).status is ScopeStatus.DELETED
    assert (await world.group()).status is GroupState.DELETED
    assert world.segments.live() == []


async def test_a_scope_with_a_group_and_nothing_else_is_not_empty() -> None:
    world = GroupWorld()
    await world.prepare()
    await world.do(CREATE)
    for ref in (X, Y):
        await world.end(ref)

    await world.close_scope()
    await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)

    scope = await world.scope()
    assert scope.status is ScopeStatus.ACTIVE
    error = scope.operations[-1].error
    assert error is not None
    assert (error.code, error.message) == ("scope-not-empty", "the scope has reader groups")
    assert error.fields["first"] == "g"


async def test_a_creation_and_a_deletion_of_the_scope_never_both_succeed() -> None:
    for joins_first in (False, True):
        world = GroupWorld()
        loaded = await world.come_to(GroupStep.JOIN_SCOPE)
        for ref in (X, Y):
            await world.end(ref)
        await world.close_scope()
        if joins_first:
            event = await GROUP_STEPS[GroupStep.JOIN_SCOPE](world.context, loaded)
            await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
        else:
            await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
            event = await GROUP_STEPS[GroupStep.JOIN_SCOPE](world.context, loaded)
        await world.groups.append(loaded, [event])

        group, scope = await world.group(), await world.scope()

        assert scope.status is ScopeStatus.DELETED
        assert group.status is GroupState.DELETED
        error = group.operations[-1].error
        assert error is not None
        assert error.code == "scope-not-found"


async def test_a_closing_that_finds_the_group_only_delays_its_creation() -> None:
    world = GroupWorld()
    await world.come_to(GroupStep.MAKE_STATE_STREAM)
    await world.close_scope()
    with pytest.raises(StillWaiting):
        await run_to_rest(world.group_workflow(), GROUP_SUBJECT)
    assert not (await world.at(STATE_SUBJECT)).is_live
    await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)

    await finish(world, GroupStep.MAKE_STATE_STREAM)


async def test_a_state_stream_that_failed_with_a_closing_scope_is_made_again() -> None:
    world = GroupWorld()
    loaded = await world.come_to(GroupStep.MAKE_STATE_STREAM)
    with pytest.raises(StillWaiting):
        await GROUP_STEPS[GroupStep.MAKE_STATE_STREAM](world.context, loaded)
    await world.close_scope()
    await run_to_rest(world.workflow(), STATE_SUBJECT)
    assert (await world.at(STATE_SUBJECT)).status is StreamState.DELETED
    await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
    assert (await world.scope()).status is ScopeStatus.ACTIVE

    await finish(world, GroupStep.MAKE_STATE_STREAM)


async def test_an_attempt_after_a_failed_one_is_decided_before_the_group_is_deleted() -> None:
    world = GroupWorld()
    loaded = await world.come_to(GroupStep.MAKE_STATE_STREAM)
    with pytest.raises(StillWaiting):
        await GROUP_STEPS[GroupStep.MAKE_STATE_STREAM](world.context, loaded)
    await world.close_scope()
    await run_to_rest(world.workflow(), STATE_SUBJECT)
    world.queue.is_stuck = True
    with pytest.raises(StillWaiting):
        await GROUP_STEPS[GroupStep.MAKE_STATE_STREAM](world.context, loaded)
    first, second = world.queue.posted[-2:]
    assert first.command_id != second.command_id
    world.queue.is_stuck = False
    await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)

    await world.do(DELETE)
    await world.queue.post(second)
    await world.work_others()

    assert await world.outcome() == END[GroupStep.UNSUBSCRIBE]


def test_every_step_is_tried() -> None:
    assert END.keys() == GROUP_STEPS.keys() == set(GroupStep)
    assert REF == X
