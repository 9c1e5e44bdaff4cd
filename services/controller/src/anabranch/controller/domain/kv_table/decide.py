"""Decides commands on a key-value table: the events that follow, or a rejection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    SealTable,
    UpdateTableConfig,
)
from anabranch.common.errors import (
    Busy,
    InvalidRequest,
    ScopeNotFound,
    TableExists,
    TableNotFound,
    TableSealed,
)
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import refuse_dots, segment_id
from anabranch.common.model.table import TableState, table_ref
from anabranch.controller.domain import operations
from anabranch.controller.domain.kv_table.events import (
    PlannedPartition,
    TableCommandSatisfied,
    TableConfigUpdated,
    TableCreating,
    TableDeleting,
    TableEvent,
    TableIntentJoined,
    TableSealing,
)
from anabranch.controller.domain.kv_table.state import KvTable

TableCommand = CreateTable | UpdateTableConfig | SealTable | DeleteTable


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of a decision besides the table and the command.

    `revision`: the one at which the events will be stored. `open_scope_incarnation`: that of the
    scope as just read, None if it is absent or closing.
    """

    revision: int
    open_scope_incarnation: int | None
    now_ms: int


def decide(table: KvTable, command: TableCommand, at: Circumstances) -> Sequence[TableEvent]:
    """The events of `command`; none for a command that was accepted before.

    Raises InvalidName, InvalidRequest, ScopeNotFound, TableExists, TableNotFound, TableSealed,
    Busy, DeadlinePassed.
    """
    if operations.find(table.operations, command.command_id) is not None:
        return ()
    operations.refuse_late(command, at.now_ms)
    operations.check_room(table.operations)
    if isinstance(command, CreateTable):
        return _create(table, command, at)
    _require_live(table, command, at)
    match command:
        case UpdateTableConfig():
            return _update(table, command)
        case SealTable():
            return _seal(table, command, at)
        case DeleteTable():
            return _delete(table, command, at)
        case _:
            assert_never(command)


def _create(table: KvTable, command: CreateTable, at: Circumstances) -> Sequence[TableEvent]:
    ref = table_ref(f"{command.scope}/{command.table}")
    refuse_dots(ref.table)
    if at.open_scope_incarnation is None:
        raise ScopeNotFound("no such scope", scope=ref.scope)
    if table.status is TableState.DELETING:
        raise _busy(table)
    if table.is_live:
        raise TableExists(
            "the key-value table already exists",
            table=str(table.ref),
            incarnation=table.incarnation,
        )
    return (
        TableCreating(
            command_id=command.command_id,
            revision=at.revision,
            scope=ref.scope,
            table=ref.table,
            incarnation=table.incarnation + 1,
            scope_incarnation=at.open_scope_incarnation,
            config=command.config,
            partitions=_planned(command.config.partition_count, table.highest_number + 1),
            at_ms=at.now_ms,
        ),
    )


def _planned(count: int, first_number: int) -> tuple[PlannedPartition, ...]:
    """The partitions of epoch 0: `count` even ranges of keys, with consecutive segment numbers."""
    return tuple(
        PlannedPartition(
            segment_id=segment_id(0, first_number + index), key_start=keys.start, key_end=keys.end
        )
        for index, keys in enumerate(even_ranges(count))
    )


def _update(table: KvTable, command: UpdateTableConfig) -> Sequence[TableEvent]:
    match table.status:
        case TableState.SEALING | TableState.SEALED:
            raise TableSealed("the key-value table is sealed, or about to be", table=str(table.ref))
        case TableState.ACTIVE:
            pass
        case _:
            raise _busy(table)
    assert table.config is not None
    if replace(table.config, ttl_ms=command.config.ttl_ms) != command.config:
        raise InvalidRequest(
            "only the time to live of a key-value table can change",
            remedy="give all other values as they are, or create another table",
            table=str(table.ref),
        )
    if command.config == table.config:
        return (TableCommandSatisfied(command_id=command.command_id, intent="update"),)
    return (TableConfigUpdated(command_id=command.command_id, config=command.config),)


def _seal(table: KvTable, command: SealTable, at: Circumstances) -> Sequence[TableEvent]:
    match table.status:
        case TableState.ACTIVE:
            sealing = TableSealing(
                command_id=command.command_id, revision=at.revision, at_ms=at.now_ms
            )
            return (sealing,)
        case TableState.SEALING:
            return (TableIntentJoined(command_id=command.command_id),)
        case TableState.SEALED:
            return (TableCommandSatisfied(command_id=command.command_id, intent="seal"),)
        case _:
            raise _busy(table)


def _delete(table: KvTable, command: DeleteTable, at: Circumstances) -> Sequence[TableEvent]:
    """A deletion ends the table's creation or seal."""
    if table.status is TableState.DELETING:
        return (TableIntentJoined(command_id=command.command_id),)
    ended = TableNotFound(
        "the key-value table was deleted meanwhile",
        remedy="create it again if it is still wanted",
        table=str(table.ref),
    )
    return (
        TableDeleting(
            command_id=command.command_id,
            revision=at.revision,
            at_ms=at.now_ms,
            ended_error=ErrorBody.of(ended) if table.pending else None,
        ),
    )


def _require_live(
    table: KvTable, command: UpdateTableConfig | SealTable | DeleteTable, at: Circumstances
) -> None:
    if table.is_live and command.incarnation in (None, table.incarnation):
        return
    if at.open_scope_incarnation is None:
        raise ScopeNotFound("no such scope", scope=command.scope)
    raise TableNotFound("no such key-value table", table=f"{command.scope}/{command.table}")


def _busy(table: KvTable) -> Busy:
    return Busy(
        f"the key-value table is {table.status}; that must end first",
        table=str(table.ref),
        status=str(table.status),
    )
