"""Submit a carried transaction: one message begins and commits it, and has its events (ADR 19).

The client repeats the request with the same id until it knows the outcome, and asks any controller.
Its transaction is stored once, by these steps:

1. Take a sequence of the stream's gate up to which the mirror has folded.
2. Look for the id among the transactions and outcomes of the stream as folded by then. If it is
   there, the answer is its state.
3. Refuse an id that is out of time: the stream may have forgotten its outcome.
4. Append on the condition that the gate is still at that sequence.

Before the messages of a transaction are purged, the gate moves, and the stream has its outcome
before that (`periodic/purge_transactions.py`). So a copy that finds a fresh subject after a purge
fails at step 2, 3 or 4. Before the purge two copies may both be stored; the second one is void.

A refusal because of the epoch says nothing about other copies of the request. The client routes the
same events anew and submits them under the same id.
"""

from contextlib import suppress

from anabranch.common.contracts.base import Contract, ReadToken
from anabranch.common.contracts.subjects import (
    shard_of_subject,
    transaction_events,
    transaction_gate,
)
from anabranch.common.contracts.transactions import CommitEvents
from anabranch.common.errors import (
    Busy,
    EpochPassed,
    IdOutOfTime,
    InvalidRequest,
    StreamSealed,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.ports import Gate
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.handlers.desk.desk import QueryDesk, meant_at_head, meant_stream
from anabranch.controller.handlers.transactions.begin import (
    BEGIN_ATTEMPTS_MAX,
    gate_sequence,
    open_stream,
    require_room,
)
from anabranch.controller.handlers.transactions.lookup import Found, described, require_complete
from anabranch.controller.handlers.transactions.outcomes import awaited

STREAM_SIZE_BYTES_MAX = 8 * 1024 * 1024
SIZE_BYTES_MAX = 64 * 1024 * 1024
"""Blocks in the mirror, of one stream and of all; every controller has them in memory."""


async def commit_events(desk: QueryDesk, query: CommitEvents) -> Contract:
    """Decide to commit it. Idempotent.

    Raises EpochPassed, IdOutOfTime, StreamNotFound, ScopeNotFound, StreamSealed, InvalidRequest,
    the errors of a block, Busy, Overloaded, OutcomeUnknown, Unavailable.
    """
    found = await _submitted(desk, query)
    return described(desk, await awaited(desk, query, found, query.wait_ms))


async def _submitted(desk: QueryDesk, query: CommitEvents) -> Found:
    try:
        return await _attempted(desk, query)
    except (StreamSealed, EpochPassed, IdOutOfTime):
        # The client may have sent it before, and another controller may have stored it.
        stream = (await meant_at_head(desk, query, query.incarnation)).state
        known = await _known(desk, query, stream)
        if known is None:
            raise
        return known


async def _attempted(desk: QueryDesk, query: CommitEvents) -> Found:
    for attempt in range(BEGIN_ATTEMPTS_MAX):
        stream = (await meant_stream(desk, query, query.incarnation)).state
        gate = transaction_gate(ref_of(stream), stream.incarnation)
        sequence = await gate_sequence(desk, ref_of(stream), gate, afresh=attempt > 0)
        await desk.mirror.at_least(ReadToken(shard=shard_of_subject(gate), sequence=sequence))
        with suppress(WrongExpectedSequence):
            return await _decided(desk, query, Gate(gate, sequence))
    raise Busy(
        "every attempt met a change of the stream's gate",
        remedy="wait and try again",
        stream=f"{query.scope}/{query.stream}",
        attempts=BEGIN_ATTEMPTS_MAX,
    )


async def _decided(desk: QueryDesk, query: CommitEvents, gate: Gate) -> Found:
    """Decide on everything that was folded up to the gate, which the append requires to be still
    there. Raises WrongExpectedSequence, and as `commit_events`."""
    work = desk.transactions
    stream = await open_stream(desk, query)
    known = await _known(desk, query, stream)
    if known is not None:
        return known
    if stream.stream_epoch < query.stream_epoch:
        stream = (await meant_at_head(desk, query, query.incarnation)).state
    _require_epoch(query, stream)
    ref, transaction, now_ms = ref_of(stream), query.transaction_id, work.clock.now_ms()
    if not decide.is_in_time(transaction, now_ms):
        if stream.outcome_chunks:
            await require_complete(desk, query, stream.incarnation)
        raise IdOutOfTime(
            "the transaction is unknown, and its id is too old or of a future time",
            stream=str(ref), transaction=transaction, now_ms=now_ms,
        )  # fmt: skip
    require_room(desk, stream)
    _require_memory(desk, stream)
    opening = Opening(transaction, stream.incarnation, stream.stream_epoch, now_ms)
    events = decide.submitted(query, [each.segment_id for each in stream.segments], opening)
    subject = transaction_events(ref, stream.incarnation, transaction)
    return Found(stream, await work.transactions.create(subject, events, gate))


async def _known(desk: QueryDesk, query: CommitEvents, stream: Stream) -> Found | None:
    """The transaction, if it was submitted, as folded so far. Raises Corrupt, Unavailable."""
    ref = ref_of(stream)
    loaded = desk.mirror.transactions.get(ref, stream.incarnation, query.transaction_id)
    if loaded is not None:
        return Found(stream, loaded)
    outcome = await desk.transactions.outcomes.find(stream, query.transaction_id)
    return None if outcome is None else Found(stream, outcome)


def _require_epoch(query: CommitEvents, stream: Stream) -> None:
    """Raises EpochPassed, and InvalidRequest for an epoch that never was."""
    if query.stream_epoch > stream.stream_epoch:
        raise InvalidRequest(
            "the stream has no such epoch",
            stream=str(stream.ref), stream_epoch=query.stream_epoch,
        )  # fmt: skip
    if query.stream_epoch < stream.stream_epoch:
        raise EpochPassed(
            "the stream was scaled since the client asked for its segments",
            stream=str(stream.ref), stream_epoch=stream.stream_epoch,
        )  # fmt: skip


def _require_memory(desk: QueryDesk, stream: Stream) -> None:
    """Raises Busy if too many blocks wait for their merge."""
    known = desk.mirror.transactions
    of_stream = known.carried_size_of(ref_of(stream), stream.incarnation)
    if of_stream >= STREAM_SIZE_BYTES_MAX or known.carried_size >= SIZE_BYTES_MAX:
        raise Busy(
            "too many committed events wait for their merge",
            remedy="wait until the segment stores have taken some of them, then try again",
            stream=str(stream.ref), size=of_stream, limit=STREAM_SIZE_BYTES_MAX,
        )  # fmt: skip
