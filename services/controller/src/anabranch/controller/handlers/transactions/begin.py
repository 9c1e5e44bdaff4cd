"""Begin and resume transactions, and add parts to them.

Begin first stores the first message of the transaction's own subject, on the condition that the
stream's gate has not moved since it was seen open. Then it creates the segments. If the folded gate
is outdated, the condition fails, and the next attempt reads the gate from the store. The folded
epoch may be outdated as well. This does no harm: a transaction that was opened in an older epoch is
merged like all others of that epoch (`domain/stream/commits.py`).
"""

from contextlib import suppress

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import (
    transaction_events,
    transaction_gate,
)
from anabranch.common.contracts.transactions import (
    AddTransactionPart,
    BeginTransaction,
    CommitEvents,
    ResumeTransaction,
    TransactionBegun,
    TransactionQuery,
)
from anabranch.common.errors import (
    Busy,
    GateClosed,
    Overloaded,
    StaleRequest,
    StreamSealed,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import OPEN_MAX, transaction_id
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import answers, decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.handlers.desk.desk import QueryDesk, active_stream, meant_at_head
from anabranch.controller.handlers.transactions.lookup import (
    Found,
    decided,
    ended,
    find,
    find_at_head,
    find_present,
)
from anabranch.controller.handlers.transactions.segments import begun, make_segments, parents_of

BEGIN_ATTEMPTS_MAX = 3


async def begin(desk: QueryDesk, query: BeginTransaction) -> TransactionBegun:
    """Begin a transaction. Raises as `open_transaction`, TransactionEnded, Unavailable."""
    return await prepared(desk, await open_transaction(desk, query))


async def open_transaction(desk: QueryDesk, query: BeginTransaction) -> Found:
    """Store the open transaction; its segments do not exist yet.

    Raises StreamNotFound, ScopeNotFound, StreamSealed, Busy, InvalidRequest, Overloaded,
    OutcomeUnknown, Unavailable.
    """
    work = desk.transactions
    for attempt in range(BEGIN_ATTEMPTS_MAX):
        stream = await open_stream(desk, query)
        require_room(desk, stream)
        ref, incarnation = ref_of(stream), stream.incarnation
        gate = transaction_gate(ref, incarnation)
        sequence = await gate_sequence(desk, ref, gate, afresh=attempt > 0)
        now_ms = work.clock.now_ms()
        new = transaction_id(now_ms, work.ids.new_bytes())
        event = decide.opened(query, Opening(new, incarnation, stream.stream_epoch, now_ms))
        subject = transaction_events(ref, incarnation, new)
        with suppress(WrongExpectedSequence):
            loaded = await work.transactions.create(subject, [event], Gate(gate, sequence))
            return Found(stream, loaded)
    raise Busy(
        "every attempt met a change of the stream's gate",
        remedy="wait and try again",
        stream=f"{query.scope}/{query.stream}",
        attempts=BEGIN_ATTEMPTS_MAX,
    )


async def prepared(desk: QueryDesk, found: Found) -> TransactionBegun:
    """Create the segments of a transaction that was just opened.

    Raises TransactionEnded (it has ended already), Unavailable.
    """
    try:
        answer = await begun(desk, found)
    except StaleRequest as error:
        raise ended(found, "ended before the first write") from error
    return answer.model_copy(update={"is_new": True})


async def resume(desk: QueryDesk, query: TransactionQuery) -> TransactionBegun:
    """The segments in which the transaction's events go. Raises TransactionNotFound,
    StreamNotFound, ScopeNotFound, TransactionEnded, Busy, Unavailable.
    """
    try:
        return await begun(desk, await find_present(desk, query))
    except StaleRequest:
        found = await find_at_head(desk, query)
    if not found.state.has_outcome:
        raise Busy(
            "the transaction is changing",
            remedy="wait and try again", transaction=query.transaction_id,
        )  # fmt: skip
    return await begun(desk, found)


async def resume_transaction(desk: QueryDesk, query: ResumeTransaction) -> Contract:
    """Answer with `resume`."""
    return await resume(desk, query)


async def add_part(desk: QueryDesk, query: AddTransactionPart) -> Contract:
    """Add a part to the transaction, then create the part's segments. Idempotent.

    The part is stored before its segments exist, so the controller that ends the transaction knows
    every segment that it must delete. Raises TransactionNotFound, TransactionEnded, InvalidRequest,
    StreamNotFound, ScopeNotFound, Busy, OutcomeUnknown, Unavailable.
    """
    refused = "takes no more parts"
    found = await find(desk, query)
    if found.state.has_outcome:
        raise ended(found, refused)
    found = await decided(desk, query, found, lambda seen: decide.add_part(seen.state, query.part))
    if found.state.has_outcome:
        raise ended(found, refused)
    transaction, parents = found.loaded.state, await parents_of(desk, found)
    try:
        await make_segments(desk, transaction, parents, query.part)
    except StaleRequest as error:
        raise ended(await find_at_head(desk, query), refused) from error
    return TransactionBegun(
        transaction=found.info(desk.transactions.clock.now_ms()),
        segments=answers.to_write(transaction, parents, query.part),
    )


async def open_stream(desk: QueryDesk, query: BeginTransaction | CommitEvents) -> Stream:
    """The stream, if it takes new transactions.

    Raises StreamNotFound, ScopeNotFound, StreamSealed, Busy.
    """
    seen = active_stream(desk, query)
    is_meant = seen is not None and query.incarnation in (None, seen.state.incarnation)
    if seen is not None and is_meant and not _is_sealing(seen.state):
        return seen.state
    stream = (await meant_at_head(desk, query, query.incarnation)).state
    if stream.status is StreamState.SEALED or _is_sealing(stream):
        raise _sealed(str(stream.ref))
    if stream.status is not StreamState.ACTIVE:
        raise Busy("the stream is being created or deleted", stream=str(stream.ref))
    return stream


def _is_sealing(stream: Stream) -> bool:
    return intents.find(stream.intents, IntentKind.SEAL) is not None


def require_room(desk: QueryDesk, stream: Stream) -> None:
    """Raises Overloaded if the stream has too many transactions."""
    if desk.mirror.transactions.count(ref_of(stream), stream.incarnation) >= OPEN_MAX:
        raise Overloaded(
            "the stream has reached its maximum of open transactions",
            remedy="wait for some to end, or write more events in each",
            stream=str(stream.ref),
            limit=OPEN_MAX,
        )


async def gate_sequence(desk: QueryDesk, ref: StreamRef, gate: str, *, afresh: bool) -> int:
    """The gate's sequence. Raises StreamSealed only after reading the gate from the store."""
    folded = desk.mirror.transactions.gate(gate)
    if folded is not None and folded.is_open and not afresh:
        return folded.sequence
    try:
        return await desk.transactions.gates.open_sequence(gate)
    except GateClosed as error:
        raise _sealed(str(ref)) from error


def _sealed(stream: str) -> StreamSealed:
    return StreamSealed(
        "the stream is sealed, or about to be, and takes no more transactions",
        stream=stream,
    )
