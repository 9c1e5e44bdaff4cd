"""Events of one `write_batch` call as columns, and how keyed ones are divided among segments.

All but one short loop per event runs in C: that loop is what a keyed batch costs more than a
keyless one.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from anabranch.client.outbox import EVENT_OVERHEAD_BYTES, Outbox


@dataclass(frozen=True, slots=True)
class Columns:
    """Events for one segment, in order; `costs` are their shares of the writer's buffer."""

    events: Sequence[bytes]
    costs: list[int]
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: "array[int] | None" = None


Routed = list[tuple[Outbox, bytes | None]]
"""For each event the outbox of its segment, and its key as it is stored, None for none."""


def costs_of(events: Sequence[bytes]) -> list[int]:
    """What events without keys cost of the writer's buffer."""
    return list(map(EVENT_OVERHEAD_BYTES.__add__, map(len, events)))


def keyed_costs(costs: list[int], routed: Routed) -> list[int]:
    """`costs` with what the keys add."""
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
