"""Gives the events that a sealed segment did not store to its successors: by key, in write order.

Everything happens in one step of the event loop, so later writes of a key come after the events
that were handed over. Blocks are divided by key and get new numbers at the successors. Events of a
block without keys all go to one successor, whichever it is.

Events of other predecessors of the same successor have other keys, so no order is between them.
"""

from collections.abc import Callable

from anabranch.client.writing.appender import SegmentAppender
from anabranch.client.writing.batches import AnyBatch, Batch, ColumnBatch, LargeEvent, cost_of

AppenderOf = Callable[[bytes | None], SegmentAppender]
"""Returns the appender for a stored key, or for events without a key."""


def hand_over(source: SegmentAppender, appender_of: AppenderOf) -> None:
    """Move the events and the calls that wait for their acknowledgement. `source` has ended.

    A call that waits for an event in the middle of a block waits for the whole block from now on.
    """
    number = source.outbox.acknowledged
    batches = source.outbox.take_all()
    waiters = source.take_waiters()
    reached: dict[SegmentAppender, int] = {}
    for batch in batches:
        number += batch.count
        for target, part in _divided(batch, appender_of):
            target.outbox.add_batch(part)
            reached[target] = target.outbox.last_added
        while waiters and waiters[0][0] <= number:
            _, waiter = waiters.popleft()
            waiter.places += len(reached) - 1
            for target, last in reached.items():
                target.add_waiter(last, waiter)
    assert not waiters, "nobody waits for what was not written"


def _divided(batch: AnyBatch, appender_of: AppenderOf) -> list[tuple[SegmentAppender, AnyBatch]]:
    """Each target with its share of the batch, whose events stay in their order."""
    if isinstance(batch, LargeEvent):
        return [(appender_of(batch.key), batch)]
    keyless = appender_of(None)
    if isinstance(batch, ColumnBatch):
        if not batch.is_keyed:
            return [(keyless, batch)]
        batch = batch.as_lists()
    if not batch.keys:
        return [(keyless, batch)]
    batch.pad_keys()
    indexes: dict[SegmentAppender, list[int]] = {}
    for index, key in enumerate(batch.keys):
        target = keyless if key is None else appender_of(key)
        indexes.setdefault(target, []).append(index)
    if len(indexes) == 1:
        return [(target, batch) for target in indexes]
    if batch.timestamps_ms:
        batch.pad_timestamps()
    return [(target, _share(batch, chosen)) for target, chosen in indexes.items()]


def _share(batch: Batch, chosen: list[int]) -> Batch:
    """The events at these indexes. The spans go with the last event."""
    stamps = batch.timestamps_ms
    events = [batch.events[index] for index in chosen]
    keys = [batch.keys[index] for index in chosen]
    return Batch(
        events=events,
        keys=keys,
        timestamps_ms=[stamps[index] for index in chosen] if stamps else [],
        cost=cost_of(events, keys),
        spans=batch.spans if chosen[-1] == len(batch.events) - 1 else None,
    )
