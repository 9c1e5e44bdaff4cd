"""Outcomes: commit, abort, and what became of a transaction.

One append decides, by compare-and-set on the transaction's subject. Before a commit its segments
are there (and those of its parts are sealed and as long as was said), because what is merged has
to be. Whoever wants to know the end may wait for it, a bounded number of callers for a bounded
time; the others are told the outcome, which never changes.
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
    TransactionQuery,
)
from anabranch.common.errors import InvalidRequest, NotFound, Retry, StaleRequest
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.transaction import PART_LENGTHS_MAX, TransactionState
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.transactions.keys import commit_with_key
from anabranch.controller.handlers.transactions.lookup import (
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
    """As it stands. Raises TransactionNotFound, StreamNotFound, ScopeNotFound, Unavailable."""
    return described(desk, await find_present(desk, query))


async def commit_transaction(desk: QueryDesk, query: CommitTransaction) -> Contract:
    """Decide that it is committed. Idempotent.

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
    return described(desk, await _awaited(desk, query, found, query.wait_ms))


async def abort_transaction(desk: QueryDesk, query: AbortTransaction) -> Contract:
    """Decide that it is aborted. Idempotent.

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
    return described(desk, await _awaited(desk, query, found, query.wait_ms))


async def _with_parts(desk: QueryDesk, query: CommitTransaction) -> Found:
    """The transaction with all parts that the commit names, if it has them at all."""
    found = await find(desk, query)
    if not query.parts or found.state.has_outcome:
        return found
    known = set(found.loaded.state.parts)
    if all(part.part in known for part in query.parts):
        return found
    return await find_at_head(desk, query)


async def _committed(desk: QueryDesk, query: CommitTransaction, found: Found) -> Found:
    """One that seems to be open, once it has an outcome."""
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

    commit(found.loaded)  # what is refused touches no segment
    transaction = found.loaded.state
    # Stale: it has ended meanwhile, as the decision will find.
    with suppress(StaleRequest):
        if transaction.has_parts:
            await seal_parts(desk, transaction, await parents_of(desk, found), query.parts)
        else:
            await ensure_segments(desk, found)
    if transaction.key is not None:
        return await commit_with_key(desk, query, found, commit)
    return await decided(desk, query, found, commit)


async def _awaited(desk: QueryDesk, query: TransactionQuery, found: Found, wait_ms: int) -> Found:
    """It once it has ended, or as it is when the time is up; at once if too many wait."""
    waiting = desk.transactions.waiting
    if not wait_ms or found.state.has_ended or not waiting.enter():
        return found
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await _ended(desk, query, found)
    except (TimeoutError, Retry, NotFound):
        # The outcome is decided; that its end cannot be told is no failure.
        return found
    finally:
        waiting.leave()


async def _ended(desk: QueryDesk, query: TransactionQuery, found: Found) -> Found:
    """It once it has ended. What is dropped from the mirror the stream answers for."""
    subject = found.loaded.subject
    seen = ReadToken(shard=shard_of_subject(subject), sequence=found.loaded.sequence)
    await desk.mirror.at_least(seen)
    known = desk.mirror.transactions
    while True:
        ref, incarnation = ref_of(found.stream), found.stream.incarnation
        loaded = known.get(ref, incarnation, query.transaction_id)
        if loaded is None:
            return await find_at_head(desk, query)
        if loaded.state.has_ended:
            return Found(found.stream, loaded)
        await known.changed(subject)
