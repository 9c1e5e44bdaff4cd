"""Archive the outcomes of a stream's transactions: write a chunk, then record that it holds them.

Wakes on: a stream without intents that remembers more outcomes than it should.

Order: the event lets the state drop the outcomes, so the chunk must be durable first. Expired
chunks are deleted before the event that drops their names, because no workflow would find them
afterwards.

Idempotent: a chunk holds the oldest outcomes of the state, which do not change, so its bytes are
the same; deleting twice is deleting once. Two controllers with different clocks may delete
different chunks, of which the event names its own; the others have expired as well.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream.commits import (
    OUTCOME_CHUNKS_MAX,
    OUTCOMES_PER_CHUNK,
    REMEMBERED_MS_MIN,
    OutcomeChunk,
)
from anabranch.controller.domain.stream.events import StreamEvent, StreamOutcomesArchived
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import WorkContext


async def archive_outcomes(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Write the next chunk, and delete the expired ones."""
    stream = loaded.state
    await context.outcomes.archive(stream, stream.outcomes[:OUTCOMES_PER_CHUNK])
    given_up = _given_up(stream.outcome_chunks, context.clock.now_ms(), context.outcomes_kept_ms)
    await context.outcomes.forget(stream, [each.chunk for each in given_up])
    last = stream.outcome_chunks[-1].chunk if stream.outcome_chunks else -1
    return StreamOutcomesArchived(
        chunk=last + 1,
        count=OUTCOMES_PER_CHUNK,
        forgotten_below=given_up[-1].chunk + 1 if given_up else 0,
    )


def _given_up(chunks: Sequence[OutcomeChunk], now_ms: int, kept_ms: int) -> Sequence[OutcomeChunk]:
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
