"""Archiving a stream's oldest epochs: write a history chunk, then say that it holds them.

Wakes on: a stream without intents that keeps more epochs than it should.

Why in this order: the event lets the state forget the epochs, so they are durable elsewhere first.

Why safe to repeat: which epochs a chunk holds follows from the history before it alone, so its
bytes are the same whoever writes it, and writing it again is success.
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
