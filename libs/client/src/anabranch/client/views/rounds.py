"""Divides the events of a round among the partitions of a view's table. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.serializers import Serializer
from anabranch.client.views.partition import SegmentShare
from anabranch.client.views.ports import ViewTable

E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Recipe(Generic[E, K, V]):
    """The functions of a view: `key` names an event's row, or None; `fold` returns the new row.

    `events` deserializes payloads, which are bytes without it; `values` are the rows.
    """

    key: Callable[[Event[E]], K | None]
    fold: Callable[[V | None, Event[E]], V | None]
    events: Serializer[E] | None
    values: Serializer[V]

    def events_of(self, batch: EventBatch) -> list[Event[E]]:
        """The events of a block. Raises SerializationFailed, CorruptBlock."""
        if self.events is None:
            return cast(list[Event[E]], batch.events())
        return batch.events_with(batch.values(self.events))


def divided(
    batches: Sequence[EventBatch], recipe: Recipe[E, K, V], table: ViewTable[K]
) -> Mapping[int, list[SegmentShare[E]]]:
    """The shares of each partition, by its index.

    Blocks of one segment come in their order. Raises the errors of `key`, InvalidKey,
    SerializationFailed.
    """
    ends = {batch.segment: batch.next for batch in batches}
    events: dict[str, list[Event[E]]] = {segment: [] for segment in ends}
    for batch in batches:
        events[batch.segment] += recipe.events_of(batch)
    shares: dict[int, list[SegmentShare[E]]] = {}
    for segment, of_segment in events.items():
        for index, own in _of_partitions(of_segment, recipe, table).items():
            shares.setdefault(index, []).append(SegmentShare(segment, own, ends[segment]))
    return shares


def _of_partitions(
    events: Sequence[Event[E]], recipe: Recipe[E, K, V], table: ViewTable[K]
) -> Mapping[int, list[tuple[bytes, Event[E]]]]:
    keyed = [(key, event) for event in events if (key := recipe.key(event)) is not None]
    if not keyed:
        return {}
    keys, kept = zip(*keyed, strict=True)
    found: dict[int, list[tuple[bytes, Event[E]]]] = {}
    for index, stored, event in zip(*table.places(keys), kept, strict=True):
        found.setdefault(index, []).append((stored, event))
    return found
