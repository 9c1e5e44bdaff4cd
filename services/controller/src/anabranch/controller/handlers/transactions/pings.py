"""Pings: many in one request, nearly all answered from the mirror without waiting.

A stored deadline reaches half a lease further than the ping requires, so most pings change nothing.
A ping that does is decided by compare-and-set, several concurrently. If the mirror does not know a
transaction, the handler looks again at the head, then among the stream's outcomes (see `lookup`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import transaction_events
from anabranch.common.contracts.transactions import (
    PingTransaction,
    PingTransactions,
    TransactionPinged,
    TransactionsPinged,
)
from anabranch.common.errors import Corrupt
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.transaction import TransactionState
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.decide import PingDecision
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk, meant_at_head, meant_stream
from anabranch.controller.handlers.transactions.lookup import require_complete

AT_ONCE_MAX = 32
_UNKNOWN = PingDecision((), None)
_UNREADABLE = PingDecision((), TransactionState.OPEN)
"""A transaction with damaged messages gets no promise; the others are prolonged."""


async def ping_transactions(desk: QueryDesk, query: PingTransactions) -> Contract:
    """Prolong the leases. Idempotent.

    Raises StreamNotFound, ScopeNotFound, Busy, OutcomeUnknown, Unavailable; some leases may be
    prolonged even then.
    """
    stream = (await meant_stream(desk, query, query.incarnation)).state
    pings = _Pings(desk, stream, query.pings)
    unknown = pings.look(range(len(query.pings)))
    if unknown:
        head = (await meant_at_head(desk, query, stream.incarnation)).state
        await pings.find_outcomes(head, pings.look(unknown))
    if gone := await pings.store():
        head = (await meant_at_head(desk, query, stream.incarnation)).state
        await pings.find_outcomes(head, gone)
    return TransactionsPinged(
        results=tuple(
            TransactionPinged(
                transaction_id=ping.transaction_id,
                state=decision.state,
                lease_left_ms=decision.lease_left_ms,
                refusal=decision.refusal,
            )
            for ping, decision in zip(query.pings, pings.decisions, strict=True)
        )
    )


class _Pings:
    """The pings of one request; `decisions` are in the same order."""

    def __init__(self, desk: QueryDesk, stream: Stream, pings: Sequence[PingTransaction]) -> None:
        self._desk = desk
        self._work = desk.transactions
        self._pings = pings
        self._ref = ref_of(stream)
        self._incarnation = stream.incarnation
        self._now_ms = self._work.clock.now_ms()
        self._to_store: list[int] = []
        self.decisions: list[PingDecision] = [_UNKNOWN] * len(pings)

    def look(self, indexes: Iterable[int]) -> list[int]:
        """Decide on the folded state; return the indexes of unknown transactions."""
        family = self._desk.mirror.transactions.family
        known, damaged = family.loaded, family.damaged
        unknown: list[int] = []
        for index in indexes:
            ping = self._pings[index]
            subject = self._subject(index)
            if subject in damaged:
                self.decisions[index] = _UNREADABLE
            elif (loaded := known.get(subject)) is None:
                unknown.append(index)
            else:
                decision = decide.ping(loaded.state, ping.lease_ms, self._now_ms)
                self.decisions[index] = decision
                if decision.events:
                    self._to_store.append(index)
        return unknown

    async def find_outcomes(self, stream: Stream, indexes: Sequence[int]) -> None:
        """Look up the outcomes of transactions that only the stream knows.

        Raises StreamNotFound, ScopeNotFound, Unavailable.
        """
        recent = {one.transaction_id: one for one in stream.outcomes}
        archived = replace(stream, outcomes=())

        async def find(index: int) -> None:
            transaction = self._pings[index].transaction_id
            outcome = recent.get(transaction)
            if outcome is None:
                outcome = await self._work.outcomes.find(archived, transaction)
            state = None if outcome is None else outcome.state
            self.decisions[index] = PingDecision((), state)

        await for_each(indexes, AT_ONCE_MAX, find)
        if stream.outcome_chunks and any(self.decisions[one].state is None for one in indexes):
            await require_complete(self._desk, self._ref, self._incarnation)

    async def store(self) -> list[int]:
        """Store the changed deadlines; return the indexes of transactions that are gone meanwhile.

        Raises Busy, OutcomeUnknown, Unavailable.
        """
        await for_each(self._to_store, AT_ONCE_MAX, self._store)
        return [index for index in self._to_store if self.decisions[index].state is None]

    async def _store(self, index: int) -> None:
        ping, subject = self._pings[index], self._subject(index)

        def prolong(seen: Loaded[Transaction]) -> Sequence[TransactionEvent]:
            self.decisions[index] = decide.ping(seen.state, ping.lease_ms, self._now_ms)
            return self.decisions[index].events

        try:
            await self._work.transactions.transact(subject, prolong)
        except Corrupt:
            self.decisions[index] = _UNREADABLE

    def _subject(self, index: int) -> str:
        transaction = self._pings[index].transaction_id
        return transaction_events(self._ref, self._incarnation, transaction)
