"""A transaction's state, and how events change it.

The table is `MACHINE`.

Leaving OPEN is the outcome, and so is the submission of a carried transaction: one append decides
it. The condition is on the transaction's subject, or, for a submission, on the stream's gate. The
work after an abort is the transaction's own. The work after a commit is the stream's, because it
takes turns with its scales, truncations and seal.

A controller holds tens of thousands of transactions. Values that many have in common (names,
labels) are therefore one object, and only parts and blocks are in containers.
"""

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple, assert_never

from anabranch.common.contracts.base import Base64
from anabranch.common.contracts.transactions import TransactionKey
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.machine import Machine, Row
from anabranch.controller.domain.transaction import events
from anabranch.controller.domain.transaction.events import AbortReason, TransactionEvent


class TransactionStep(StrEnum):
    """The steps of a transaction's workflow."""

    DELETE_SEGMENTS = "delete_segments"


class Carried(NamedTuple):
    """The block of a carried transaction for one segment of its epoch."""

    segment_id: int
    block: Base64


class ApplicationVersion(NamedTuple):
    """A `TransactionKey`, in less memory."""

    application: str
    version: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction.

    ref, incarnation     the stream and its incarnation
    transaction_id       begins with the time at which it was drawn
    status               None: the id was never used
    stream_epoch         the stream's epoch when it was opened
    writer               a label for operators
    opened_ms, ended_ms  Unix ms; `ended_ms` is 0 until it is COMMITTED or ABORTED
    lease_ms             the lease of the begin; `deadline_ms` decides
    execution_ms_max     the longest time after `opened_ms` to which pings may move the deadline
    deadline_ms          Unix ms after which it may be aborted
    has_parts            it is written in parts, one for each writer process
    parts                all parts that were ever added, in that order
    committed_parts      the valid parts, in merge order
    key                  the application's version that it commits, if any
    writer_id, timestamp_ms  the mark to note at the commit; "" and None without one
    blocks               the events, if its commit carried them: it has no lease and no segments
    abort_reason         the reason of the abort; "" if it is not aborted

    Invariants: `committed_parts` is a subset of `parts`; `deadline_ms` is at most `opened_ms` +
    `execution_ms_max`; `abort_reason` is set exactly if the outcome is an abort.
    `invariants.py` has all of them.
    """

    ref: StreamRef | None = None
    incarnation: int = 0
    transaction_id: str = ""
    status: TransactionState | None = None
    stream_epoch: int = 0
    writer: str = ""
    opened_ms: int = 0
    lease_ms: int = 0
    execution_ms_max: int = 0
    deadline_ms: int = 0
    has_parts: bool = False
    parts: tuple[str, ...] = ()
    committed_parts: tuple[str, ...] = ()
    key: ApplicationVersion | None = None
    writer_id: str = ""
    timestamp_ms: int | None = None
    ended_ms: int = 0
    blocks: tuple[Carried, ...] = ()
    abort_reason: AbortReason | Literal[""] = ""

    @property
    def is_open(self) -> bool:
        """Whether it has no outcome yet."""
        return self.status is TransactionState.OPEN

    @property
    def carried_size(self) -> int:
        """The bytes of its blocks; 0 unless its commit carried its events."""
        return sum(len(each.block) for each in self.blocks)

    @property
    def outcome(self) -> str:
        """ "committed", or the reason of the abort; "" while it is open."""
        has_outcome = self.status is not None and self.status.has_outcome
        return self.abort_reason or "committed" if has_outcome else ""

    @property
    def has_ended(self) -> bool:
        """Whether it has an outcome, and no work is left."""
        return self.status is not None and self.status.has_ended


_OPEN, _COMMITTING = TransactionState.OPEN, TransactionState.COMMITTING
_ABORTING = TransactionState.ABORTING

MACHINE: Machine[TransactionState] = Machine(
    Row(events.TransactionOpened, (None,), _OPEN, ("",)),
    Row(events.TransactionSubmitted, (None,), _COMMITTING, ("",)),
    Row(events.TransactionPinged, (_OPEN,), None, ("",)),
    Row(events.TransactionPartAdded, (_OPEN,), None, ("",)),
    Row(events.TransactionCommitting, (_OPEN,), _COMMITTING, ("",)),  # the stream does the rest
    Row(events.TransactionCommitted, (_COMMITTING,), TransactionState.COMMITTED, ("",)),
    Row(events.TransactionAborting, (_OPEN,), _ABORTING, (TransactionStep.DELETE_SEGMENTS,)),
    Row(events.TransactionAborted, (_ABORTING,), TransactionState.ABORTED, ("",)),
)


def evolve(txn: Transaction, event: TransactionEvent) -> Transaction:
    """The transaction after the event."""
    status = MACHINE.after(txn.status, event)
    return replace(_evolved(txn, event), status=status)


def _evolved(txn: Transaction, event: TransactionEvent) -> Transaction:
    """Everything except the status."""
    match event:
        case events.TransactionOpened():
            return _opened(event)
        case events.TransactionSubmitted():
            return _submitted(event)
        case events.TransactionPinged():
            return replace(txn, deadline_ms=event.deadline_ms)
        case events.TransactionPartAdded():
            return replace(txn, parts=(*txn.parts, event.part))
        case events.TransactionCommitting():
            return replace(
                txn,
                committed_parts=event.parts,
                writer_id=event.writer_id,
                timestamp_ms=event.timestamp_ms,
            )
        case events.TransactionCommitted():
            return replace(txn, ended_ms=event.at_ms)
        case events.TransactionAborting():
            return replace(txn, abort_reason=event.reason)
        case events.TransactionAborted():
            return replace(txn, ended_ms=event.at_ms)
        case _:
            assert_never(event)


def _opened(event: events.TransactionOpened) -> Transaction:
    return Transaction(
        ref=_ref(event.scope, event.stream),
        incarnation=event.incarnation,
        transaction_id=event.transaction_id,
        stream_epoch=event.stream_epoch,
        writer=sys.intern(event.writer),
        opened_ms=event.at_ms,
        lease_ms=event.lease_ms,
        execution_ms_max=event.execution_ms_max,
        deadline_ms=event.deadline_ms,
        has_parts=event.has_parts,
        key=_key(event.key),
    )


def _submitted(event: events.TransactionSubmitted) -> Transaction:
    return Transaction(
        ref=_ref(event.scope, event.stream),
        incarnation=event.incarnation,
        transaction_id=event.transaction_id,
        stream_epoch=event.stream_epoch,
        writer=sys.intern(event.writer),
        opened_ms=event.at_ms,
        blocks=tuple(Carried(each.segment_id, each.block) for each in event.blocks),
    )


def _ref(scope: str, stream: str) -> StreamRef:
    return StreamRef(ScopeName(sys.intern(scope)), StreamName(sys.intern(stream)))


def _key(key: TransactionKey | None) -> ApplicationVersion | None:
    if key is None:
        return None
    return ApplicationVersion(sys.intern(key.application), key.version)


def next_step(txn: Transaction) -> TransactionStep | None:
    """The due step of the transaction's own workflow, if any."""
    return TransactionStep.DELETE_SEGMENTS if txn.status is TransactionState.ABORTING else None
