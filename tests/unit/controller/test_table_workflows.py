"""Key-value tables are created, sealed and deleted, whoever dies meanwhile and whatever is late."""

from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import CreateScope
from anabranch.common.errors import (
    AnabranchError,
    StaleRequest,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentKind, segment_id, segment_kind
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.table import TableState
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kv_table.state import KvTable, TableEpoch, TableStep
from anabranch.controller.domain.scope.emptying import table_command
from anabranch.controller.domain.scope.state import ScopeStatus
from kit.controlled_tables import (
    CREATE,
    DELETE,
    PARTITIONS,
    SEAL,
    TABLE_STEPS,
    TABLE_SUBJECT,
    TableWorld,
)
from kit.dying_stores import DyingStores, Killed, facts
from kit.workflow_world import REF, SCOPE_SUBJECT

END = {
    TableStep.JOIN_SCOPE: (TableState.ACTIVE, PARTITIONS, 0),
    TableStep.CREATE_PARTITIONS: (TableState.ACTIVE, PARTITIONS, 0),
    TableStep.SEAL_PARTITIONS: (TableState.SEALED, PARTITIONS, PARTITIONS),
    TableStep.DELETE_PARTITIONS: (TableState.DELETED, 0, 0),
}
"""Status, live segments, sealed ones of them."""
KILLS = [
    (step, at, performed)
    for step in END
    if step is not TableStep.JOIN_SCOPE
    for at in range(PARTITIONS)
    for performed in (False, True)
]
AGAIN = CREATE.model_copy(update={"command_id": "create-again"})


def test_every_step_is_tried() -> None:
    assert END.keys() == TABLE_STEPS.keys() == set(TableStep)


@pytest.mark.parametrize("step", END)
async def test_a_crash_before_the_step_is_just_a_reload(step: TableStep) -> None:
    world = TableWorld()
    await world.come_to(step)

    await finish(world, step)


@pytest.mark.parametrize("step", END)
async def test_a_crash_after_the_work_and_before_its_event_repeats_the_work(
    step: TableStep,
) -> None:
    world = TableWorld()
    loaded = await world.come_to(step)
    await TABLE_STEPS[step](world.context, loaded)

    await finish(world, step)


@pytest.mark.parametrize("step", END)
async def test_the_step_run_twice_asks_the_same_and_ends_in_the_same_event(
    step: TableStep,
) -> None:
    world = TableWorld()
    loaded = await world.come_to(step)
    asked = len(world.segments.requests)
    first = await TABLE_STEPS[step](world.context, loaded)
    between = len(world.segments.requests)

    second = await TABLE_STEPS[step](world.context, loaded)

    assert first == second
    requests = world.segments.requests
    assert sorted(requests[asked:between]) == sorted(requests[between:])


async def test_the_partitions_are_table_segments_under_the_stamp_of_the_decision() -> None:
    world = TableWorld()
    loaded = await world.come_to(TableStep.CREATE_PARTITIONS)

    await world.work()

    names = [f"s/_TABLEt/{number}.#epoch.0" for number in range(PARTITIONS)]
    stamp = Stamp(1, loaded.state.revision)
    assert sorted(world.segments.requests) == [("create", name, stamp) for name in names]
    assert {segment_kind(name) for name in names} == {SegmentKind.TABLE}


@pytest.mark.parametrize(("step", "at", "performed"), KILLS)
async def test_another_controller_ends_what_a_killed_one_began_and_the_dead_changes_nothing(
    step: TableStep, at: int, performed: bool
) -> None:
    world = TableWorld()
    loaded = await killed_in(world, step, at, performed=performed)

    await world.work(world.controller(world.segments))

    assert await world.outcome() == END[step]
    await assert_late_waking_changes_nothing(world, loaded, step)


@pytest.mark.parametrize(("step", "at", "performed"), KILLS)
async def test_what_a_killed_controller_began_meets_a_later_life_of_the_name_unharmed(
    step: TableStep, at: int, performed: bool
) -> None:
    world = TableWorld()
    loaded = await killed_in(world, step, at, performed=performed)
    if (await world.work()).is_live:
        await world.do(DELETE)
    assert world.segments.live() == []
    table = await world.do(AGAIN)
    assert (table.status, table.incarnation) == (TableState.ACTIVE, 2)

    await assert_late_waking_changes_nothing(world, loaded, step)


async def test_a_creation_that_cannot_end_is_deleted_and_never_comes_back() -> None:
    world = TableWorld()
    stuck = await world.come_to(TableStep.CREATE_PARTITIONS)
    world.segments.fail_after = 2
    with pytest.raises(StepFailed) as failure:
        await world.work()
    assert isinstance(failure.value.error, Unavailable)
    world.segments.fail_after, world.segments.down = None, False

    table = await world.do(DELETE)

    assert await world.outcome() == END[TableStep.DELETE_PARTITIONS]
    ended = {o.operation: o.error.code if o.error else None for o in table.operations}
    assert ended == {"create-t": "table-not-found", "delete-t": None}
    with pytest.raises(StaleRequest):
        await TABLE_STEPS[TableStep.CREATE_PARTITIONS](world.context, stuck)
    assert all(segment.deleted for segment in world.segments.segments.values())
    assert len(world.segments.segments) == PARTITIONS


async def test_a_seal_that_cannot_end_is_ended_by_a_deletion() -> None:
    world = TableWorld()
    stuck = await world.come_to(TableStep.SEAL_PARTITIONS)

    table = await world.do(DELETE)

    assert await world.outcome() == END[TableStep.DELETE_PARTITIONS]
    ended = {o.operation: o.error.code if o.error else None for o in table.operations}
    assert ended == {"create-t": None, "seal-t": "table-not-found", "delete-t": None}
    with pytest.raises(AnabranchError):
        await TABLE_STEPS[TableStep.SEAL_PARTITIONS](world.context, stuck)


async def test_the_same_name_lives_again_with_segments_that_never_were() -> None:
    world = TableWorld()
    await world.open_scope()
    await world.do(CREATE)
    before = set((await world.table()).all_names())
    await world.do(SEAL)
    await world.do(DELETE)

    table = await world.do(AGAIN)

    assert not before & set(table.all_names())
    assert await world.outcome() == (TableState.ACTIVE, PARTITIONS, 0)


async def test_a_deletion_names_the_segments_of_every_epoch() -> None:
    world = TableWorld()
    loaded = await world.come_to(TableStep.DELETE_PARTITIONS)
    table = loaded.state
    whole = SegmentRange(segment_id(1, PARTITIONS), KeyRange(0.0, 1.0))
    divided = replace(table, epochs=(*table.epochs, TableEpoch(1, 9, (whole,))))
    asked = len(world.segments.requests)

    await TABLE_STEPS[TableStep.DELETE_PARTITIONS](world.context, replace(loaded, state=divided))

    deleted = {(verb, name) for verb, name, _ in world.segments.requests[asked:]}
    names = [*(f"s/_TABLEt/{n}.#epoch.0" for n in range(PARTITIONS)), "s/_TABLEt/3.#epoch.1"]
    assert deleted == {("delete", name) for name in names}


# --- the scope ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("joins_first", [False, True])
async def test_a_creation_and_a_deletion_of_the_scope_never_both_succeed(
    joins_first: bool, recursive: bool
) -> None:
    world = TableWorld()
    loaded = await world.come_to(TableStep.JOIN_SCOPE)
    await world.close_scope(recursive=recursive)
    if not joins_first:
        await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
    event = await TABLE_STEPS[TableStep.JOIN_SCOPE](world.context, loaded)
    await world.tables.append(loaded, [event])
    await delete_scope(world)
    await world.work()

    table, scope = await world.table(), await world.scope()

    assert (scope.status is ScopeStatus.DELETED) == (table.status is TableState.DELETED)
    if not joins_first:
        error = table.operations[-1].error
        assert error is not None
        assert error.code == "scope-not-found"
        assert (await world.outcome())[1] == 0


async def test_a_scope_with_a_table_is_not_empty_and_says_so() -> None:
    world = TableWorld()
    await world.open_scope()
    await world.do(CREATE)

    await world.close_scope()
    scope = (await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)).state

    assert scope.status is ScopeStatus.ACTIVE
    error = scope.operations[-1].error
    assert error is not None
    assert (error.code, error.message) == ("scope-not-empty", "the scope has key-value tables")
    assert error.fields == {"scope": "s", "count": 1, "first": "t"}
    await world.do(DELETE)
    await world.close_scope("now")
    assert (await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)).state.status is (
        ScopeStatus.DELETED
    )


@pytest.mark.parametrize("step", END)
async def test_a_scope_takes_its_tables_along_wherever_they_are(step: TableStep) -> None:
    world = TableWorld()
    await world.come_to(step)

    await world.close_scope(recursive=True)
    await delete_scope(world)
    if (await world.table()).is_live:
        await world.work()

    assert (await world.scope()).status is ScopeStatus.DELETED
    assert await world.outcome() == END[TableStep.DELETE_PARTITIONS]


async def test_who_sleeps_until_the_scope_has_another_life_tells_none_of_its_tables() -> None:
    world = TableWorld()
    await world.open_scope()
    await world.do(CREATE)
    await world.close_scope(recursive=True)
    await delete_scope(world)
    await world.scope_command(CreateScope(command_id="again", scope=REF.scope))
    table = await world.do(AGAIN)

    assert table.scope_incarnation == 2
    late = list(world.queue.posted)
    for command in late:
        await world.queue.post(command)
    assert (await world.work()).status is TableState.ACTIVE


async def test_a_table_is_told_to_go_once_under_the_same_id_and_not_while_it_goes() -> None:
    world = TableWorld()
    await world.open_scope()
    first = await world.do(CREATE)
    asked, again = table_command("w", first), table_command("w", first)
    await world.table_command(DELETE)
    going = table_command("w", await world.table())
    gone = table_command("w", await world.work())
    second = table_command("w", await world.do(AGAIN))

    assert asked == again
    assert asked is not None
    assert second is not None
    assert asked.incarnation == 1
    assert asked.command_id != second.command_id
    assert (going, gone) == (None, None)


async def delete_scope(world: TableWorld) -> None:
    """Run all workflows until the scope rests."""
    for _ in range(5):
        try:
            await run_to_rest(world.scope_workflow(), SCOPE_SUBJECT)
            return
        except StillWaiting:
            await world.work()
    raise AssertionError("the scope never came to rest")


async def finish(world: TableWorld, step: TableStep) -> None:
    table = await world.work()
    assert await world.outcome() == END[step]
    assert table.pending == ()
    assert all(o.error is None for o in table.operations)


async def killed_in(
    world: TableWorld, step: TableStep, at: int, *, performed: bool
) -> Loaded[KvTable]:
    loaded = await world.come_to(step)
    dying = world.controller(DyingStores(world.segments, at, performed))
    with pytest.raises(ExceptionGroup) as death:
        await TABLE_STEPS[step](dying, loaded)
    assert death.group_contains(Killed)
    return loaded


async def assert_late_waking_changes_nothing(
    world: TableWorld, loaded: Loaded[KvTable], step: TableStep
) -> None:
    """The step runs on what was read long ago; what it does is known, or refused."""
    before = facts(world.segments)
    try:
        event = await TABLE_STEPS[step](world.context, loaded)
    except AnabranchError:
        pass
    else:
        with pytest.raises(WrongExpectedSequence):
            await world.tables.append(loaded, [event])
    assert facts(world.segments) == before
    assert (await world.tables.load(TABLE_SUBJECT)).state.pending == ()
