"""Events of one call as columns, their costs, and the division of keyed events among segments.

All but one short loop per event runs in C: that loop, and a look-up of each key's route, are the
extra cost of a keyed batch. The cost of a share is a few sums in C, and the costs of its events are
listed only if they decide where a block ends.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import add, index
from typing import TypeVar, cast

from msgspec import Struct

from anabranch.client.serializers import Serializer, serialized
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, LargeEvent, cost_of
from anabranch.client.writing.lanes import KeyRoutes
from anabranch.client.writing.outbox import Outbox
from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX

T = TypeVar("T")


class Columns(Struct, frozen=True):
    """Events for one segment, in order; `cost` is their share of the writer's buffer."""

    events: Sequence[bytes]
    cost: int
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: "array[int] | None" = None

    def costs(self) -> list[int]:
        """The cost of each event, in bytes of the writer's buffer."""
        costs = map(EVENT_OVERHEAD_BYTES.__add__, map(len, self.events))
        if self.keys is None:
            return list(costs)
        return list(map(add, costs, [len(key) if key else 0 for key in self.keys]))

    def between(self, start: int, end: int, cost: int) -> "Columns":
        """The events from `start` up to `end`, whose cost is known."""
        keys, stamps = self.keys, self.timestamps_ms
        return Columns(
            self.events[start:end],
            cost,
            None if keys is None else keys[start:end],
            None if stamps is None else stamps[start:end],
        )

    def large(self, index: int) -> LargeEvent:
        """The event at `index`, which is large."""
        event, key = self.events[index], None if self.keys is None else self.keys[index]
        stamp = None if self.timestamps_ms is None else self.timestamps_ms[index]
        return LargeEvent(event, key, stamp, cost_of([event], [key]))

    def before_large(self, start: int, end: int) -> int:
        """`end`, or the index of the first large event after `start` if that is lower."""
        sizes = map(len, self.events[start:end])
        large = (index for index, size in enumerate(sizes, start) if size > EVENT_SIZE_BYTES_MAX)
        return next(large, end)


Routed = list[tuple[Outbox, bytes | None]]
"""For each event the outbox of its segment, and its key as stored, or None."""


def columns_of(
    events: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    timestamps_ms: "array[int] | None",
) -> Columns:
    """The columns with their cost; `keys` as they are stored."""
    return Columns(events, cost_of(events, keys or ()), keys, timestamps_ms)


def divide(
    events: Sequence[bytes],
    routed: Routed,
    timestamps_ms: "array[int] | None",
    outboxes: Sequence[Outbox],
) -> list[tuple[Outbox, Columns]]:
    """The events of each outbox, in the order of the batch. `outboxes`: all that may get some.

    The outboxes themselves hold the shares meanwhile: a look-up of the share for each event would
    cost a quarter of the division.
    """
    stamps: dict[Outbox, array[int]] = {}
    if timestamps_ms is not None:
        stamps = defaultdict(lambda: array("q"))
        for (outbox, _), stamp in zip(routed, timestamps_ms, strict=True):
            stamps[outbox].append(stamp)
    try:
        for (outbox, stored), event in zip(routed, events, strict=True):
            outbox.share_events.append(event)
            outbox.share_keys.append(stored)
        return [
            (outbox, columns_of(outbox.share_events, outbox.share_keys, stamps.get(outbox)))
            for outbox in dict.fromkeys(outboxes)
            if outbox.share_events
        ]
    finally:
        for outbox in outboxes:
            outbox.share_events, outbox.share_keys = [], []


def as_bytes(event: object) -> bytes:
    """Text in UTF-8; bytes-like things as bytes. Raises InvalidRequest."""
    match event:
        case str():
            try:
                return event.encode()
            except UnicodeEncodeError as error:
                raise InvalidRequest("an event is not valid Unicode text") from error
        case bytearray() | memoryview() | bytes():
            return bytes(event)
    raise InvalidRequest("an event must be bytes or text", type=type(event).__name__)


def bytes_of(event: T, serializer: Serializer[T] | None) -> bytes:
    """The event as it is stored. Raises InvalidRequest, SerializationFailed."""
    return as_bytes(event) if serializer is None else serialized(serializer, event)


def payloads_of(events: Sequence[T], serializer: Serializer[T] | None) -> Sequence[bytes]:
    """A batch's events as they are stored; without a serializer they must be bytes already.

    Raises InvalidRequest, SerializationFailed.
    """
    if serializer is not None:
        return [serialized(serializer, event) for event in events]
    if list(map(type, events)).count(bytes) != len(events):
        raise InvalidRequest("a batch's events must be bytes")
    return cast(Sequence[bytes], events)


def route_all(
    keys: Sequence[str | None], routes: KeyRoutes, choose_keyless: Callable[[], Outbox]
) -> Routed:
    """The outbox of each event. Events without a key go to one segment. Raises as `routes[key]`."""
    if all(keys):
        return list(map(routes.__getitem__, cast(Sequence[str], keys)))
    keyless = choose_keyless()
    return [(keyless, None) if key is None else routes[key] for key in keys]


def as_timestamps(timestamps_ms: Sequence[int]) -> "array[int]":
    """The timestamps as they will be stored. Raises InvalidRequest."""
    try:
        return array("q", map(index, timestamps_ms))
    except (TypeError, OverflowError) as error:
        raise InvalidRequest(
            "a timestamp must be a whole number of milliseconds in 64 bits"
        ) from error


def check_lengths(events: int, *columns: Sequence[object] | None) -> None:
    """Raises InvalidRequest unless all columns have the same length."""
    for column in columns:
        if column is not None and len(column) != events:
            raise InvalidRequest(
                "a batch's columns differ in length", events=events, column=len(column)
            )
