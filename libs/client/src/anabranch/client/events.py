"""What a reader yields: the events of one block as columns, or as one object per event."""

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.client.fetcher import FetchedBlock
from anabranch.client.frontier import Position
from anabranch.client.serializers import require_pyarrow
from anabranch.common.errors import CorruptBlock
from anabranch.common.wire.block import FLAG_KEYS

if TYPE_CHECKING:
    import pyarrow as pa


class Event(NamedTuple):
    """One event, and its own place: number `event_index`, from 0, of the block at `offset`."""

    payload: bytes
    key: str | None
    timestamp_ms: int
    segment: str
    offset: int
    event_index: int

    @property
    def position(self) -> Position:
        return Position(self.offset, self.event_index)


class EventBatch:
    """The events of one block, without an object per event. `opening`: by its intake's count."""

    def __init__(self, fetched: FetchedBlock, opening: int = 0) -> None:
        self.fetched = fetched
        self.opening = opening
        self.segment = fetched.segment
        self.start = Position(fetched.offset, fetched.start_index)
        self.next = Position(fetched.next_offset)
        self.held_size = fetched.held_size

    def __len__(self) -> int:
        return len(self.fetched.block) - self.fetched.start_index

    @cached_property
    def payloads(self) -> list[bytes]:
        return self.fetched.block.events(self.fetched.start_index)

    @cached_property
    def keys(self) -> list[str | None]:
        """Parallel to `payloads`; None where an event has no key. Raises CorruptBlock."""
        if not self.fetched.block.header.flags & FLAG_KEYS:
            return [None] * len(self)
        stored = self.fetched.block.keys()[self.fetched.start_index :]
        try:
            return [None if key is None else key.decode() for key in stored]
        except UnicodeDecodeError as error:
            raise CorruptBlock(
                "a block's routing keys are not UTF-8",
                segment=self.segment, offset=self.start.offset,
            ) from error  # fmt: skip

    def open(self) -> None:
        """Decompress the block if it is compressed; repeatable. Raises CorruptBlock, CodecMissing.

        Blocks that wait to be read stay compressed, so that the read-ahead bounds memory.
        """
        try:
            self.fetched.block.open()
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message, segment=self.segment, offset=self.start.offset, cause=str(error)
            ) from error

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """Event times, parallel to `payloads`."""
        return self.fetched.block.timestamps_ms()[self.fetched.start_index :]

    def events(self) -> list[Event]:
        """The same as one object per event."""
        offset, first = self.start
        rows = zip(
            self.payloads,
            self.keys,
            self.timestamps_ms,
            repeat(self.segment),
            repeat(offset),
            range(first, first + len(self)),
        )
        # Without a call of Python for each: this is the pace of reading event by event.
        return list(map(tuple.__new__, repeat(Event), rows))

    def to_arrow(self) -> "pa.RecordBatch":
        """The events as a batch of Arrow, see `arrow` for its columns.

        The payloads are not copied where the block is stored plain, and keep its memory as long as
        the batch lives. Raises CorruptBlock, CodecMissing.
        """
        return arrow_batch([self])


def arrow_batch(batches: Sequence[EventBatch]) -> "pa.RecordBatch":
    """The events of at least one batch as one of Arrow. Raises CorruptBlock, CodecMissing."""
    require_pyarrow()
    arrow: Any = import_module("anabranch.client.arrow")
    blocks = []
    for batch in batches:
        batch.open()
        fetched = batch.fetched
        block = fetched.block
        blocks.append(
            arrow.PlacedBlock(
                fetched.segment, fetched.offset, block.header, block.body, fetched.start_index
            )
        )
    return arrow.batch_of(blocks)
