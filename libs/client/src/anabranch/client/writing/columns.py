"""Events of one call as columns, their costs, and the division of keyed events among segments.

All but one short loop per event runs in C: that loop is the extra cost of a keyed batch.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add, index
from typing import TypeVar, cast

from anabranch.client.serializers import Serializer, serialized
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, LargeEvent
from anabranch.client.writing.outbox import Outbox
from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Columns:
    """Events for one segment, in order; `costs` are their shares of the writer's buffer."""

    events: Sequence[bytes]
    costs: list[int]
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: "array[int] | None" = None

    def large(self, index: int) -> LargeEvent:
        """The event at `index`, which is large."""
        return LargeEvent(
            self.events[index],
            None if self.keys is None else self.keys[index],
            None if self.timestamps_ms is None else self.timestamps_ms[index],
            self.costs[index],
        )

    def before_large(self, start: int, end: int) -> int:
        """`end`, or the index of the first large event after `start` if that is lower."""
        sizes = map(len, self.events[start:end])
        large = (index for index, size in enumerate(sizes, start) if size > EVENT_SIZE_BYTES_MAX)
        return next(large, end)


Routed = list[tuple[Outbox, bytes | None]]
"""For each event the outbox of its segment, and its key as stored, or None."""


def costs_of(events: Sequence[bytes]) -> list[int]:
    """The cost of each event without a key, in bytes of the writer's buffer."""
    return list(map(EVENT_OVERHEAD_BYTES.__add__, map(len, events)))


def keyed_costs(costs: list[int], routed: Routed) -> list[int]:
    """`costs` with the sizes of the keys added."""
    return list(map(add, costs, [len(stored) if stored else 0 for _, stored in routed]))


def divide(
    events: Sequence[bytes], routed: Routed, costs: list[int], timestamps_ms: "array[int] | None"
) -> dict[Outbox, Columns]:
    """The events of each outbox in the order of the batch; `costs` include the keys."""
    lists: dict[Outbox, tuple[list[bytes], list[bytes | None], list[int]]] = {}
    for outbox in {outbox for outbox, _ in routed}:
        lists[outbox] = ([], [], [])
    for (outbox, stored), event, cost in zip(routed, events, costs, strict=True):
        to_events, to_keys, to_costs = lists[outbox]
        to_events.append(event)
        to_keys.append(stored)
        to_costs.append(cost)
    stamps: dict[Outbox, array[int]] = {}
    if timestamps_ms is not None:
        stamps = {outbox: array("q") for outbox in lists}
        for (outbox, _), stamp in zip(routed, timestamps_ms, strict=True):
            stamps[outbox].append(stamp)
    return {
        outbox: Columns(chosen, shares, keys, stamps.get(outbox))
        for outbox, (chosen, keys, shares) in lists.items()
    }


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
    if set(map(type, events)) != {bytes}:
        raise InvalidRequest("a batch's events must be bytes")
    return cast(Sequence[bytes], events)


def route_all(
    keys: Sequence[str | None],
    route: Callable[[str], tuple[Outbox, bytes]],
    choose_keyless: Callable[[], Outbox],
) -> Routed:
    """The outbox of each event. Events without a key go to one segment."""
    if None not in keys:
        return list(map(route, cast(Sequence[str], keys)))
    keyless = choose_keyless()
    return [(keyless, None) if key is None else route(key) for key in keys]


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
