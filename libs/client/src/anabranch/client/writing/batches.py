"""Events on their way into one block, in the forms in which they are written. Pure.

A `Batch` has a list per column and takes events one by one. A `ColumnBatch` holds the columns as
they will be stored, without an object per event. A `LargeEvent` is one event over the size that
fits in a block, which must be uploaded before its reference can be sent.

`cost` is the events' share of the writer's buffer. It bounds the sent bytes, apart from a header;
of a large event only a reference is sent.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from anabranch.common.wire.block import (
    FLAG_LARGE,
    FLAG_PARTS_BEFORE,
    HEADER_SIZE_BYTES,
    LARGE_REFERENCE_SIZE_BYTES,
    NO_KEY,
    LargeReference,
)
from anabranch.common.wire.block_encoding import BlockColumns, encode_block, encode_columns

if TYPE_CHECKING:
    from anabranch.client.block_spans import BlockSpans

EVENT_OVERHEAD_BYTES = 16
"""The buffer cost of an event beyond its payload and key."""


def cost_of(events: Sequence[bytes], keys: Sequence[bytes | None]) -> int:
    """The events' share of the writer's buffer."""
    stored = cast(Sequence[bytes], keys) if all(keys) else list(filter(None, keys))
    return sum(map(len, events)) + sum(map(len, stored)) + EVENT_OVERHEAD_BYTES * len(events)


class Numbering(Struct, frozen=True, gc=False):
    """A block's writer and number, and the time of its sending."""

    writer_id: bytes
    first: int
    now_ms: int
    zstd_level: int | None = None


@dataclass(slots=True)
class Batch:
    """Events on their way into one block.

    `keys` and `timestamps_ms` are parallel to `events` but may be shorter: later events have none.
    `spans` are None unless a traced caller wrote into it.
    """

    events: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int | None] = field(default_factory=list)
    cost: int = 0
    spans: "BlockSpans | None" = None

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def sent_size_max(self) -> int:
        """An upper bound of the sent size."""
        return self.cost + HEADER_SIZE_BYTES

    def pad_keys(self) -> None:
        """Make `keys` as long as `events`."""
        self.keys.extend(repeat(None, len(self.events) - len(self.keys)))

    def pad_timestamps(self) -> None:
        """Make `timestamps_ms` as long as `events`."""
        self.timestamps_ms.extend(repeat(None, len(self.events) - len(self.timestamps_ms)))

    def payloads(self) -> list[bytes]:
        """The events, in order."""
        return self.events

    def encode(self, numbering: Numbering) -> bytes:
        """The batch as one block; events without a timestamp get the time of sending."""
        keys = timestamps = None
        if self.keys:
            self.pad_keys()
            keys = self.keys
        if self.timestamps_ms:
            self.pad_timestamps()
            now_ms = numbering.now_ms
            timestamps = [now_ms if stamp is None else stamp for stamp in self.timestamps_ms]
        return encode_block(
            self.events,
            writer_id=numbering.writer_id,
            first_event_number=numbering.first,
            base_timestamp_ms=numbering.now_ms,
            keys=keys,
            timestamps_ms=timestamps,
            zstd_level=numbering.zstd_level,
        )


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """A block's columns as they stand, of `count` events; frozen, so it may be sent again."""

    columns: BlockColumns
    count: int
    cost: int
    spans: "BlockSpans | None" = None

    @property
    def sent_size_max(self) -> int:
        """An upper bound of the sent size."""
        return self.cost + HEADER_SIZE_BYTES

    @property
    def is_keyed(self) -> bool:
        return bool(self.columns.key_lengths)

    def payloads(self) -> list[bytes]:
        """The events, in order."""
        lengths = array("I", self.columns.lengths)
        return _cut(b"".join(self.columns.payloads), lengths)

    def as_lists(self) -> Batch:
        """The same events with an object each."""
        columns = self.columns
        lengths = array("H", columns.key_lengths)
        stored = _cut(bytes(columns.keys), [0 if n == NO_KEY else n for n in lengths])
        keys = [None if n == NO_KEY else key for n, key in zip(lengths, stored, strict=True)]
        stamps: list[int | None] = list(array("q", columns.timestamps))
        return Batch(self.payloads(), keys, stamps, self.cost, self.spans)

    def encode(self, numbering: Numbering) -> bytes:
        """The batch as one block."""
        return encode_columns(
            self.columns,
            writer_id=numbering.writer_id,
            first_event_number=numbering.first,
            base_timestamp_ms=numbering.now_ms,
            zstd_level=numbering.zstd_level,
        )


def _cut(joined: bytes, lengths: Iterable[int]) -> list[bytes]:
    ends = list(accumulate(lengths, initial=0))
    return [joined[a:b] for a, b in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The parts of a large event in the transient segment `parts` of a connection.

    `discard` ends the segment, if it still exists.
    """

    parts: str
    reference: LargeReference
    discard: Callable[[], None]


@dataclass(slots=True)
class LargeEvent:
    """One event that is stored as parts. `uploaded`: None until these are at its store."""

    event: bytes
    key: bytes | None
    timestamp_ms: int | None
    cost: int
    spans: "BlockSpans | None" = None
    uploaded: Uploaded | None = None

    @property
    def count(self) -> int:
        return 1

    @property
    def sent_size_max(self) -> int:
        """An upper bound of the sent size, without the parts."""
        columns = 4 + 2 + 8
        return HEADER_SIZE_BYTES + columns + LARGE_REFERENCE_SIZE_BYTES + len(self.key or b"")

    def payloads(self) -> list[bytes]:
        """The event."""
        return [self.event]

    def discard_upload(self) -> None:
        """Forget the parts that were uploaded, if any."""
        if self.uploaded is not None:
            self.uploaded.discard()
            self.uploaded = None

    def encode(self, numbering: Numbering) -> bytes:
        """The reference as one block; only once the event was uploaded."""
        assert self.uploaded is not None
        return encode_block(
            [self.uploaded.reference.encode()],
            writer_id=numbering.writer_id,
            first_event_number=numbering.first,
            base_timestamp_ms=numbering.now_ms,
            keys=None if self.key is None else [self.key],
            timestamps_ms=None if self.timestamp_ms is None else [self.timestamp_ms],
            flags=FLAG_LARGE | FLAG_PARTS_BEFORE,
        )


AnyBatch = Batch | ColumnBatch | LargeEvent
