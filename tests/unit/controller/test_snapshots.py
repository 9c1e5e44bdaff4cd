"""States go through snapshots unchanged, whatever life led to them."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.commands import (
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
)
from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    CreateReaderGroup,
    DeleteReaderGroup,
    RemoveSubscriber,
    ResetReaderGroup,
    UpdateSubscriberCut,
)
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    SealTable,
    UpdateTableConfig,
)
from anabranch.common.errors import AnabranchError, ScopeNotEmpty, ScopeNotFound
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import segment_id
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.model.table import TableConfig
from anabranch.controller.domain.kv_table import decide as table_decide
from anabranch.controller.domain.kv_table import events as table_events
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.kv_table.state import KvTable, TableStep
from anabranch.controller.domain.kv_table.state import next_step as table_next_step
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group import events as group_events
from anabranch.controller.domain.reader_group.decide import Circumstances as GroupCircumstances
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import (
    SCOPE,
    Scope,
    ScopeDeleted,
    ScopeEvent,
    ScopeReopened,
)
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances
from anabranch.controller.domain.stream.events import (
    StreamCreated,
    StreamCreateFailed,
    StreamDeleted,
    StreamEvent,
    StreamJoinedScope,
    StreamScaled,
    StreamSealed,
    StreamSuccessorsMade,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from kit.group_story import seen_stream
from kit.thorough import one_in

S = TypeVar("S")
E = TypeVar("E")

LIVES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 13)), max_size=30)
"""(what happens next, a number that it needs)"""
GONE = ErrorBody.of(ScopeNotFound("gone", scope="s.x", count=3, ratio=0.1, missing=None))
FULL = ErrorBody.of(ScopeNotEmpty("full", scope="s.x", first=None))


def survives(aggregate: Aggregate[S, E], state: S) -> None:
    read = aggregate.states.validate_json(aggregate.encode_state(state))
    assert read == state
    assert repr(read) == repr(state)  # enums and tuples too, which compare equal to other types


def live(
    aggregate: Aggregate[S, E],
    life: list[tuple[int, int]],
    happen: Callable[[S, int, int], list[E]],
) -> None:
    state = aggregate.initial
    survives(aggregate, state)
    for what, number in life:
        try:
            events = happen(state, what, number)
        except AnabranchError:
            continue
        state = aggregate.apply(state, events)
        survives(aggregate, state)


def scope_happens(scope: Scope, what: int, number: int) -> list[ScopeEvent]:
    if what == 0 and scope_next_step(scope):
        return [ScopeDeleted()]
    if what == 1 and scope_next_step(scope):
        return [ScopeReopened(error=FULL)]
    command = CreateScope if what < 4 else DeleteScope
    asked = command(command_id=f"c{number}", scope="s.x")
    return list(scope_decide.decide(scope, asked, now_ms=number))


def _scale(stream: Stream, command_id: str) -> ScaleStream:
    """Of the first segment, if there is one, into two."""
    first = stream.segments[0] if stream.segments else None
    start, end = (first.keys.start, first.keys.end) if first else (0.0, 1.0)
    bounds = ((start, (start + end) / 2), ((start + end) / 2, end))
    return ScaleStream(
        command_id=command_id,
        scope="s",
        stream="x.y",
        seal=(first.segment_id if first else segment_id(0, 0),),
        new_ranges=tuple(NewRange(key_start=low, key_end=high) for low, high in bounds),
    )


def _subscriber(command_id: str, number: int) -> dict[str, Any]:
    return {
        "command_id": command_id, "scope": "s", "stream": "x.y",
        "subscriber": f"s/g{number % 2}", "group_incarnation": 1,
    }  # fmt: skip


def stream_happens(stream: Stream, what: int, number: int) -> list[StreamEvent]:
    match next_step(stream) if what < 3 else None:
        case StreamStep.MAKE_SUCCESSORS:
            return [StreamSuccessorsMade()]
        case StreamStep.SEAL_PREDECESSORS:
            plan = stream.intents[0].scale
            assert plan is not None
            return [StreamScaled(sizes=(number,) * len(plan.sealed))]
        case StreamStep.JOIN_SCOPE:
            return [StreamJoinedScope() if number else StreamCreateFailed(error=GONE)]
        case StreamStep.CREATE_SEGMENTS:
            return [StreamCreated()]
        case StreamStep.SEAL_SEGMENTS:
            return [StreamSealed(lengths=(number,) * len(stream.segments))]
        case StreamStep.DELETE_SEGMENTS:
            return [StreamDeleted()]
    command_id = f"{what}-{number}"
    command = (
        CreateStream(command_id=command_id, scope="s", stream="x.y", segment_count=number + 1),
        SealStream(command_id=command_id, scope="s", stream="x.y"),
        DeleteStream(command_id=command_id, scope="s", stream="x.y"),
        _scale(stream, command_id),
        AddSubscriber(**_subscriber(command_id, number), generation=what),
        RemoveSubscriber(**_subscriber(command_id, number), generation=what),
        UpdateSubscriberCut(
            command_id=command_id,
            scope="s",
            stream="x.y",
            subscriber=f"s/g{number % 2}",
            generation=what,
            cut=tuple(SegmentPosition(s.segment_id, 0, number) for s in stream.segments)
            or (SegmentPosition(segment_id(0, 0), 0),),
        ),
    )[number % 7]
    at = Circumstances(number, 1, number, lambda: History(stream.epochs))
    return list(stream_decide.decide(stream, command, at))


def group_happens(group: ReaderGroup, what: int, number: int) -> list[GroupEvent]:
    match group_next_step(group) if what < 3 else None:
        case GroupStep.JOIN_SCOPE:
            joined = group_events.GroupJoinedScope()
            return [joined if number else group_events.GroupCreateFailed(error=GONE)]
        case GroupStep.MAKE_STATE_STREAM:
            return [group_events.GroupStateMade()]
        case GroupStep.SUBSCRIBE:
            return [group_events.GroupCreated()]
        case GroupStep.RESUBSCRIBE:
            return [group_events.GroupReset()]
        case GroupStep.UNSUBSCRIBE:
            return [group_events.GroupUnsubscribed()]
        case GroupStep.DELETE_STATE_STREAM:
            return [group_events.GroupDeleted()]
    about: dict[str, Any] = {"command_id": f"{what}-{number}", "scope": "s", "group": "g"}
    config = ReaderGroupConfig((GroupStream("s/x"),), retention=list(GroupRetention)[number % 3])
    commands = (
        CreateReaderGroup(**about, config=config),
        ResetReaderGroup(**about, config=config),
        DeleteReaderGroup(**about),
    )
    at = GroupCircumstances(1, {"s/x": seen_stream("x", 2)}, number)
    return list(group_decide.decide(group, commands[number % 3], at))


def table_happens(table: KvTable, what: int, number: int) -> list[TableEvent]:
    match table_next_step(table) if what < 3 else None:
        case TableStep.JOIN_SCOPE:
            joined = table_events.TableJoinedScope()
            return [joined if number else table_events.TableCreateFailed(error=GONE)]
        case TableStep.CREATE_PARTITIONS:
            return [table_events.TableCreated()]
        case TableStep.SEAL_PARTITIONS:
            return [table_events.TableSealed()]
        case TableStep.DELETE_PARTITIONS:
            return [table_events.TableDeleted()]
    about: dict[str, Any] = {"command_id": f"{what}-{number}", "scope": "s", "table": "t"}
    config = TableConfig(partition_count=3, secondary_key_size=None, ttl_ms=number)
    commands = (
        CreateTable(**about, config=config),
        UpdateTableConfig(**about, config=config),
        SealTable(**about),
        DeleteTable(**about),
    )
    at = table_decide.Circumstances(number, 1, number)
    return list(table_decide.decide(table, commands[number % 4], at))


@settings(max_examples=60 // one_in(4))
@given(LIVES)
def test_a_key_value_table_is_the_same_after_a_snapshot(life: list[tuple[int, int]]) -> None:
    live(TABLE, life, table_happens)


@settings(max_examples=60 // one_in(4))
@given(LIVES)
def test_a_reader_group_is_the_same_after_a_snapshot(life: list[tuple[int, int]]) -> None:
    live(GROUP, life, group_happens)


@settings(max_examples=60 // one_in(4))
@given(LIVES)
def test_a_scope_is_the_same_after_a_snapshot(life: list[tuple[int, int]]) -> None:
    live(SCOPE, life, scope_happens)


@settings(max_examples=60 // one_in(4))
@given(LIVES)
def test_a_stream_is_the_same_after_a_snapshot(life: list[tuple[int, int]]) -> None:
    live(STREAM, life, stream_happens)
