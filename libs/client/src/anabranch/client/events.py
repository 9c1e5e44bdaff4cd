"""What a reader yields: the events of one block as columns, or as one object per event."""

from functools import cached_property
from typing import NamedTuple

from anabranch.client.fetcher import FetchedBlock
from anabranch.client.frontier import Position
from anabranch.common.errors import CorruptBlock


class Event(NamedTuple):
    """One event; `position` is its own, not the next one's."""

    payload: bytes
    key: str | None
    timestamp_ms: int
    segment: str
    position: Position


class EventBatch:
    """The events of one block, without an object per event. `opening`: by its intake's count."""

    def __init__(self, fetched: FetchedBlock, opening: int = 0) -> None:
        self._fetched = fetched
        self.opening = opening
        self.segment = fetched.segment
        self.start = Position(fetched.offset, fetched.start_index)
        self.next = Position(fetched.next_offset)
        self.held_size = fetched.held_size

    def __len__(self) -> int:
        return len(self._fetched.block) - self._fetched.start_index

    @cached_property
    def payloads(self) -> list[bytes]:
        return self._fetched.block.events(self._fetched.start_index)

    @cached_property
    def keys(self) -> list[str | None]:
        """Parallel to `payloads`; None where an event has no key. Raises CorruptBlock."""
        stored = self._fetched.block.keys()[self._fetched.start_index :]
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
            self._fetched.block.open()
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message, segment=self.segment, offset=self.start.offset, cause=str(error)
            ) from error

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """Event times, parallel to `payloads`."""
        return self._fetched.block.timestamps_ms()[self._fetched.start_index :]

    def events(self) -> list[Event]:
        """The same as one object per event."""
        offset, first = self.start
        columns = zip(self.payloads, self.keys, self.timestamps_ms, strict=True)
        return [
            Event(payload, key, timestamp_ms, self.segment, Position(offset, index))
            for index, (payload, key, timestamp_ms) in enumerate(columns, first)
        ]
