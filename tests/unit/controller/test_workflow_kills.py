"""A controller dies at any request of a step; another one ends the work, and the dead may wake."""

from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import CreateStream, NewRange
from anabranch.common.errors import (
    AnabranchError,
    InvalidCut,
    StaleRequest,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import segment_id, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.controller.domain.stream.state import Stream, StreamStep
from kit.dying_stores import DyingStores, Killed, facts
from kit.fake_stores import FakeSegmentStores
from kit.workflow_world import DELETE, REF, SCALE, SEAL, STEPS, SUBJECT, TRUNCATE, World

REQUESTS = {
    StreamStep.CREATE_SEGMENTS: 3,
    StreamStep.MAKE_SUCCESSORS: 3,
    StreamStep.SEAL_PREDECESSORS: 3,
    StreamStep.CHECK_CUT: 3,
    StreamStep.TRUNCATE_SEGMENTS: 6,
    StreamStep.SEAL_SEGMENTS: 3,
    StreamStep.DELETE_SEGMENTS: 3,
    StreamStep.COMMIT_TRANSACTIONS: 3,
    StreamStep.MAKE_ROLLED_SEGMENTS: 12,
    StreamStep.SEAL_BEFORE_ROLL: 3,
}
END = {
    StreamStep.CREATE_SEGMENTS: (StreamState.ACTIVE, 3),
    StreamStep.MAKE_SUCCESSORS: (StreamState.ACTIVE, 6),
    StreamStep.SEAL_PREDECESSORS: (StreamState.ACTIVE, 6),
    StreamStep.CHECK_CUT: (StreamState.ACTIVE, 3),
    StreamStep.TRUNCATE_SEGMENTS: (StreamState.ACTIVE, 3),
    StreamStep.SEAL_SEGMENTS: (StreamState.SEALED, 3),
    StreamStep.DELETE_SEGMENTS: (StreamState.DELETED, 0),
    StreamStep.COMMIT_TRANSACTIONS: (StreamState.ACTIVE, 3),
    StreamStep.MAKE_ROLLED_SEGMENTS: (StreamState.ACTIVE, 12),
    StreamStep.SEAL_BEFORE_ROLL: (StreamState.ACTIVE, 12),
}
KILLS = [
    (step, at, performed)
    for step, count in REQUESTS.items()
    for at in range(count)
    for performed in (False, True)
]
SCALE_AGAIN = SCALE.model_copy(
    update={
        "command_id": "scale2",
        "seal": tuple(segment_id(1, number) for number in range(3, 6)),
        "new_ranges": tuple(
            NewRange(key_start=start, key_end=end)
            for start, end in ((0, 0.3), (0.3, 0.6), (0.6, 1))
        ),
    }
)


@pytest.mark.parametrize(("step", "at", "performed"), KILLS)
async def test_another_controller_ends_what_a_killed_one_began(
    step: StreamStep, at: int, performed: bool
) -> None:
    world = World()
    loaded = await killed_in(world, step, at, performed=performed)

    other = world.controller(world.segments)
    rested = await run_to_rest(world.workflow(other), SUBJECT)

    assert (rested.state.status, len(world.segments.live())) == END[step]
    assert rested.state.intents == ()
    await assert_late_waking_changes_nothing(world, loaded, step)


@pytest.mark.parametrize(("step", "at", "performed"), KILLS)
async def test_what_a_killed_controller_began_meets_a_later_life_of_the_name_unharmed(
    step: StreamStep, at: int, performed: bool
) -> None:
    world = World()
    loaded = await killed_in(world, step, at, performed=performed)
    await run_to_rest(world.workflow(), SUBJECT)
    if step is not StreamStep.DELETE_SEGMENTS:
        for command in (SEAL.model_copy(update={"command_id": "seal2"}), DELETE):
            await world.command(command)
            await run_to_rest(world.workflow(), SUBJECT)
    assert world.segments.live() == []
    await world.command(CreateStream(command_id="again", scope=REF.scope, stream=REF.stream))
    await run_to_rest(world.workflow(), SUBJECT)
    assert len(world.segments.live()) == 1

    await assert_late_waking_changes_nothing(world, loaded, step)


async def killed_in(world: World, step: StreamStep, at: int, *, performed: bool) -> Loaded[Stream]:
    loaded = await world.reach(step)
    dying = world.controller(DyingStores(world.segments, at, performed))
    with pytest.raises(ExceptionGroup) as death:
        await STEPS[step](dying, loaded)
    assert death.group_contains(Killed)
    return loaded


async def assert_late_waking_changes_nothing(
    world: World, loaded: Loaded[Stream], step: StreamStep
) -> None:
    """The step runs on what was read long ago; what it does is known, or refused."""
    before = facts(world.segments)
    try:
        event = await STEPS[step](world.context, loaded)
    except AnabranchError:
        pass
    else:
        with pytest.raises(WrongExpectedSequence):
            await world.streams.append(loaded, [event])
    assert facts(world.segments) == before


# --- truncations that cannot be -----------------------------------------------------------------


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("bad", range(3))
@pytest.mark.parametrize(("offset", "code"), [(101, "invalid-"), (55, "not-at-boundary")])
async def test_a_cut_with_one_bad_segment_among_good_ones_changes_nothing(
    offset: int, code: str, bad: int, is_sealed: bool
) -> None:
    world = World(segments=FakeSegmentStores(append_size=10))
    await world.reach(StreamStep.MAKE_SUCCESSORS)
    before = (await run_to_rest(world.workflow(), SUBJECT)).state.head
    if is_sealed:
        await world.command(SCALE_AGAIN)
        await run_to_rest(world.workflow(), SUBJECT)
    live, untouched = world.segments.live(), facts(world.segments)
    cut = tuple(
        replace(place, offset=offset) if index == bad else place
        for index, place in enumerate(TRUNCATE.cut)
    )
    if is_sealed and offset > 100:
        with pytest.raises(InvalidCut):  # how long a sealed segment is, the stream knows itself
            await world.command(TRUNCATE.model_copy(update={"cut": cut}))
    else:
        await world.command(TRUNCATE.model_copy(update={"cut": cut}))

        stream = (await run_to_rest(world.workflow(), SUBJECT)).state

        failed = stream.operations[-1]
        assert failed.error is not None
        assert failed.error.code.startswith(code)
        assert stream.head == before
    assert world.segments.live() == live
    assert facts(world.segments) == untouched
    await world.command(TRUNCATE.model_copy(update={"command_id": "right"}))
    assert (await run_to_rest(world.workflow(), SUBJECT)).state.head == TRUNCATE.cut
    assert len(world.segments.live()) == len(live) - 3


async def test_a_boundary_that_a_store_forgets_after_the_check_fails_no_truncation() -> None:
    world = World()
    loaded = await world.reach(StreamStep.TRUNCATE_SEGMENTS)
    world.segments.append_size = 4

    event = await STEPS[StreamStep.TRUNCATE_SEGMENTS](world.context, loaded)

    stream = (await world.streams.append(loaded, [event])).state
    assert stream.head == TRUNCATE.cut
    names = stream.names_of(place.segment_id for place in TRUNCATE.cut)
    assert [world.segments.segments[name].start for name in names] == [8, 8, 8]


# --- creations that cannot end ------------------------------------------------------------------


async def test_a_creation_that_cannot_end_is_deleted_and_never_comes_back() -> None:
    world = World()
    stuck = await world.reach(StreamStep.CREATE_SEGMENTS)
    world.segments.fail_after = 2
    with pytest.raises(StepFailed) as failure:
        await run_to_rest(world.workflow(), SUBJECT)
    assert isinstance(failure.value.error, Unavailable)
    world.segments.fail_after, world.segments.down = None, False

    await world.command(DELETE)
    rested = await run_to_rest(world.workflow(), SUBJECT)

    assert rested.state.status is StreamState.DELETED
    assert world.segments.live() == []
    ended = {o.operation: o.error.code if o.error else None for o in rested.state.operations}
    assert ended == {"create": "stream-not-found", "delete": None}
    with pytest.raises(StaleRequest):
        await STEPS[StreamStep.CREATE_SEGMENTS](world.context, stuck)
    never_made = segment_name(REF, stuck.state.segments[2].segment_id)
    assert world.segments.segments[never_made].deleted


async def test_successors_are_there_before_anything_is_sealed() -> None:
    world = World()
    await world.reach(StreamStep.MAKE_SUCCESSORS)
    begun = len(world.segments.requests)

    await run_to_rest(world.workflow(), SUBJECT)

    verbs = [verb for verb, _, _ in world.segments.requests[begun:]]
    assert verbs == ["create"] * len(SCALE.new_ranges) + ["seal"] * len(SCALE.seal)
