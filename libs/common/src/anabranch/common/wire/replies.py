"""Replies of a segment store: one message each, and `Failed` for every refusal."""

from collections.abc import Mapping

import msgspec

from anabranch.common.wire.message import AttributeValue, MergedSegment, Message


class Done(Message, frozen=True, kw_only=True):
    """The request was performed, now or before, and is durable."""


class SegmentCreated(Message, frozen=True, kw_only=True):
    """The transient segment exists, under this name."""

    segment: str


class SegmentInfo(Message, frozen=True, kw_only=True):
    """A segment as the store has it; lengths and offsets in bytes.

    `tiered_length`: the end of the bytes that are in tier 2 without a gap. `sealed_in_tier_two`:
    tier 2 knows it as sealed. `modified_ms`: when bytes were last added, 0 for never. `event_count`
    counts the events since the segment was created, truncated ones included; `start_event_count` is
    the number of the first event that is kept, -1 if it is not known. For a segment that is gone,
    only `deleted` is meaningful and, if it was merged, `length` and the new place of its bytes.
    """

    segment: str
    start: int
    length: int
    tiered_length: int
    sealed: bool
    event_count: int
    container: int
    container_epoch: int
    sealed_in_tier_two: bool = False
    modified_ms: int = 0
    deleted: bool = False
    merged_into: str = ""
    merged_offset: int = 0
    start_event_count: int = -1


class Sealed(Message, frozen=True, kw_only=True):
    """The segment is sealed at `length`."""

    length: int


class Truncated(Message, frozen=True, kw_only=True):
    """The segment starts at `start`, which may lie beyond the requested offset."""

    start: int


class SegmentsMerged(Message, frozen=True, kw_only=True):
    """The new place of each source's bytes, in the order of the request."""

    merged: tuple[MergedSegment, ...]


class BatchMerged(Message, frozen=True, kw_only=True):
    """The segment has the whole batch, which ends at `end` or before."""

    end: int


class AttributeValues(Message, frozen=True, kw_only=True):
    """The attributes, ascending by id."""

    values: tuple[AttributeValue, ...]


class OffsetLocated(Message, frozen=True, kw_only=True):
    offset: int


class EventLocated(Message, frozen=True, kw_only=True):
    """The append boundary at `offset` has `event_index` events before it."""

    offset: int
    event_index: int


class AppendSetup(Message, frozen=True, kw_only=True):
    """The session is open; `last_event_number` is 0 for a writer unknown to the segment.

    `sealed`: the store will refuse appends; the caller now knows which events to resend elsewhere.
    """

    session: int
    last_event_number: int
    sealed: bool = False


class AppendedTogether(Message, frozen=True, kw_only=True):
    """All blocks of the group are stored, now or before."""


class Lengths(Message, frozen=True, kw_only=True):
    """The lengths in bytes, in the order of the request, at one moment."""

    lengths: tuple[int, ...]


class Appended(Message, frozen=True, kw_only=True):
    """Everything up to `last_event_number` of the session is durable; `length` after it.

    `event_count`: the events of the segment after this append, so that an append of n events gave
    them the numbers from `event_count` - n on. -1: not known, because the append was a repetition,
    or because the store is older.
    """

    session: int
    last_event_number: int
    length: int
    event_count: int = -1


class SegmentRead(Message, frozen=True, kw_only=True):
    """The payload holds the segment's bytes from `offset`.

    `at_tail`: the segment has no more bytes at the moment; `end_of_segment`: it is sealed and never
    will have more.
    """

    offset: int
    at_tail: bool = False
    end_of_segment: bool = False


class TableUpdated(Message, frozen=True, kw_only=True):
    """The answer of UpdateTable, once the performed units are durable.

    `segment_number` identifies the segment's life and belongs to every version. The performed
    entries, counted in their order, have the versions `version`, `version` + 1, …; `refused` is the
    column of refusals (`wire.table_columns`), ascending by unit. If all units were refused,
    `version` is ABSENT.
    """

    segment_number: int
    version: int
    refused: bytes = b""


class TableRead(Message, frozen=True, kw_only=True):
    """The payload holds rows (`wire.table_columns`).

    `more`: the range may have further entries, or the answer has no rows for the last keys.

    `length` is the length of the segment up to which the rows include every update.
    """

    segment_number: int
    length: int
    more: bool = False


class TableDescribed(Message, frozen=True, kw_only=True):
    """A table segment. `start` and `length` in bytes, as of its log; `indexed` is the length up to
    which the index has it. `entries`, and `live_size` (keys and values in bytes), count the entries
    that the index knows, expired ones included until compaction drops them.
    """

    segment_number: int
    start: int
    length: int
    indexed: int
    entries: int
    live_size: int
    sealed: bool = False


class Failed(Message, frozen=True, kw_only=True):
    """The request was refused or failed: the body of an `errors.AnabranchError`.

    After a Failed reply to an Append its session is over until the next SetupAppend.
    """

    code: str
    message: str
    remedy: str = ""
    fields: dict[str, str | int | float | bool | None] = msgspec.field(
        default_factory=dict[str, str | int | float | bool | None]
    )
    session: int = 0


REPLIES: Mapping[int, type[Message]] = {
    40: Done, 41: SegmentInfo, 42: Sealed, 43: OffsetLocated, 44: AppendSetup,
    45: Appended, 46: SegmentRead, 47: Failed, 48: Truncated, 49: SegmentsMerged,
    50: AttributeValues, 51: SegmentCreated, 52: TableUpdated, 53: TableRead, 54: TableDescribed,
    55: EventLocated, 56: AppendedTogether, 57: Lengths, 58: BatchMerged,
}  # fmt: skip
"""Every reply, by its number in packets: add, never change."""
