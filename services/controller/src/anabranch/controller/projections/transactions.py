"""The part of the mirror that knows transactions, their gates and the applications' versions.

Owns: every transaction that has not ended, and every ended one that its stream has not noted yet.
When an event of the stream records the outcome, the mirror drops the transaction, and its messages
may be purged. From then on the stream's outcomes answer for it. A chunk of outcomes that left the
stream's state says the same of older transactions, to a mirror that has not seen those events.

Transactions commit in the order in which the shard stored the messages that decided them. This
order is noted as the messages are folded.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from anabranch.common.contracts.subjects import (
    kind_of_subject,
    transaction_events,
    transaction_gate,
    transaction_key,
    transaction_outcomes,
)
from anabranch.common.errors import Corrupt
from anabranch.common.eventsourcing.gate import GateState, gate_after
from anabranch.common.eventsourcing.message import KIND_EVENTS
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.transaction import TransactionState, drawn_ms
from anabranch.controller.domain.application import Application
from anabranch.controller.domain.stream.state import (
    NO_TRANSACTIONS,
    Stream,
    TransactionsSeen,
)
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.projections.family import Family
from anabranch.controller.projections.outcomes import outcomes_of
from anabranch.controller.projections.transaction_slots import TransactionSlots
from anabranch.controller.projections.transaction_tally import TransactionTally

GATES, OUTCOMES = "txngate", "txnout"
"""The kinds in the subjects of these gates, and of the chunks of outcomes."""
_OPEN_GATE = GateState()


@dataclass(slots=True)
class _OfStream:
    """Subjects of one stream's transactions; `committing` with their places in the commit order.
    `doubtful`: the carried ones that may have ended, because this chunk of outcomes cannot be read.
    `carried_size`: the bytes of the blocks that they carry."""

    ref: StreamRef
    incarnation: int
    all: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    committing: dict[str, int] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    doubtful: dict[str, Corrupt] = field(default_factory=dict)
    carried_size: int = 0


_NONE = _OfStream(StreamRef(ScopeName(""), StreamName("")), 0)


class TransactionMirror:
    """The index of transactions by stream; the mirror feeds it."""

    def __init__(
        self, transactions: Family[Transaction], applications: Family[Application]
    ) -> None:
        self.family = transactions
        self.applications = applications
        self.tally = TransactionTally()
        self.slots = TransactionSlots()
        self.carried_size = 0
        """The bytes of all blocks that known transactions carry."""
        self._by_stream: dict[tuple[StreamRef, int], _OfStream] = {}
        self._by_chunks: dict[str, _OfStream] = {}
        self._gates: dict[str, GateState | None] = {}
        self._waiters: dict[str, asyncio.Event] = {}
        self._unsure: set[str] = set()

    # --- feeding ------------------------------------------------------------------------------

    def is_over(self, message: EventMessage) -> bool:
        """Whether the message belongs to a transaction that was dropped, so that nothing follows
        from it: a copy of a carried one, or the late record of its end."""
        subject = message.subject
        if self.slots.has_ended(subject):
            return True
        is_known = subject in self.family.loaded or subject in self.family.damaged
        return message.revision > 1 and message.kind == KIND_EVENTS and not is_known

    def learn(self, message: EventMessage, change: tuple[Transaction, Transaction] | None) -> None:
        """Note a folded message of a transaction. `change` is (before, after), or None if
        unreadable.
        """
        self._announce(message.subject)
        if change is None:
            self.slots.keep(message.subject)
            self.tally.forget(message.subject)
            return
        before, after = change
        self.tally.keep(message.subject, after, message.stored_ms)
        assert after.ref is not None
        gate = transaction_gate(after.ref, after.incarnation) if after.blocks else ""
        self.slots.keep(message.subject, gate)
        of = self._of_stream(after.ref, after.incarnation)
        of.all.add(message.subject)
        if after.blocks and not before.blocks:
            of.carried_size += after.carried_size
            self.carried_size += after.carried_size
        if after.status is not TransactionState.COMMITTING:
            of.committing.pop(message.subject, None)
        elif before.status is not TransactionState.COMMITTING:
            of.committing[message.subject] = message.sequence
        if not after.is_open:
            of.decided.add(message.subject)
        if after.status is TransactionState.ABORTED:
            of.aborted.add(message.subject)

    def _of_stream(self, ref: StreamRef, incarnation: int) -> _OfStream:
        of = self._by_stream.get((ref, incarnation))
        if of is None:
            of = self._by_stream[ref, incarnation] = _OfStream(ref, incarnation)
            self._by_chunks[_chunks_of(of)] = of
        return of

    def fold_other(self, message: EventMessage) -> None:
        """Fold a message of a stream's gate, or a chunk of its outcomes; ignore others."""
        kind = kind_of_subject(message.subject)
        if kind == GATES:
            self._fold_gate(message)
        elif kind == OUTCOMES:
            self._drop_archived(message)

    def _fold_gate(self, message: EventMessage) -> None:
        self.slots.moved(message.subject)
        try:
            known = self._gates.get(message.subject) or _OPEN_GATE
            self._gates[message.subject] = gate_after([message], known)
        except Corrupt:
            self._gates[message.subject] = None

    def _drop_archived(self, message: EventMessage) -> None:
        """Drop the transactions in a chunk of outcomes. A mirror that has not seen the batch of a
        carried transaction knows only by the chunk that the transaction has ended."""
        of = self._archived_in(message.subject)
        if of is None:
            return
        try:
            for outcome in outcomes_of(message):
                self.forget(transaction_events(of.ref, of.incarnation, outcome.transaction_id))
        except Corrupt as error:
            self._doubt(of, error)

    def lose(self, subject: str, error: Corrupt) -> None:
        """Note that a defect kept a message of a gate, or a chunk of outcomes, from being folded.
        The next message of a gate holds the whole state."""
        kind = kind_of_subject(subject)
        if kind == GATES:
            self._gates[subject] = None
        elif kind == OUTCOMES and (of := self._archived_in(subject)) is not None:
            self._doubt(of, error)

    def _doubt(self, of: "_OfStream", error: Corrupt) -> None:
        """Any of the carried transactions known so far may be in the chunk."""
        known = ((one, self.family.known(one)) for one in of.committing)
        carried = [one for one, loaded in known if loaded is not None and loaded.state.blocks]
        of.doubtful.update(dict.fromkeys(carried, error))

    def _archived_in(self, chunk: str) -> "_OfStream | None":
        """The transactions of the stream that the chunk belongs to; None if none is known."""
        return self._by_chunks.get(chunk.rpartition(".")[0])

    def drop_ended(self, before: Stream, after: Stream) -> None:
        """Drop the transactions whose outcomes the stream has recorded, and those of incarnations
        that are deleted: a stream that is deleted was drained before."""
        if not after.is_live or after.incarnation != before.incarnation:
            self._drop_deleted(after)
        if after.outcome_count == before.outcome_count:
            return
        assert after.ref is not None
        added = after.outcome_count - before.outcome_count
        if before.ref is not None and added > len(after.outcomes):
            # More outcomes were added than the state lists, because messages were purged unread.
            self._unsure |= {one for one in self._of(after).all if self._has_outcome(one)}
        for outcome in after.outcomes[-added:]:
            self.forget(transaction_events(after.ref, after.incarnation, outcome.transaction_id))

    def _drop_deleted(self, after: Stream) -> None:
        last = after.incarnation - 1 if after.is_live else after.incarnation
        for (ref, incarnation), of in list(self._by_stream.items()):
            if ref == after.ref and incarnation <= last:
                for subject in list(of.all):
                    self.forget(subject)

    def drop_applications(self, deleted: Stream) -> None:
        """Drop the applications of a deleted stream."""
        assert deleted.ref is not None
        start = transaction_key(deleted.ref, deleted.incarnation, "")
        known = {*self.applications.loaded, *self.applications.damaged}
        for subject in [one for one in known if one.startswith(start)]:
            self.applications.forget(subject)
        # A request for the gate of a deleted stream reads it from the event store.
        self._gates.pop(transaction_gate(deleted.ref, deleted.incarnation), None)

    def forget(self, subject: str) -> None:
        """Drop a transaction that does not exist any more, or never did."""
        loaded = self.family.forget(subject)
        self.tally.forget(subject)
        is_carried = loaded is not None and bool(loaded.state.blocks)
        self.slots.forget(subject, is_carried=is_carried)
        self._unsure.discard(subject)
        self._announce(subject)
        if loaded is None:
            return
        assert loaded.state.ref is not None
        key = (loaded.state.ref, loaded.state.incarnation)
        of = self._by_stream[key]
        of.all.discard(subject)
        of.decided.discard(subject)
        of.committing.pop(subject, None)
        of.aborted.discard(subject)
        of.carried_size -= loaded.state.carried_size
        self.carried_size -= loaded.state.carried_size
        of.doubtful.pop(subject, None)
        if not of.all:
            del self._by_stream[key], self._by_chunks[_chunks_of(of)]

    async def make_sure(self, stream: StreamRef, incarnation: int) -> None:
        """Load the transactions that may have ended unseen. Raises Unavailable, Corrupt."""
        of = self._by_stream.get((stream, incarnation), _NONE)
        for subject in sorted(self._unsure & of.all):
            if (await self.family.repository.load(subject)).state.status is None:
                self.forget(subject)
            self._unsure.discard(subject)

    def _announce(self, subject: str) -> None:
        if (waiting := self._waiters.pop(subject, None)) is not None:
            waiting.set()

    # --- looking ------------------------------------------------------------------------------

    def get(
        self, stream: StreamRef, incarnation: int, transaction: str
    ) -> Loaded[Transaction] | None:
        """A transaction that the stream does not answer for. Raises Corrupt."""
        return self.family.get(transaction_events(stream, incarnation, transaction))

    def seen(self, stream: Stream) -> TransactionsSeen:
        """Whether the stream has transactions to commit, and aborted ones to note."""
        of = self._of(stream)
        if not of.all:
            return NO_TRANSACTIONS
        return TransactionsSeen(bool(of.committing), bool(of.aborted))

    def has_any(self, stream: Stream) -> bool:
        """Whether the mirror knows any transaction of the stream."""
        return bool(self._of(stream).all)

    def oldest_ms(self, stream: Stream) -> int:
        """When the oldest one began whose events are not in the stream yet, by its id; 0: none."""
        of = self._of(stream)
        waiting = of.all - of.aborted if of.aborted else of.all
        return min((drawn_ms(one.rpartition(".")[2]) for one in waiting), default=0)

    def count(self, stream: StreamRef, incarnation: int) -> int:
        """The number of the stream's known transactions."""
        return len(self._by_stream.get((stream, incarnation), _NONE).all)

    def carried_size_of(self, stream: StreamRef, incarnation: int) -> int:
        """The bytes of the blocks that the stream's known transactions carry."""
        return self._by_stream.get((stream, incarnation), _NONE).carried_size

    def listed(self, stream: StreamRef, incarnation: int) -> Sequence[Loaded[Transaction]]:
        """The stream's known transactions, those to be committed first, in commit order. Raises
        Corrupt.
        """
        of = self._by_stream.get((stream, incarnation), _NONE)
        return self._in_order(of.all, of.committing)

    def decided(self, stream: StreamRef, incarnation: int) -> Sequence[Loaded[Transaction]]:
        """`listed` without the open ones.

        Raises Corrupt for an unreadable transaction, which may have an outcome and a place in the
        order, and for a carried one that may have ended.
        """
        of = self._by_stream.get((stream, incarnation), _NONE)
        for error in of.doubtful.values():
            raise error
        return self._in_order(of.decided | (self.family.damaged.keys() & of.all), of.committing)

    def _in_order(
        self, subjects: Set[str], committing: Mapping[str, int]
    ) -> Sequence[Loaded[Transaction]]:
        first = sorted(committing, key=committing.__getitem__)
        rest = sorted(subject for subject in subjects if subject not in committing)
        found = (self.family.get(subject) for subject in (*first, *rest))
        return [loaded for loaded in found if loaded is not None]

    def all(self) -> Iterator[Loaded[Transaction]]:
        """All readable transactions, unordered; use it before the next await."""
        return self.family.readable()

    def gate(self, subject: str) -> GateState | None:
        """A stream's gate as folded so far; None if it cannot be read."""
        return self._gates.get(subject, _OPEN_GATE)

    async def changed(self, subject: str) -> None:
        """Wait until the transaction changes or is dropped."""
        await self._waiters.setdefault(subject, asyncio.Event()).wait()

    def _has_outcome(self, subject: str) -> bool:
        loaded = self.family.known(subject)
        return loaded is None or not loaded.state.is_open

    def _of(self, stream: Stream) -> _OfStream:
        if stream.ref is None:
            return _NONE
        return self._by_stream.get((stream.ref, stream.incarnation), _NONE)


def _chunks_of(of: _OfStream) -> str:
    """The beginning of the subjects of the stream's chunks of outcomes."""
    return transaction_outcomes(of.ref, of.incarnation, 0).rpartition(".")[0]
