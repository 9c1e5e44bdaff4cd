"""Decide outcomes: commit, abort, and describe a transaction.

One append decides, by compare-and-set on the transaction's subject. Before a commit, the controller
ensures that every segment exists, because a merge needs every source segment. If the transaction
has parts, their segments are also sealed and have the lengths that the commit names. A caller may
wait for the transaction's end; the number of waiting callers and their time are bounded. Other
callers get the outcome at once, which never changes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from anabranch.common.contracts.base import Contract, ReadToken
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.contracts.transactions import (
    AbortTransaction,
    CommitTransaction,
    DescribeTransaction,
)
from anabranch.common.errors import InvalidRequest, NotFound, Retry, StaleRequest
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.transaction import PART_LENGTHS_MAX, TransactionState
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk, meant_stream
from anabranch.controller.handlers.transactions.keys import commit_with_key
from anabranch.controller.handlers.transactions.lookup import (
    AboutTransaction,
    Found,
    decided,
    described,
    ended,
    find,
    find_at_head,
    find_present,
)
from anabranch.controller.handlers.transactions.segments import (
    ensure_segments,
    parents_of,
    seal_parts,
)

_ABORTS = (TransactionState.ABORTING, TransactionState.ABORTED)
_COMMITS = (TransactionState.COMMITTING, TransactionState.COMMITTED)


async def describe_transaction(desk: QueryDesk, query: DescribeTransaction) -> Contract:
    """Describe it. Raises TransactionNotFound, StreamNotFound, ScopeNotFound, Unavailable."""
    return described(desk, await find_present(desk, query))


async def commit_transaction(desk: QueryDesk, query: CommitTransaction) -> Contract:
    """Decide to commit it. Idempotent.

    Raises TransactionNotFound, TransactionEnded, PartMismatch, VersionPassed, InvalidRequest,
    StreamNotFound, ScopeNotFound, Busy, OutcomeUnknown, Unavailable.
    """
    if sum(len(part.lengths) for part in query.parts) > PART_LENGTHS_MAX:
        raise InvalidRequest(
            "the commit names too many lengths of parts",
            remedy="use fewer parts",
            limit=PART_LENGTHS_MAX,
        )
    found = await _with_parts(desk, query)
    if not found.state.has_outcome:
        found = await _committed(desk, query, found)
    if found.state in _ABORTS:
        raise ended(found, "cannot be committed")
    return described(desk, await awaited(desk, query, found, query.wait_ms))


async def abort_transaction(desk: QueryDesk, query: AbortTransaction) -> Contract:
    """Decide to abort it. Idempotent.

    Raises TransactionNotFound, TransactionEnded, StreamNotFound, ScopeNotFound, Busy,
    OutcomeUnknown, Unavailable.
    """
    found, now_ms = await find(desk, query), desk.transactions.clock.now_ms()
    if not found.state.has_outcome:
        found = await decided(
            desk, query, found, lambda seen: decide.abort(seen.state, "asked", now_ms)
        )
    if found.state in _COMMITS:
        raise ended(found, "cannot be aborted")
    return described(desk, await awaited(desk, query, found, query.wait_ms))


async def _with_parts(desk: QueryDesk, query: CommitTransaction) -> Found:
    """The transaction; at the head if the mirror does not know a part that the commit names."""
    found = await find(desk, query)
    if not query.parts or found.state.has_outcome:
        return found
    known = set(found.loaded.state.parts)
    if all(part.part in known for part in query.parts):
        return found
    return await find_at_head(desk, query)


async def _committed(desk: QueryDesk, query: CommitTransaction, found: Found) -> Found:
    """Decide the outcome of a transaction that seems to be open."""
    now_ms = desk.transactions.clock.now_ms()
    parts = [part.part for part in query.parts]

    def commit(seen: Loaded[Transaction]) -> Sequence[TransactionEvent]:
        return decide.commit(
            seen.state,
            parts,
            writer_id=query.writer_id,
            timestamp_ms=query.timestamp_ms,
            now_ms=now_ms,
        )

    commit(found.loaded)  # a refused commit touches no segment
    transaction = found.loaded.state
    # A stale request means that the transaction has ended; the decision below finds its outcome.
    with suppress(StaleRequest):
        if transaction.has_parts:
            await seal_parts(desk, transaction, await parents_of(desk, found), query.parts)
        else:
            await ensure_segments(desk, found)
    if transaction.key is not None:
        return await commit_with_key(desk, query, found, commit)
    return await decided(desk, query, found, commit)


async def awaited(desk: QueryDesk, query: AboutTransaction, found: Found, wait_ms: int) -> Found:
    """The transaction once it has ended, or as it is after `wait_ms`; at once if too many wait."""
    waiting = desk.transactions.waiting
    if not wait_ms or found.state.has_ended or not waiting.enter():
        return found
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await _ended(desk, query, found)
    except (TimeoutError, Retry, NotFound):
        # The outcome is decided, so a failure to observe the end is no failure of the request.
        return found
    finally:
        waiting.leave()


async def _ended(desk: QueryDesk, query: AboutTransaction, found: Found) -> Found:
    """The transaction once it has ended. If the mirror dropped it, the stream has its outcome."""
    subject = found.loaded.subject
    seen = ReadToken(shard=shard_of_subject(subject), sequence=found.loaded.sequence)
    await desk.mirror.at_least(seen)
    known = desk.mirror.transactions
    while True:
        ref, incarnation = ref_of(found.stream), found.stream.incarnation
        loaded = known.get(ref, incarnation, query.transaction_id)
        if loaded is None:
            stream = (await meant_stream(desk, query, incarnation)).state
            outcome = await desk.transactions.outcomes.find(stream, query.transaction_id)
            if outcome is not None:
                return Found(stream, outcome)
            return await find_at_head(desk, query)
        if loaded.state.has_ended:
            return Found(found.stream, loaded)
        await known.changed(subject)
