"""Archive the outcomes of a stream's transactions: write a chunk, then record that it holds them.

Wakes on: a stream without intents that remembers more outcomes than it should.

Order: the event lets the state drop the outcomes, so the chunk must be durable first. Expired
chunks are deleted before the event that drops their names, because no workflow would find them
afterwards.

The outcome in the state, and then in the chunk, is the only record that a carried transaction has
ended. Its message is usually purged long before the chunk expires. A controller that starts with
the message and without the chunk would commit the transaction again. So a chunk is deleted only if
each of its transactions is purged, or is recorded as COMMITTED on its own subject before the
stream's last event: every controller that decides on the stream has folded this event. The step
makes the missing records, and a later one deletes the chunk.

Idempotent: a chunk holds the oldest outcomes of the state, which do not change, so its bytes are
the same; deleting twice is deleting once. Two controllers with different clocks may delete
different chunks, of which the event names its own; the others have expired as well.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from anabranch.common.contracts.subjects import transaction_events
from anabranch.common.errors import Corrupt
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.domain.stream.commits import (
    OUTCOME_CHUNKS_MAX,
    OUTCOMES_PER_CHUNK,
    REMEMBERED_MS_MIN,
    OutcomeChunk,
)
from anabranch.controller.domain.stream.events import StreamEvent, StreamOutcomesArchived
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.workflows.context import WorkContext


async def archive_outcomes(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Write the next chunk, and delete the expired ones."""
    stream = loaded.state
    await context.outcomes.archive(stream, stream.outcomes[:OUTCOMES_PER_CHUNK])
    expired = _expired(stream.outcome_chunks, context.clock.now_ms(), context.outcomes_kept_ms)
    given_up = await _given_up(context, loaded, expired)
    await context.outcomes.forget(stream, [each.chunk for each in given_up])
    last = stream.outcome_chunks[-1].chunk if stream.outcome_chunks else -1
    return StreamOutcomesArchived(
        chunk=last + 1,
        count=OUTCOMES_PER_CHUNK,
        forgotten_below=given_up[-1].chunk + 1 if given_up else 0,
    )


async def _given_up(
    context: WorkContext, loaded: Loaded[Stream], expired: Sequence[OutcomeChunk]
) -> Sequence[OutcomeChunk]:
    """The oldest of the expired chunks, up to the first that is still needed or unreadable."""
    for position, chunk in enumerate(expired):
        with suppress(Corrupt):
            if await _is_recorded_without(context, loaded, chunk.chunk):
                continue
        return expired[:position]
    return expired


async def _is_recorded_without(context: WorkContext, loaded: Loaded[Stream], chunk: int) -> bool:
    """Whether every transaction in the chunk is purged or was recorded in time on its own subject.
    Records the others. Raises Corrupt, Unavailable."""
    stream, repository = loaded.state, context.repositories[TRANSACTIONS]
    assert stream.ref is not None
    is_late = False
    for outcome in await context.outcomes.unpurged(stream, chunk):
        subject = transaction_events(stream.ref, stream.incarnation, outcome.transaction_id)

        def committed(found: Loaded[Transaction], ended_ms: int) -> Sequence[TransactionEvent]:
            is_missing = found.state.status is TransactionState.COMMITTING
            return decide.committed(found.state, ended_ms) if is_missing else ()

        recorded = await repository.transact(subject, partial(committed, ended_ms=outcome.ended_ms))
        is_late |= recorded.sequence > loaded.sequence
    return not is_late


def _expired(chunks: Sequence[OutcomeChunk], now_ms: int, kept_ms: int) -> Sequence[OutcomeChunk]:
    """The oldest chunks, as far as they are too old or too many; never the last one, and none that
    late copies of carried transactions may need."""
    found: list[OutcomeChunk] = []
    for position, chunk in enumerate(chunks[:-1]):
        is_excess = len(chunks) - position >= OUTCOME_CHUNKS_MAX
        kept_for_ms = REMEMBERED_MS_MIN if is_excess else max(kept_ms, REMEMBERED_MS_MIN)
        if chunk.ended_ms >= now_ms - kept_for_ms:
            break
        found.append(chunk)
    return found


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.ARCHIVE_OUTCOMES: archive_outcomes,
}
