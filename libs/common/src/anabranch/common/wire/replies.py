"""What a segment store answers: one message per reply, and `Failed` for every refusal."""

import msgspec

from anabranch.common.wire.message import AttributeValue, MergedSegment, Message


class Done(Message, frozen=True, kw_only=True):
    """The request was performed, now or before, and is durable."""


class SegmentCreated(Message, frozen=True, kw_only=True):
    """The transient segment is there, under this name."""

    segment: str


class SegmentInfo(Message, frozen=True, kw_only=True):
    """A segment as the store has it; lengths and offsets in bytes.

    `tiered_length`: where what is in tier 2 without a gap ends. `sealed_in_tier_two`: tier 2
    knows it as sealed. `modified_ms`: when bytes were last added, 0 for never. Of what is gone
    only `deleted` and, if it was merged, `length` and where its bytes are now say something.
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


class Sealed(Message, frozen=True, kw_only=True):
    """The segment is sealed at `length`."""

    length: int


class Truncated(Message, frozen=True, kw_only=True):
    """The segment starts at `start`, which may lie beyond what was asked for."""

    start: int


class SegmentsMerged(Message, frozen=True, kw_only=True):
    """Where each source's bytes are now, in the order asked for."""

    merged: tuple[MergedSegment, ...]


class AttributeValues(Message, frozen=True, kw_only=True):
    """Ascending by id."""

    values: tuple[AttributeValue, ...]


class OffsetLocated(Message, frozen=True, kw_only=True):
    offset: int


class AppendSetup(Message, frozen=True, kw_only=True):
    """The session is open; `last_event_number` is 0 for a writer unknown to the segment.

    `sealed`: appends will be refused, but the caller now knows what to resend elsewhere.
    """

    session: int
    last_event_number: int
    sealed: bool = False


class Appended(Message, frozen=True, kw_only=True):
    """Everything up to `last_event_number` of the session is durable; `length` after it."""

    session: int
    last_event_number: int
    length: int


class SegmentRead(Message, frozen=True, kw_only=True):
    """The payload holds the segment's bytes from `offset`.

    `at_tail`: nothing lies beyond at the moment; `end_of_segment`: sealed and nothing ever will.
    """

    offset: int
    at_tail: bool = False
    end_of_segment: bool = False


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
