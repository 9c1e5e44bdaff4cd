"""Requests to a segment store: one message each.

Requests name segments in full (``scope/stream/0.#epoch.0``). The field `container_epoch`, where
present, is the epoch that the caller looked up; a store that serves another epoch answers WrongHost
(0 = not looked up, accept any).

`REQUESTS` is the table of all of them. A new control verb is a message and a row here, and a
function and a row in the store's table of answers.

Every control request carries the stamp {incarnation, revision} of the aggregate decision that
it performs; a container refuses older ones (StaleRequest). Requests about transient segments, and
their merge, carry `NO_DECISION`, and so do changes of attributes that a client makes for itself.
"""

from typing import NamedTuple

from anabranch.common.wire.message import AttributeUpdate, BlockPlace, Message, Stamp
from anabranch.common.wire.replies import (
    Appended,
    AppendedTogether,
    AppendSetup,
    AttributeValues,
    BatchMerged,
    Done,
    EventLocated,
    Lengths,
    OffsetLocated,
    Sealed,
    SegmentCreated,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    TableDescribed,
    TableRead,
    TableUpdated,
    Truncated,
)

REQUESTS_IN_FLIGHT_MAX = 8
"""Unanswered updates of one client on one table segment."""
GROUP_SIZE_BYTES_MAX = 262_144
"""The bytes of all blocks of an `AppendTogether`, so that a group fits in one frame of any log."""
GROUP_SEGMENTS_MAX = 64
"""The segments of an `AppendTogether`."""
LENGTHS_SEGMENTS_MAX = 1_001
"""The segments of a `GetLengths`, whose names must also fit in the message of one packet."""
REQUESTS_REMEMBERED = 16
"""The last updates of a client on a table segment whose answers the store can repeat."""


class Request(Message, frozen=True, kw_only=True):
    """Common fields of requests.

    `trace_parent` (W3C traceparent) continues a trace. `token` proves the identity of the caller;
    if it is empty, the token of the connection's `Hello` counts. Stores ignore tokens today. An
    append has none, because the setup of its session has one.
    """

    segment: str
    container_epoch: int = 0
    trace_parent: str = ""
    token: str = ""


class CreateSegment(Request, frozen=True, kw_only=True):
    """Create an empty segment. → Done; repeated with the same stamp → Done."""

    stamp: Stamp


class CreateTransient(Request, frozen=True, kw_only=True):
    """Create an empty segment that lives no longer than this connection. → SegmentCreated.

    `segment` is its parent. Write, seal and read it under the name in the answer; it may be merged
    into its parent. The store deletes it when the connection ends, and when its container opens
    again. `writer_id` has 16 bytes; its first eight become part of the name. Every request creates
    another segment.
    """

    writer_id: bytes


class SealSegment(Request, frozen=True, kw_only=True):
    """Forbid further appends. → Sealed; repeated → Sealed."""

    stamp: Stamp


class DeleteSegment(Request, frozen=True, kw_only=True):
    """Delete, leaving a tombstone, also of an unknown segment. → Done; repeated → Done."""

    stamp: Stamp


class TruncateSegment(Request, frozen=True, kw_only=True):
    """Give up all bytes before `offset`, an append boundary. → Truncated.

    An offset at or below the present start changes nothing and succeeds. Works on sealed
    segments. NotAtBoundary names the nearest lower boundary that is known.
    """

    stamp: Stamp
    offset: int


class CheckTruncation(TruncateSegment, frozen=True, kw_only=True):
    """Answer as `TruncateSegment` would now, and change nothing. → Truncated.

    The controller sends it to every segment of a cut before it truncates the first one. If the
    segment contains blocks, a Truncated answer holds for good: the segment never gets shorter, and
    its blocks keep their places. When the store moves bytes that are not blocks to tier 2, it
    forgets their boundaries; NotAtBoundary then names the nearest lower one that it still knows.
    """


class MergeSegments(Request, frozen=True, kw_only=True):
    """Append all of each source to `segment`, in this order, all or none. → SegmentsMerged.

    The sources are sealed, never truncated, and of the same container; afterwards the store knows
    them as merged. Their attributes and writers' numbers end. Repeated → the same answer.
    Transient sources merge into their parent only, and not together with other kinds; their stamp
    is `NO_DECISION`, which the store does not compare with the parent's stamp and does not keep.

    Transaction segments need not be sealed, because the merge seals them. They merge into a segment
    of their parent's stream and number, and not together with other kinds. If the store has
    forgotten a source and `segment` has seen this very stamp, the answer gives the source as empty.
    """

    stamp: Stamp
    sources: tuple[str, ...]


class MergeBatch(Request, frozen=True, kw_only=True):
    """Append a whole commit batch to `segment`, all or none: ADR 19. → BatchMerged.

    `parts`, in batch order: the name of a transaction segment, which is merged as by
    `MergeSegments`, or the size of the next block of the payload, which is appended; at least one
    is a block. The batch has no other request for this segment. If the segment has seen this very
    stamp, the request is a repeat and changes nothing. All parts become durable and visible
    together.
    """

    stamp: Stamp
    parts: tuple[str | int, ...]


class UpdateAttributes(Request, frozen=True, kw_only=True):
    """Perform all updates or none. → Done; repeated → Done.

    The store neither compares nor keeps the stamp `NO_DECISION`, which clients send.
    `request_number` counts the requests of `client_id` (16 bytes) on the segment from 1 without
    gaps, in one sequence with the events that are appended under this id. AttributeMismatch
    names the attribute whose value forbids the update.
    """

    stamp: Stamp
    client_id: bytes
    request_number: int
    updates: tuple[AttributeUpdate, ...]


class GetAttributes(Request, frozen=True, kw_only=True):
    """→ AttributeValues: the named ones, or all if none is named, without absent ones."""

    attributes: tuple[bytes, ...] = ()


class GetSegmentInfo(Request, frozen=True, kw_only=True):
    """→ SegmentInfo. `even_gone`: also of a segment that was deleted or merged."""

    even_gone: bool = False


class LocateOffset(Request, frozen=True, kw_only=True):
    """→ OffsetLocated: the first append boundary at or after `offset`."""

    offset: int


class LocateTime(Request, frozen=True, kw_only=True):
    """→ OffsetLocated: the boundary before the first append that is not older than `time_ms`.

    All appends before it are older; it is the segment's end if all are, and its start if none is.
    Times are Unix ms by the clock of the store that took the append. Events of a transaction have
    the time at which they were written into it. For appends that only tier 2 has, the boundary may
    lie up to 64 KiB too early, because chunks list one time per 64 KiB; among appends of
    transactions it may lie too late by as long as these were open.
    """

    time_ms: int


class LocateEvent(Request, frozen=True, kw_only=True):
    """→ EventLocated: the last known append boundary with at most `event_index` events before it.

    Events are counted from 0 over the life of the segment, and truncation does not change their
    numbers. The caller reads from the boundary and skips the events before the wanted one. For
    appends that only tier 2 has, the boundary may lie up to 64 KiB, or one append, too early,
    because chunks list one boundary per 64 KiB. A number at or above the segment's event count is
    located at the segment's end. RecordEvicted: a truncation has removed the event.
    """

    event_index: int


class SetupAppend(Request, frozen=True, kw_only=True):
    """Open the append session `session` of (writer id, segment) on this connection.

    → AppendSetup. Ends an older session of the same writer and segment, on any connection.
    """

    writer_id: bytes
    session: int


class Append(Message, frozen=True, kw_only=True):
    """Append the payload to the session's segment, whole or not at all.

    `count` events numbered from `first_event_number`, contiguous per (writer id, segment).
    `is_block`: the payload is one block of `wire.block`, which the store verifies. → Appended,
    cumulative: the reply to a later append of the session answers the earlier ones too.
    """

    session: int
    first_event_number: int
    count: int
    is_block: bool = True
    trace_parent: str = ""


class AppendLarge(Append, frozen=True, kw_only=True):
    """Append the reference of a large event, as `Append` does, and its parts directly before it.

    The payload is a block with FLAG_PARTS_BEFORE. `parts`: a sealed transient segment of the same
    parent, which is merged in the same frame of the log. A repetition of a stored append does not
    need it any more.
    """

    parts: str


class AppendOnce(Request, frozen=True, kw_only=True):
    """Append the payload as `Append` does, without a session. → Appended with `session` 0.

    For callers without a connection of their own, such as those on NATS. The event numbers decide
    as always, so a repetition is safe. The request needs no live session of the writer and ends
    none: the store judges the next append of a session by the numbers that this one leaves behind.
    """

    writer_id: bytes
    first_event_number: int
    count: int
    is_block: bool = True


class ConditionalAppend(AppendOnce, frozen=True, kw_only=True):
    """Append as `AppendOnce` does if the conditions hold, and update attributes with it.

    `expected_length`: the segment's length before the append (None: any); else OffsetMismatch.
    `updates`: the store performs all of them with the append, or nothing. It acknowledges stored
    events before it checks any condition, so a repetition is safe. → Appended.
    """

    expected_length: int | None = None
    updates: tuple[AttributeUpdate, ...] = ()


class AppendTogether(Request, frozen=True, kw_only=True):
    """Append one block to each of several segments of one container, all or none: ADR 18.

    `places`: one for each block of the payload, in their order there; no segment occurs twice, and
    `segment` is that of the first. Each block is decided as one of `AppendOnce`. If the store
    refuses one, it refuses all. A repetition finds all blocks stored, and is acknowledged; if the
    store has some of the blocks but not all, the group is refused as PartialDuplicate. All blocks
    become durable and visible together. → AppendedTogether.
    """

    writer_id: bytes
    places: tuple[BlockPlace, ...]


class GetLengths(Request, frozen=True, kw_only=True):
    """→ Lengths of `segments`, which are in one container, at one moment.

    A segment's name is `prefix` and its entry in `segments`, so that the names of a whole stream
    fit in a packet. `segment` is the first of them. Raises SegmentNotFound for the first that does
    not exist.
    """

    segments: tuple[str, ...]
    prefix: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the segments, up to one more than the limit."""
        return tuple(self.prefix + each for each in self.segments[: LENGTHS_SEGMENTS_MAX + 1])


class ReadSegment(Request, frozen=True, kw_only=True):
    """Read from `offset`, up to about `size_max` bytes, waiting ≤ `wait_ms` at the tail.

    → SegmentRead with the bytes as payload. `whole_appends`: the bytes end on an append boundary
    (the answer holds at least one append, even if it is longer than `size_max`), and `offset` must
    be a boundary. A transaction segment cannot be read: InvalidRequest.
    """

    offset: int
    size_max: int
    wait_ms: int = 0
    whole_appends: bool = True


class UpdateTable(Request, frozen=True, kw_only=True):
    """Perform the units of an update of a table segment; the payload is a table block.

    `wire.table` defines the block, and `wire.table_columns` the columns. The entries of the block
    form consecutive `units` (empty: one unit of all). A unit is performed whole, or refused if the
    condition of one of its entries does not hold (`conditions`; empty: none). Units are decided in
    their order, and each sees those before it. All performed units become durable and visible
    together.

    `client_id` (16 bytes) and `request_number` (from 1) equal those in the block. A repetition gets
    the first answer, as long as the number is among the client's last `REQUESTS_REMEMBERED` on this
    segment; otherwise OutcomeUnknown. The numbers may arrive in any order, but a client must not
    have more than `REQUESTS_IN_FLIGHT_MAX` unanswered ones. `segment_number` is the number of the
    segment from which the versions in `conditions` are; 0: there are none. If the segment has
    another number, each unit with a version is refused. → TableUpdated. Raises InvalidRequest,
    SegmentSealed, OutcomeUnknown, and the errors of `parse_table_block`.
    """

    client_id: bytes
    request_number: int
    conditions: bytes = b""
    units: bytes = b""
    segment_number: int = 0


class GetEntries(Request, frozen=True, kw_only=True):
    """→ TableRead with one row per key of the payload (`encode_keys`), in its order, without keys.

    The rows are durable, and include every acknowledged update. A key without an entry, or whose
    entry has expired, has NO_ROW. At most `GET_KEYS_MAX` keys. The answer has about
    `size_max` bytes, but at least one row: `more` says that the rows of the last keys are missing,
    which the caller asks for again.
    """

    size_max: int = 4 * 1024 * 1024


class ScanEntries(Request, frozen=True, kw_only=True):
    """→ TableRead with the entries whose table keys lie in [start, end), ascending.

    Keys compare as unsigned bytes. `start` empty: from the first; `end` empty: to the last. At most
    `count_max` rows and about `size_max` bytes, but at least one row. The next page starts at the
    last key + ``00``. A page is a snapshot that includes every update that was acknowledged before
    the request. `values` False: the rows have no values.
    """

    start: bytes = b""
    end: bytes = b""
    count_max: int = 1000
    size_max: int = 2 * 1024 * 1024
    values: bool = True


class DescribeTable(Request, frozen=True, kw_only=True):
    """→ TableDescribed."""


class FlushContainer(Message, frozen=True, kw_only=True):
    """Move everything acknowledged so far to tier 2. → Done when the manifest is durable."""

    container: int
    token: str = ""


class RequestKind(NamedTuple):
    """A request's place in the protocol.

    `kind` is its number in packets: add, never change. `verb` is its name on NATS subjects; without
    one the request needs a connection.
    """

    kind: int
    request: type[Message]
    reply: type[Message]
    verb: str = ""


REQUESTS = (
    RequestKind(10, CreateSegment, Done, "create"),
    RequestKind(11, SealSegment, Sealed, "seal"),
    RequestKind(12, DeleteSegment, Done, "delete"),
    RequestKind(20, TruncateSegment, Truncated, "truncate"),
    RequestKind(26, CheckTruncation, Truncated, "check_truncation"),
    RequestKind(21, MergeSegments, SegmentsMerged, "merge"),
    RequestKind(22, UpdateAttributes, Done, "update_attributes"),
    RequestKind(23, GetAttributes, AttributeValues, "attributes"),
    RequestKind(13, GetSegmentInfo, SegmentInfo, "info"),
    RequestKind(14, LocateOffset, OffsetLocated, "locate"),
    RequestKind(27, LocateTime, OffsetLocated, "locate_time"),
    RequestKind(18, FlushContainer, Done, "flush"),
    RequestKind(15, SetupAppend, AppendSetup, "setup"),
    RequestKind(19, AppendOnce, Appended, "append"),
    RequestKind(24, ConditionalAppend, Appended, "append_if"),
    RequestKind(17, ReadSegment, SegmentRead, "read"),
    RequestKind(16, Append, Appended),
    RequestKind(25, CreateTransient, SegmentCreated),
    RequestKind(28, UpdateTable, TableUpdated),
    RequestKind(29, GetEntries, TableRead),
    RequestKind(30, ScanEntries, TableRead),
    RequestKind(31, DescribeTable, TableDescribed),
    RequestKind(32, LocateEvent, EventLocated, "locate_event"),
    RequestKind(33, AppendTogether, AppendedTogether, "append_together"),
    RequestKind(34, GetLengths, Lengths, "lengths"),
    RequestKind(35, MergeBatch, BatchMerged, "merge_batch"),
    RequestKind(36, AppendLarge, Appended),
)
"""Every request and its reply; a `Failed` may come instead."""
