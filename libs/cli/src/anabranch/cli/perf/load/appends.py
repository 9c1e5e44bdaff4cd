"""Two ways to write: batches as fast as they go, and one awaited event at a time."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import BufferFull

Note = Callable[[float, float], bool]
"""Takes the begin and the acknowledgement of one event; returns whether to go on."""
Turn = Callable[[int], Awaitable[float]]
"""Waits until the event with this number is due; returns the time from which it counts."""


async def take(
    writer: LaneWriter[bytes], events: Sequence[bytes], keys: Sequence[str] | None = None
) -> None:
    """Write a batch, and wait for room before if the buffer is full. Raises the writer's errors."""
    while True:
        try:
            writer.write_batch(events, keys)
        except BufferFull:
            await writer.drain()
        else:
            return


async def append_one_by_one(
    append: Callable[[bytes], Awaitable[None]],
    events: Iterable[bytes],
    note: Note,
    *,
    now: Callable[[], float],
    turn: Turn | None = None,
) -> None:
    """Append one event after the other until `note` ends it; each waits for the one before.

    Without `turn` an event counts from the acknowledgement of the one before it.
    """
    acknowledged = now()
    for number, event in enumerate(events):
        begun = acknowledged if turn is None else await turn(number)
        await append(event)
        acknowledged = now()
        if not note(begun, acknowledged):
            return
