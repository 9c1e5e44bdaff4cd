"""Archive a stream's oldest epochs: write a history chunk, then record that it holds them.

Wakes on: a stream without intents that keeps more epochs than it should.

Order: the event lets the state drop the epochs, so the chunk must be durable first.

Idempotent: the history before a chunk alone determines its epochs, so every controller writes the
same bytes, and writing them again succeeds.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream import archive
from anabranch.controller.domain.stream.events import StreamEvent, StreamHistoryArchived
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import WorkContext


async def archive_history(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Write the next chunk."""
    stream = loaded.state
    epochs = archive.due_chunk(stream.epochs)
    await context.histories.archive(stream, epochs)
    return StreamHistoryArchived(
        chunk=stream.archived_chunks, through_epoch=epochs[-1].stream_epoch + 1
    )


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.ARCHIVE_HISTORY: archive_history,
}
