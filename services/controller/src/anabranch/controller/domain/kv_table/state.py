"""A key-value table's state, and how events change it.

The transitions are in `MACHINE`. A creation begins the next incarnation.

A table performs one intent at a time: it is created, sealed or deleted. A deletion ends a creation
or a seal, whatever delays it. `TableIntentJoined` adds a command that wants the pending work;
`TableCommandSatisfied` notes a command and changes nothing else.

The partitions are recorded by *epoch*, with all of them in each record, so that a later epoch can
divide the keys differently. Today every table stays at epoch 0.

DELETED is the tombstone: it keeps the incarnation, the highest segment number ever planned and the
operations, and creating the name again is a compare-and-set on it; the names of table segments
therefore never repeat.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, SegmentId, number_of, segment_name
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.table import TableConfig, TableRef, TableState
from anabranch.controller.domain import operations
from anabranch.controller.domain.kv_table import events
from anabranch.controller.domain.kv_table.events import PlannedPartition, TableEvent
from anabranch.controller.domain.machine import Machine, Row
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.stream.rows import SegmentRanges


class TableStep(StrEnum):
    """The steps of a key-value table's workflows."""

    JOIN_SCOPE = "join_scope"
    CREATE_PARTITIONS = "create_partitions"
    SEAL_PARTITIONS = "seal_partitions"
    DELETE_PARTITIONS = "delete_partitions"


@dataclass(frozen=True, slots=True)
class TableEpoch:
    """All partitions from one time on. `partitions` are sorted by key and cover all keys.

    `epoch` counts the times that the partitions were replaced; `created_ms` is Unix ms.
    """

    epoch: int
    created_ms: int
    partitions: SegmentRanges


@dataclass(frozen=True, slots=True)
class KvTable:
    """A key-value table.

    ref, incarnation     its name, None if the name was never used; the number of its lives
    status               None: the name was never used
    scope_incarnation    the incarnation of the scope in which it was created
    has_joined_scope     it is a member of that incarnation of the scope
    config               None before the first creation, and for a tombstone
    epochs               the records of its partitions, oldest first; the last is the present one
    highest_number       the highest segment number ever planned under this name, -1 before any
    created_ms           Unix ms
    pending, since_ms    the commands that want the pending work, and when it was accepted
    revision             the revision of the last accepted intent, for the stamp of requests
    operations           the last accepted commands, with their outcomes

    Invariants: `pending` is empty unless the status is CREATING, SEALING or DELETING, and holds
    exactly the running operations; every segment number ever planned is at most `highest_number`.
    `invariants.py` has all of them.
    """

    ref: TableRef | None = None
    incarnation: int = 0
    status: TableState | None = None
    scope_incarnation: int = 0
    has_joined_scope: bool = False
    config: TableConfig | None = None
    epochs: tuple[TableEpoch, ...] = ()
    highest_number: int = -1
    created_ms: int = 0
    pending: tuple[str, ...] = ()
    since_ms: int = 0
    revision: int = 0
    operations: Operations = ()

    @property
    def is_live(self) -> bool:
        """Whether the name is taken, even if the table is half-created or half-deleted."""
        return self.status not in (None, TableState.DELETED)

    @property
    def present(self) -> TableEpoch:
        """The record of the present partitions, of a live table."""
        return self.epochs[-1]

    def present_names(self) -> tuple[str, ...]:
        """The full names of the present table segments, in key order."""
        return self.names_of(each.segment_id for each in self.present.partitions)

    def all_names(self) -> tuple[str, ...]:
        """The full names of every table segment planned in this incarnation, sorted by id."""
        ids = {each.segment_id for record in self.epochs for each in record.partitions}
        return self.names_of(sorted(ids))

    def names_of(self, segments: Iterable[SegmentId]) -> tuple[str, ...]:
        """The full names of table segments of this table."""
        assert self.ref is not None
        stream = self.ref.segments
        return tuple(segment_name(stream, segment) for segment in segments)


KIND_OF = {
    TableState.CREATING: "create",
    TableState.SEALING: "seal",
    TableState.DELETING: "delete",
}
"""The intent that is being performed, by the table's status."""


_CREATING, _ACTIVE, _SEALING = TableState.CREATING, TableState.ACTIVE, TableState.SEALING
_SEALED, _DELETING, _DELETED = TableState.SEALED, TableState.DELETING, TableState.DELETED
_S, _E = TableStep, events

MACHINE: Machine[TableState] = Machine(
    Row(_E.TableCreating, (None, _DELETED), _CREATING, (_S.JOIN_SCOPE,)),
    Row(_E.TableJoinedScope, (_CREATING,), None, (_S.CREATE_PARTITIONS,)),
    Row(_E.TableCreateFailed, (_CREATING,), _DELETED, ("",)),
    Row(_E.TableCreated, (_CREATING,), _ACTIVE, ("",)),
    Row(_E.TableConfigUpdated, (_ACTIVE,), None, ("",)),
    Row(_E.TableSealing, (_ACTIVE,), _SEALING, (_S.SEAL_PARTITIONS,)),
    Row(_E.TableSealed, (_SEALING,), _SEALED, ("",)),
    Row(
        _E.TableDeleting,
        (_CREATING, _ACTIVE, _SEALING, _SEALED),
        _DELETING,
        (_S.DELETE_PARTITIONS,),
    ),
    Row(_E.TableDeleted, (_DELETING,), _DELETED, ("",)),
    Row(
        _E.TableIntentJoined,
        (_SEALING, _DELETING),
        None,
        (_S.SEAL_PARTITIONS, _S.DELETE_PARTITIONS),
    ),
    Row(_E.TableCommandSatisfied, (_ACTIVE, _SEALED), None, ("",)),
)


def evolve(table: KvTable, event: TableEvent) -> KvTable:
    """The table after the event."""
    status = MACHINE.after(table.status, event)
    return replace(_evolved(table, event), status=status)


def _evolved(table: KvTable, event: TableEvent) -> KvTable:
    """Everything except the status."""
    match event:
        case events.TableCreating():
            return _creating(table, event)
        case events.TableJoinedScope():
            return replace(table, has_joined_scope=True)
        case events.TableCreated() | events.TableSealed():
            return _ended(table)
        case events.TableConfigUpdated():
            return _satisfied(replace(table, config=event.config), event.command_id, "update")
        case events.TableSealing():
            return _accepted(table, _SEALING, event)
        case events.TableDeleting():
            return _accepted(_ended(table, event.ended_error), _DELETING, event)
        case events.TableCreateFailed():
            return _tombstone(_ended(table, event.error))
        case events.TableDeleted():
            return _tombstone(_ended(table))
        case events.TableIntentJoined():
            return _joined(table, event)
        case events.TableCommandSatisfied():
            return _satisfied(table, event.command_id, event.intent)
        case _:
            assert_never(event)


def _creating(table: KvTable, event: events.TableCreating) -> KvTable:
    partitions = _ranges(event.partitions)
    created = KvTable(
        ref=TableRef(ScopeName(event.scope), event.table),
        incarnation=event.incarnation,
        scope_incarnation=event.scope_incarnation,
        config=event.config,
        epochs=(TableEpoch(0, event.at_ms, partitions),),
        highest_number=max(table.highest_number, *(number_of(p.segment_id) for p in partitions)),
        created_ms=event.at_ms,
        operations=table.operations,
    )
    return _accepted(created, _CREATING, event)


def _ranges(planned: Iterable[PlannedPartition]) -> tuple[SegmentRange, ...]:
    return tuple(
        SegmentRange(SegmentId(p.segment_id), KeyRange(p.key_start, p.key_end)) for p in planned
    )


def _accepted(
    table: KvTable,
    status: TableState,
    event: events.TableCreating | events.TableSealing | events.TableDeleting,
) -> KvTable:
    return replace(
        table,
        pending=(event.command_id,),
        since_ms=event.at_ms,
        revision=event.revision,
        operations=operations.with_started(
            table.operations, event.command_id, KIND_OF[status], event.at_ms
        ),
    )


def _joined(table: KvTable, event: events.TableIntentJoined) -> KvTable:
    assert table.status is not None
    return replace(
        table,
        pending=(*table.pending, event.command_id),
        operations=operations.with_started(
            table.operations, event.command_id, KIND_OF[table.status], table.since_ms
        ),
    )


def _satisfied(table: KvTable, command_id: str, kind: str) -> KvTable:
    noted = operations.with_satisfied(table.operations, command_id, kind)
    return replace(table, operations=noted)


def _ended(table: KvTable, error: ErrorBody | None = None) -> KvTable:
    """End the pending commands, successfully or with `error`."""
    ended = operations.with_finished(table.operations, table.pending, error)
    return replace(table, pending=(), since_ms=0, operations=ended)


def _tombstone(table: KvTable) -> KvTable:
    """The permanent remainder of a deleted table."""
    return KvTable(
        ref=table.ref,
        incarnation=table.incarnation,
        scope_incarnation=table.scope_incarnation,
        highest_number=table.highest_number,
        created_ms=table.created_ms,
        operations=table.operations,
    )


def next_step(table: KvTable) -> TableStep | None:
    """The step that is due, if any."""
    match table.status:
        case TableState.CREATING if not table.has_joined_scope:
            return TableStep.JOIN_SCOPE
        case TableState.CREATING:
            return TableStep.CREATE_PARTITIONS
        case TableState.SEALING:
            return TableStep.SEAL_PARTITIONS
        case TableState.DELETING:
            return TableStep.DELETE_PARTITIONS
        case _:
            return None
