"""Requests to the controller about the transactions of one stream.

Every request is idempotent (the contracts explain why). A request is therefore sent until its reply
comes or its deadline passes: a lost reply is no outcome. After the deadline, the last error is
raised.
"""

from collections.abc import Mapping
from typing import Any

from anabranch.client.backoff import Backoff
from anabranch.client.settings import BackoffSettings
from anabranch.client.wire.control import QUERY_TIMEOUT_S, A, ControlPlane
from anabranch.common.contracts import transactions as t
from anabranch.common.contracts.queries import Query
from anabranch.common.errors import (
    InvalidRequest,
    OutcomeUnknown,
    Remedy,
    Retry,
    TransactionEnded,
    TransactionNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.transaction import TransactionState, check_id
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng

COMMIT_WAIT_MS = 1_500
"""How long one request may wait for a commit's end: shorter than one attempt."""
POLL_FIRST_S = 0.01
POLL_LONGEST_S = 0.5


class TransactionCalls:
    """Requests of one stream. All raise StreamNotFound, ScopeNotFound, and Unavailable if no reply
    comes in time; requests about one transaction also InvalidRequest (malformed id) and
    TransactionNotFound."""

    def __init__(self, stream: StreamRef, control: ControlPlane, clock: Clock, rng: Rng) -> None:
        self.stream = stream
        self._control = control
        self._clock = clock
        self._rng = rng

    @property
    def names(self) -> Mapping[str, Any]:
        """The fields of a query that name the stream."""
        return {"scope": self.stream.scope, "stream": self.stream.stream}

    def deadline(self, timeout_s: float) -> float:
        """The deadline on the clock that the calls use."""
        return self._clock.monotonic() + timeout_s

    def time_is_up(self, deadline_s: float) -> bool:
        return self._clock.monotonic() >= deadline_s

    async def ask(
        self, name: str, query: Query, answer: type[A], *, deadline_s: float | None = None
    ) -> A:
        """Ask until a reply comes; at least once. `deadline_s` None: the default timeout."""
        if deadline_s is None:
            deadline_s = self.deadline(QUERY_TIMEOUT_S)
        backoff = Backoff(BackoffSettings(), self._rng, max(0.001, self._left(deadline_s)))
        while True:
            timeout_s = min(max(self._left(deadline_s), POLL_FIRST_S), QUERY_TIMEOUT_S)
            try:
                return await self._control.query(name, query, answer, timeout_s=timeout_s)
            except (Retry, OutcomeUnknown):
                pause_s = backoff.failed(self._clock.monotonic())
                if pause_s is None or pause_s >= self._left(deadline_s):
                    raise
            await self._clock.sleep(pause_s)

    def _left(self, deadline_s: float) -> float:
        return deadline_s - self._clock.monotonic()

    # --- one transaction ------------------------------------------------------------------

    async def resume(self, transaction_id: str) -> t.TransactionBegun:
        query = t.ResumeTransaction(**self.names, transaction_id=check_id(transaction_id))
        return await self.ask("resume_transaction", query, t.TransactionBegun)

    async def describe(
        self, transaction_id: str, *, deadline_s: float | None = None
    ) -> t.TransactionInfo:
        query = t.DescribeTransaction(**self.names, transaction_id=check_id(transaction_id))
        found = await self.ask(
            "describe_transaction", query, t.TransactionDescription, deadline_s=deadline_s
        )
        return found.transaction

    async def commit(self, query: t.CommitTransaction, deadline_s: float) -> t.TransactionInfo:
        """Raises also TransactionEnded, PartMismatch, VersionPassed, InvalidRequest, and
        OutcomeUnknown (fields {transaction, stream}) if no reply comes in time."""
        try:
            found = await self.ask(
                "commit_transaction", query, t.TransactionDescription, deadline_s=deadline_s
            )
        except (Retry, OutcomeUnknown) as error:
            raise OutcomeUnknown(
                "no reply in time about the outcome of the commit",
                remedy=look_up(self.stream, query.transaction_id),
                transaction=query.transaction_id, stream=str(self.stream), cause=error.code,
            ) from error  # fmt: skip
        return found.transaction

    async def abort(
        self, transaction_id: str, timeout_s: float, *, wait_ms: int = 0
    ) -> t.TransactionInfo:
        """Raises also TransactionEnded (it is committed). `wait_ms`: for its end."""
        query = t.AbortTransaction(
            **self.names, transaction_id=check_id(transaction_id), wait_ms=wait_ms
        )
        found = await self.ask(
            "abort_transaction", query, t.TransactionDescription,
            deadline_s=self.deadline(timeout_s),
        )  # fmt: skip
        return found.transaction

    async def until_ended(self, transaction_id: str, deadline_s: float) -> t.TransactionInfo:
        """Describe it until it has ended; returns it as COMMITTED, or COMMITTING at the deadline.

        Raises also TransactionEnded (it is aborted, or about to be), and OutcomeUnknown if it is
        still open at the deadline.
        """
        pause_s = POLL_FIRST_S
        while True:
            info = await self.describe(transaction_id, deadline_s=deadline_s)
            refuse_unless_committed(self.stream, info)
            if info.state is TransactionState.COMMITTED:
                return info
            if self.time_is_up(deadline_s):
                if info.state is TransactionState.COMMITTING:
                    return info
                raise OutcomeUnknown(
                    "the transaction is still open", remedy="commit the transaction, or wait again",
                    transaction=transaction_id, stream=str(self.stream),
                )  # fmt: skip
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, POLL_LONGEST_S)

    async def ping(self, transaction_id: str, lease_ms: int | None) -> t.TransactionPinged:
        """Raises also TransactionEnded, InvalidRequest (`lease_ms` is out of range)."""
        ping = t.PingTransaction(transaction_id=check_id(transaction_id), lease_ms=lease_ms)
        query = t.PingTransactions(**self.names, pings=(ping,))
        answer = await self.ask("ping_transactions", query, t.TransactionsPinged)
        pinged = answer.results[0]
        if pinged.state is None:
            raise TransactionNotFound(
                "there is no such transaction", stream=str(self.stream), transaction=transaction_id
            )
        if pinged.state.has_outcome:
            raise ended(self.stream, transaction_id, pinged.state)
        if pinged.refusal == "lease_out_of_range":
            raise InvalidRequest("the lease is out of range", lease_ms=lease_ms)
        return pinged


def ended(stream: StreamRef, transaction_id: str, state: TransactionState) -> TransactionEnded:
    """The error of a request after the outcome."""
    return TransactionEnded(
        f"the transaction is {state.value}",
        stream=str(stream),
        transaction=transaction_id,
        state=state.value,
    )


def refuse_unless_committed(stream: StreamRef, info: t.TransactionInfo) -> None:
    """Raises TransactionEnded if it is aborted, or about to be."""
    if info.state in (TransactionState.ABORTING, TransactionState.ABORTED):
        raise ended(stream, info.transaction_id, info.state)


def look_up(stream: StreamRef, transaction_id: str) -> Remedy:
    """The remedy if the outcome of a transaction is unknown; a decided one never changes."""
    return Remedy(
        "look up the transaction's state, or commit again",
        api=f'`client.transactions("{stream}").describe("{transaction_id}")` returns its state; '
        "a repeated commit does no harm",
        http=f"`GET /v1/scopes/{stream.scope}/streams/{stream.stream}/transactions/"
        f"{transaction_id}` returns its state; a repeated commit does no harm",
        command=f"`anabranch transaction show {stream} {transaction_id}` shows its state; "
        "a repeated commit does no harm",
    )
