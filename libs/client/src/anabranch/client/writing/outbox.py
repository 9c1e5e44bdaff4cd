"""The events of a writer that one segment has not acknowledged: a pure state machine.

    gathering ──full, or the pipe is idle──► closed ──room in flight──► in flight ──ack──► gone
                                   large event ──uploaded─┘

Events are numbered from 1 when they leave `closed`, in write order. Numbers are therefore
contiguous, and an event's number is known as soon as it was added. A block is encoded once and
resent byte for byte; only a block of which the store holds a part is rebuilt. In a new session, a
large event and the blocks behind it are closed again, until it is uploaded anew. When the segment
takes no more, `take_all` gives the rest to the outboxes of its successors.

`LaneWriter.write` appends to `gathering` directly, because it runs once per event.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct

from anabranch.client.writing.batches import AnyBatch, Batch, LargeEvent, Numbering, cost_of
from anabranch.client.writing.pacing import BlockSizing, InFlight
from anabranch.common.errors import AnabranchError, WriterExpired
from anabranch.common.wire.block import FLAG_KEYS, FLAG_TIMESTAMPS, Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.codec import ZSTD_LEVEL_DEFAULT

if TYPE_CHECKING:
    from anabranch.client.block_spans import BlockSpans


class SentBlock(Struct, frozen=True):
    """A block that is, or will be, on its way; `cost` and `spans` as in `Batch`.

    `reserved`: its share of `InFlight`. `large`: the event that its reference stands for.
    """

    first: int
    count: int
    data: bytes
    cost: int
    spans: "BlockSpans | None" = None
    reserved: int = 0
    large: LargeEvent | None = None

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def parts(self) -> str:
        """The transient segment with the parts of its large event."""
        assert self.large is not None
        assert self.large.uploaded is not None
        return self.large.uploaded.parts


def rest_after(block: SentBlock, last: int) -> SentBlock:
    """The block rebuilt without its events up to number `last` (first <= last < block.last)."""
    assert block.first <= last < block.last
    skip = last + 1 - block.first
    content = Block(block.data)
    header = content.header
    events, keys, stamps = content.events(skip), content.keys()[skip:], content.timestamps_ms()
    data = encode_block(
        events,
        writer_id=header.writer_id,
        first_event_number=last + 1,
        base_timestamp_ms=header.base_timestamp_ms,
        keys=keys if header.flags & FLAG_KEYS else None,
        timestamps_ms=stamps[skip:] if header.flags & FLAG_TIMESTAMPS else None,
        zstd_level=ZSTD_LEVEL_DEFAULT if header.codec else None,
    )
    cost = cost_of(events, keys)
    return SentBlock(last + 1, len(events), data, cost, block.spans, block.reserved)


def _decoded(block: SentBlock) -> AnyBatch:
    if block.large is not None:
        return block.large
    content = Block(block.data)
    flags = content.header.flags
    return Batch(
        events=content.events(),
        keys=content.keys() if flags & FLAG_KEYS else [],
        timestamps_ms=list(content.timestamps_ms()) if flags & FLAG_TIMESTAMPS else [],
        cost=block.cost,
        spans=block.spans,
    )


class Outbox:
    """The events for one segment. `awake`: the writer will look at this outbox soon. `block_size`:
    the size at which it closes the gathering block. `share_events`, `share_keys`: its part of a
    batch that is being divided, or empty.
    """

    __slots__ = (
        "_blocks_in_flight_max",
        "_closed",
        "_in_flight_bytes",
        "_last_closed",
        "_sizing",
        "_unacknowledged_cost",
        "_writer_id",
        "_zstd_level",
        "acknowledged",
        "awake",
        "block_size",
        "gathering",
        "in_flight",
        "last_sent",
        "share_events",
        "share_keys",
    )

    def __init__(
        self,
        writer_id: bytes,
        blocks_in_flight_max: int,
        zstd_level: int | None = None,
        *,
        in_flight_bytes: InFlight,
        sizing: BlockSizing,
    ) -> None:
        self._sizing = sizing
        self.block_size = sizing.size
        self._in_flight_bytes = in_flight_bytes
        self._unacknowledged_cost = 0
        self._writer_id = writer_id
        self._zstd_level = zstd_level
        self._blocks_in_flight_max = blocks_in_flight_max
        self._closed: deque[AnyBatch] = deque()
        self._last_closed = 0
        self.gathering = Batch()
        self.share_events: list[bytes] = []
        self.share_keys: list[bytes | None] = []
        self.in_flight: deque[SentBlock] = deque()
        self.acknowledged = 0
        self.last_sent = 0
        self.awake = False

    @property
    def last_added(self) -> int:
        """The number of the newest event; 0 if there was none."""
        return self._last_closed + len(self.gathering.events)

    @property
    def unacknowledged(self) -> int:
        """The number of unacknowledged events."""
        return self.last_added - self.acknowledged

    def close_batch(self) -> None:
        """Turn the gathered events into a block of its own; without any, do nothing."""
        if self.gathering.events:
            batch, self.gathering = self.gathering, Batch()
            self._close(batch)

    def _close(self, batch: AnyBatch) -> None:
        self._closed.append(batch)
        self._last_closed += batch.count
        self._unacknowledged_cost += batch.cost

    @property
    def next_upload(self) -> LargeEvent | None:
        """The large event that must be uploaded before anything else is sent, if any."""
        first = self._closed[0] if self._closed else None
        return first if isinstance(first, LargeEvent) and first.uploaded is None else None

    @property
    def is_gathering(self) -> bool:
        """Whether the events behind those in flight still gather, so that no block is to be sent
        or uploaded now."""
        return bool(self.in_flight) and not self._closed

    @property
    def waits_for_room(self) -> bool:
        """Whether only the bytes in flight, of all segments, hold the next block back."""
        return bool(self._closed) and len(self.in_flight) < self._blocks_in_flight_max

    def take_block(self, now_ms: int) -> SentBlock | None:
        """The next block to send, now in flight; None without a block, without room, or if an
        upload has to come first.

        A batch that is still gathering goes out only while nothing is in flight: the writes of a
        round trip travel together.
        """
        if len(self.in_flight) >= self._blocks_in_flight_max:
            return None
        if not self._closed:
            if self.in_flight:
                return None
            self.close_batch()
        if not self._closed or self.next_upload is not None:
            return None
        reserved = self._closed[0].sent_size_max
        if not self._in_flight_bytes.take(reserved):
            return None
        batch = self._closed.popleft()
        first = self.last_sent + 1
        data = batch.encode(Numbering(self._writer_id, first, now_ms, self._zstd_level))
        large = batch if isinstance(batch, LargeEvent) else None
        block = SentBlock(first, batch.count, data, batch.cost, batch.spans, reserved, large)
        self.in_flight.append(block)
        self.last_sent = block.last
        return block

    def acknowledge(self, last: int) -> int:
        """Note that every event up to number `last` is durable; returns their cost.

        Repeated and older acknowledgements change nothing. Raises WriterExpired for a number that
        was never sent.
        """
        if last > self.last_sent:
            raise WriterExpired(
                "the store holds events under this writer's id that this writer never sent",
                stored=last,
                sent=self.last_sent,
            )
        released = 0
        outstanding = self._unacknowledged_cost + self.gathering.cost
        while self.in_flight and self.in_flight[0].first <= last:
            block = self.in_flight.popleft()
            released += block.cost
            if block.last > last:
                rest = rest_after(block, last)
                released -= rest.cost
                self.in_flight.appendleft(rest)
                continue
            self._in_flight_bytes.give_back(block.reserved)
            if block.spans is not None:
                block.spans.acknowledged()
        if released:
            self._unacknowledged_cost -= released
            self._sizing.acknowledged(outstanding)
            self.block_size = self._sizing.size
        self.acknowledged = max(self.acknowledged, last)
        return released

    def resume(self, last: int) -> int:
        """A new session starts after event number `last`: as `acknowledge`.

        The blocks in flight afterwards must be resent. Large events, and everything behind them,
        are not in flight any more, because their parts must be uploaded again. Raises WriterExpired
        if the store has forgotten events that it acknowledged.
        """
        if last < self.acknowledged:
            raise WriterExpired(
                "the store has lost its record of this writer's acknowledged events",
                stored=last,
                acknowledged=self.acknowledged,
            )
        released = self.acknowledge(last)
        for large in (batch for batch in self._closed if isinstance(batch, LargeEvent)):
            large.discard_upload()
        kept = list(takewhile(lambda block: block.large is None, self.in_flight))
        withdrawn = list(self.in_flight)[len(kept) :]
        if withdrawn:
            self._withdraw(withdrawn)
        return released

    def _withdraw(self, blocks: Sequence[SentBlock]) -> None:
        """Close the last blocks in flight again. The segment has none of them."""
        for block in reversed(blocks):
            self._in_flight_bytes.give_back(block.reserved)
            batch = _decoded(block)
            if isinstance(batch, LargeEvent):
                batch.discard_upload()
            self._closed.appendleft(batch)
            self.in_flight.pop()
        self.last_sent = blocks[0].first - 1

    def take_all(self) -> list[AnyBatch]:
        """Remove all unacknowledged events, and return them in write order.

        Blocks in flight are decoded: elsewhere they get other numbers, and events without a time
        get the time of their sending.
        """
        self.close_batch()
        batches = [_decoded(block) for block in self.in_flight]
        batches.extend(self._closed)
        for batch in batches:
            if isinstance(batch, LargeEvent):
                batch.discard_upload()  # the parts are of this segment
        self._in_flight_bytes.give_back(sum(block.reserved for block in self.in_flight))
        self.in_flight.clear()
        self._closed.clear()
        self._unacknowledged_cost = 0
        return batches

    def add_batch(self, batch: AnyBatch) -> None:
        """Add the batch after everything added so far, as a block of its own."""
        self.close_batch()
        self._close(batch)

    def fail_spans(self, error: AnabranchError) -> None:
        """End the spans of events that will never be acknowledged here. Repeatable."""
        unsent = (batch.spans for batch in (*self._closed, self.gathering))
        for spans in (*(block.spans for block in self.in_flight), *unsent):
            if spans is not None:
                spans.failed(error)

    def unacknowledged_events(self) -> Iterator[bytes]:
        """The unacknowledged payloads, in write order."""
        for block in self.in_flight:
            yield from Block(block.data) if block.large is None else (block.large.event,)
        for batch in self._closed:
            yield from batch.payloads()
        yield from self.gathering.events
