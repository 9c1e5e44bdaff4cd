"""Puts a writer's events into outboxes: cut into blocks, each for the segment of its keys.

Events without a key go to a segment drawn at random until its block is full or sent, and then to
another one. The writer has checked before that the buffer has room.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from anabranch.client.tracing import joining
from anabranch.client.writing.arrow_columns import ArrowEvents
from anabranch.client.writing.batches import LargeEvent
from anabranch.client.writing.columns import Columns
from anabranch.client.writing.lanes import Lanes
from anabranch.client.writing.outbox import Outbox
from anabranch.common.runtime.ids import Rng
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class Placing:
    """The placing of one writer. `LaneWriter.write` uses and resets `keyless` directly."""

    def __init__(self, lanes: Lanes, rng: Rng, tracer: "Tracer | None") -> None:
        self._lanes = lanes
        self._rng = rng
        self._joined = joining(tracer)
        self.keyless: Outbox | None = None

    def draw(self) -> Outbox:
        """Draw the outbox for events without keys from now on. Raises the lanes' refusal."""
        outboxes = self._lanes.outboxes
        if not outboxes:
            raise self._lanes.refusal.copy()
        self.keyless = outboxes[int(self._rng.random() * len(outboxes))]
        return self.keyless

    def choose_keyless(self) -> Outbox:
        """The outbox for events without keys. Raises the lanes' refusal."""
        return self.keyless or self.draw()

    def add(self, columns: Columns, chosen: Outbox | None) -> tuple[Outbox, ...]:
        """Add the events to `chosen`; None: to drawn segments. Returns the outboxes that received
        some."""
        outbox = chosen or self.choose_keyless()
        if columns.cost <= min(outbox.block_size, EVENT_SIZE_BYTES_MAX):
            self._gather(columns, outbox)
            return (outbox,)
        return self._add_in_blocks(columns, chosen)

    def _add_in_blocks(self, columns: Columns, chosen: Outbox | None) -> tuple[Outbox, ...]:
        """As `add`, for events that may fill a block and go on in the next one, or be large."""
        costs = columns.costs()
        ends = list(accumulate(costs))
        reached: dict[Outbox, None] = {}
        any_large = max(costs) > EVENT_SIZE_BYTES_MAX
        start = 0
        while start < len(ends):
            outbox = chosen or self.choose_keyless()
            reached[outbox] = None
            if any_large and len(columns.events[start]) > EVENT_SIZE_BYTES_MAX:
                self.add_large(columns.large(start), outbox)
                start += 1
                continue
            taken = ends[start] - costs[start]
            end = min(len(ends), bisect_left(ends, taken + outbox.block_size) + 1)
            if any_large:
                end = columns.before_large(start, end)
            self._gather(columns.between(start, end, ends[end - 1] - taken), outbox)
            start = end
        return tuple(reached)

    def _gather(self, columns: Columns, outbox: Outbox) -> None:
        """Add all the events to the gathering block, or to a new one if they would overfill it, and
        close that block if it is full."""
        if outbox.gathering.cost + columns.cost > outbox.block_size:
            outbox.close_batch()
        batch = outbox.gathering
        if columns.timestamps_ms is not None:
            batch.pad_timestamps()
            batch.timestamps_ms.extend(columns.timestamps_ms)
        if columns.keys is not None:
            batch.pad_keys()
            batch.keys.extend(columns.keys)
        if self._joined is not None:
            batch.spans = self._joined(batch.spans)
        batch.events.extend(columns.events)
        batch.cost += columns.cost
        if batch.cost >= outbox.block_size:
            outbox.close_batch()
            self.keyless = None
        outbox.awake = True

    def add_arrow(
        self, content: ArrowEvents, route: Callable[[str], tuple[Outbox, bytes]], block_size: int
    ) -> tuple[Outbox, ...]:
        """Add the rows, in blocks of their own, to the segments of their keys. Returns the outboxes
        that received some."""
        if content.keys is None:
            return tuple(dict.fromkeys(self._add_arrow(content, None, block_size)))
        divided = dict(content.divide(route, self.choose_keyless))
        for outbox, share in divided.items():
            for _ in self._add_arrow(share, outbox, block_size):
                pass
        return tuple(divided)

    def _add_arrow(
        self, content: ArrowEvents, chosen: Outbox | None, block_size: int
    ) -> Iterator[Outbox]:
        for block in content.blocks(block_size):
            outbox = chosen or self.choose_keyless()
            spans = None if self._joined is None else self._joined(None)
            outbox.add_batch(block if spans is None else replace(block, spans=spans))
            outbox.awake = True
            self.keyless = None
            yield outbox

    def add_large(self, large: LargeEvent, outbox: Outbox) -> None:
        """Add a large event as a block of its own, sent once the event is uploaded."""
        if self._joined is not None:
            large.spans = self._joined(None)
        outbox.add_batch(large)
        outbox.awake = True
        self.keyless = None
