"""Find a transaction and describe it.

The mirror knows every transaction that has not ended, and every ended one that its stream has not
noted yet. The outcomes of all others are in the stream's state or in its history chunks. Only a
search at the head may conclude that a transaction does not exist, and only if the stream is not
being deleted after the search: the deletion of a stream deletes the chunks first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.subjects import transaction_events
from anabranch.common.contracts.transactions import (
    TransactionDescription,
    TransactionInfo,
    TransactionQuery,
)
from anabranch.common.errors import (
    Busy,
    StreamNotFound,
    TransactionEnded,
    TransactionNotFound,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import answers
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import (
    AboutStream,
    QueryDesk,
    meant_at_head,
    meant_stream,
)

Decide = Callable[[Loaded[Transaction]], Sequence[TransactionEvent]]


class AboutTransaction(AboutStream, Protocol):
    """A query about one transaction; `incarnation` None: of the stream's present one."""

    @property
    def transaction_id(self) -> str: ...

    @property
    def incarnation(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Found:
    """A transaction and its stream. If `known` is an `Outcome`, its own messages are gone."""

    stream: Stream
    known: Loaded[Transaction] | Outcome

    @property
    def state(self) -> TransactionState:
        """Its current state."""
        if isinstance(self.known, Outcome):
            return self.known.state
        assert self.known.state.status is not None
        return self.known.state.status

    @property
    def loaded(self) -> Loaded[Transaction]:
        """The transaction itself; only if the outcome is not all that is left of it."""
        assert not isinstance(self.known, Outcome)
        return self.known

    def info(self, now_ms: int) -> TransactionInfo:
        """Its description."""
        if isinstance(self.known, Outcome):
            return info_of(self.known, self.stream.incarnation)
        return answers.described(self.known.state, now_ms)


def info_of(outcome: Outcome, incarnation: int) -> TransactionInfo:
    """A description from the outcome, which is all that is left of an older transaction."""
    return TransactionInfo(
        transaction_id=outcome.transaction_id,
        state=outcome.state,
        incarnation=incarnation,
        stream_epoch=outcome.stream_epoch,
        ended_ms=outcome.ended_ms,
    )


async def find(desk: QueryDesk, query: TransactionQuery) -> Found:
    """The transaction as folded so far, as this controller stored it just now, or at the head.

    Raises TransactionNotFound, StreamNotFound, ScopeNotFound, Unavailable.
    """
    stream = (await meant_stream(desk, query, query.incarnation)).state
    loaded = desk.mirror.transactions.get(ref_of(stream), stream.incarnation, query.transaction_id)
    if loaded is not None:
        return Found(stream, loaded)
    subject = transaction_events(ref_of(stream), stream.incarnation, query.transaction_id)
    stored = desk.transactions.transactions.known(subject)
    if stored is not None and stored.state.is_open:
        return Found(stream, stored)
    return await find_at_head(desk, query)


async def find_present(desk: QueryDesk, query: TransactionQuery) -> Found:
    """The transaction, at the head if it seems to be open. Raises as `find`.

    A caller that has just decided the outcome must not get the answer that it is still open.
    """
    found = await find(desk, query)
    return found if found.state.has_outcome else await find_at_head(desk, query)


async def find_at_head(desk: QueryDesk, query: AboutTransaction) -> Found:
    """The transaction with everything stored by now. Raises as `find`."""
    stream = (await meant_at_head(desk, query, query.incarnation)).state
    ref = ref_of(stream)
    loaded = desk.mirror.transactions.get(ref, stream.incarnation, query.transaction_id)
    if loaded is not None:
        return Found(stream, loaded)
    outcome = await desk.transactions.outcomes.find(stream, query.transaction_id)
    if outcome is None:
        if stream.outcome_chunks:
            await require_complete(desk, query, stream.incarnation)
        raise TransactionNotFound(
            "no such transaction", stream=str(ref), transaction=query.transaction_id
        )
    return Found(stream, outcome)


async def require_complete(desk: QueryDesk, query: AboutStream, incarnation: int) -> None:
    """Call it after a search that found nothing, before concluding that nothing was ever there.

    Raises StreamNotFound if the search may have missed what the stream's deletion has deleted,
    ScopeNotFound, Unavailable.
    """
    stream = (await meant_at_head(desk, query, incarnation)).state
    if stream.status is StreamState.DELETING:
        raise StreamNotFound(
            "the stream is being deleted, together with the outcomes of its transactions",
            stream=f"{query.scope}/{query.stream}",
        )


async def decided(desk: QueryDesk, query: TransactionQuery, found: Found, decide: Decide) -> Found:
    """Decide on a transaction; if it ended meanwhile, return its outcome from the stream.

    Raises the errors of `decide` and of the append, and as `find_at_head`.
    """
    try:
        after = await desk.transactions.transactions.transact(found.loaded.subject, decide)
    except TransactionNotFound:
        return await found_ended(desk, query)
    return Found(found.stream, after)


async def found_ended(desk: QueryDesk, query: TransactionQuery) -> Found:
    """A transaction whose own messages are gone. Raises as `find_at_head`, and Busy."""
    found = await find_at_head(desk, query)
    if not found.state.has_outcome:
        raise Busy(
            "the transaction is changing",
            remedy="wait and try again", transaction=query.transaction_id,
        )  # fmt: skip
    return found


def ended(found: Found, what: str) -> TransactionEnded:
    """The error for a request that comes after the transaction's outcome."""
    transaction = (
        found.known.transaction_id
        if isinstance(found.known, Outcome)
        else found.known.state.transaction_id
    )
    return TransactionEnded(
        f"the transaction is {found.state} and {what}",
        transaction=transaction,
        state=found.state.value,
    )


def described(desk: QueryDesk, found: Found) -> TransactionDescription:
    """The answer that describes it."""
    work, shard = desk.transactions, shard_of(str(ref_of(found.stream)))
    sequence = max(desk.mirror.reached()[shard], work.transactions.seen(shard))
    return TransactionDescription(
        transaction=found.info(work.clock.now_ms()),
        read_token=ReadToken(shard=shard, sequence=sequence),
    )
