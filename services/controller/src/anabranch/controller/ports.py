"""The ports of the controller's workflows. Each port has a fake in tests/kit."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from anabranch.common.contracts.commands import Command
from anabranch.common.contracts.place import Part
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import StreamCut
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.cluster.election import Promised
from anabranch.controller.domain.parking import ParkedCommand
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.history import EpochRecord, History
from anabranch.controller.domain.stream.state import Stream, TransactionsSeen
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.domain.writer_times import (
    KnownMarks,
    Mark,
    MarkPage,
    Noted,
    NotedStream,
)


class Candidates(Protocol):
    """The stores that may have copies of a replicated log."""

    async def promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        """Have the store refuse lower container epochs, durably, and tell the end of its copy.

        Ends within `PROMISE_S_MAX`; may be repeated. Raises Deposed (it promised a higher epoch),
        Unavailable, and other errors of the store.
        """
        ...


class SegmentBounds(NamedTuple):
    """The bytes that a segment has: from `start` up to `length`."""

    start: int
    length: int


class SegmentStores(Protocol):
    """Control requests to the stores that serve the segments. All are idempotent.

    A request with a stamp older than the segment's raises StaleRequest. If no store serves the
    container at the moment, the call raises Unavailable. Every call ends within its deadline.
    """

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        """Create the segment empty. If it exists under this stamp, the call succeeds."""
        ...

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        """Forbid appends; return the final length in bytes. A sealed segment is success."""
        ...

    async def check_truncation(self, segment: str, offset: int, stamp: Stamp) -> None:
        """Return if `truncate_segment` would succeed now. Changes nothing.

        Raises NotAtBoundary, InvalidRequest (beyond the end).
        """
        ...

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        """Delete the bytes before the offset. If the segment begins there or later, succeed.

        Raises NotAtBoundary with the nearest `lower` boundary, InvalidRequest (beyond the end).
        """
        ...

    async def segment_lengths(self, segments: Sequence[str]) -> Sequence[int]:
        """The lengths in bytes, at one moment, of a stream's segments in one container.

        Raises SegmentNotFound."""
        ...

    async def segment_bounds(self, segment: str) -> SegmentBounds:
        """Where its bytes begin and end. Raises SegmentNotFound."""
        ...

    async def boundary_at(self, segment: str, offset: int) -> int:
        """The first boundary of appends at or behind the offset. Raises SegmentNotFound,
        SegmentTruncated, InvalidRequest."""
        ...

    async def boundary_at_time(self, segment: str, time_ms: int) -> int:
        """The boundary before the first append that is not older than that Unix time, by the clock
        of the store that took it. Raises SegmentNotFound."""
        ...

    async def read_appends(self, segment: str, offset: int, size_max: int) -> bytes:
        """Whole appends from the boundary `offset`: at least one, and about `size_max` bytes; empty
        at the end. Raises SegmentNotFound, SegmentTruncated, InvalidRequest."""
        ...

    async def append_if(self, segment: str, block: bytes, expected_length: int) -> None:
        """Append the block if the segment has this length. The same again is success.

        Raises OffsetMismatch, SegmentNotFound, OutcomeUnknown (it was deleted), and EventGap or
        WriterExpired if the block is not the next one of its writer.
        """
        ...

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        """Append the sources to the segment, in order, and replace them by tombstones.

        Returns the offset at which the last source ends. Sources of transactions need not be
        sealed. A source that was merged before counts as success. Raises SegmentNotFound (a source
        never existed), SegmentSealed (the target is sealed).
        """
        ...

    async def merge_batch(self, segment: str, parts: Sequence[str | bytes], stamp: Stamp) -> int:
        """Append a whole commit batch to the segment: names of transaction segments and blocks, in
        this order. It is the only request of the batch for this segment.

        Returns an offset at or behind the end of the batch. The same again is success. Raises
        SegmentNotFound (a source never existed), SegmentSealed (the target is sealed).
        """
        ...

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        """Replace the segment by a tombstone. An unknown segment also gets one; this is success."""
        ...


class StreamListing(Protocol):
    """The streams that this controller knows."""

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as this controller last folded it; None: the stream never existed."""
        ...

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream with all events stored before the call; None: the stream never existed."""
        ...

    async def live_parts(self, scope: ScopeName, incarnation: int) -> Mapping[Part, Sequence[str]]:
        """The names of the scope's parts that are not deleted, by kind: half-created streams
        included, half-created groups and tables not.

        The answer includes all events stored before the call, in every shard.
        """
        ...


class GroupListing(Protocol):
    """The reader groups that this controller knows."""

    async def group_at_head(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """The group with all events stored before the call; None: the group never existed."""
        ...


class StreamHistories(Protocol):
    """The epochs of streams: those in the stream's own state and those in history chunks."""

    async def of(self, stream: Stream) -> History:
        """All epochs of the stream. Raises Unavailable, CorruptEvent, FormatTooNew."""
        ...

    async def once(self, stream: Stream) -> History:
        """As `of`, for a caller that looks at every stream and seldom comes back."""
        ...

    async def archive(self, stream: Stream, epochs: Sequence[EpochRecord]) -> None:
        """Store the stream's next history chunk. Idempotent. Raises Unavailable, CorruptEvent."""
        ...


class TransactionListing(Protocol):
    """A stream's transactions: all that have not ended, and ended ones that it has not noted."""

    def seen(self, stream: Stream) -> TransactionsSeen:
        """Whether the stream has transactions to commit or to note, as last folded."""
        ...

    async def settle(self, loaded: Loaded[Stream]) -> None:
        """Fold all their events stored before the stream's last event. Raises Unavailable."""
        ...

    async def transactions_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """All of them, with all events of the stream's shard up to that sequence.

        Transactions to be committed come first, in commit order. Raises Unavailable, Corrupt.
        """
        ...

    async def decided_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """`transactions_at` without the open ones; the cost does not depend on their number."""
        ...


class OutcomeChunks(Protocol):
    """The outcomes of ended transactions that the streams' own states no longer hold."""

    async def archive(self, stream: Stream, outcomes: Sequence[Outcome]) -> None:
        """Store the stream's next chunk of outcomes. Idempotent. Raises Unavailable."""
        ...

    async def forget(self, stream: Stream, chunks: Sequence[int]) -> None:
        """Delete chunks permanently. Idempotent. Raises Unavailable."""
        ...

    async def forget_all(self, stream: Stream, below_sequence: int) -> None:
        """Delete the records of a deleted stream: chunks and the commits of applications.

        Only records stored below that sequence of the shard go. Idempotent. Raises Unavailable.
        """
        ...

    async def unpurged(self, stream: Stream, chunk: int) -> Sequence[Outcome]:
        """The outcomes in a chunk whose transactions still have messages.

        Raises Unavailable, CorruptEvent, FormatTooNew.
        """
        ...

    async def find(self, stream: Stream, transaction: str) -> Outcome | None:
        """The outcome of an ended transaction; None: it is forgotten or never existed.

        Raises Unavailable, CorruptEvent, FormatTooNew.
        """
        ...


class CommandSender(Protocol):
    """The queue in which commands wait for their decision."""

    async def post(self, command: Command) -> None:
        """Queue the command durably. It may be decided more than once. Raises Unavailable."""
        ...


class ParkedCommands(Protocol):
    """The store of commands whose handling fails. All calls may raise Unavailable."""

    async def park(self, command: ParkedCommand) -> None:
        """Store the command durably, in place of an older one with the same bucket and id."""
        ...

    async def page(self, after: int, count: int) -> Sequence[tuple[int, ParkedCommand]]:
        """Up to `count` commands with their ascending numbers, from the first above `after`."""
        ...

    async def redrive(self, command_id: str) -> bool:
        """Publish the command again unchanged, then remove it; False if none has that id.

        After a crash between the two, both may be repeated: controllers recognise the id.
        """
        ...

    async def drop(self, command_id: str) -> bool:
        """Remove the command permanently; False if none has that id."""
        ...


class WriterTimes(Protocol):
    """The latest time mark of each writer. Marks may be lost, and reads may be a little old.

    The store keeps marks of a bounded number of writers per incarnation of a stream, for a bounded
    time. Every call ends within about a second; all raise Unavailable.
    """

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """Store the writer's mark; the same mark again is success.

        Raises InvalidRequest (the time, or a position in a segment, goes back), Overloaded (the
        stream has too many writers).
        """
        ...

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """The writer is gone; False if it has no mark. Its last mark stays, closed, until it is
        dropped or room is needed."""
        ...

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """The marks of at most `count` writers that are not gone, from the first whose id sorts
        above `after`."""
        ...

    async def marks(self, stream: StreamRef, incarnation: int) -> KnownMarks:
        """All marks, closed ones too, in any order. A mark that is noted meanwhile may be missing
        or be an older one."""
        ...

    async def drop(self, stream: StreamRef, incarnation: int, marks: Sequence[Mark]) -> None:
        """Forget these marks, but for those that were noted again or closed since."""
        ...

    async def noted(self, shard: int, generation: int, after: int, count: int) -> Noted:
        """At most `count` streams of the shard whose marks have changed since the number `after`,
        which counts only in the same generation. Generation and number 0: all that have marks."""
        ...

    async def forget(self, noted: NotedStream) -> None:
        """The stream has no marks: leave it out of `noted`, unless they have changed since."""
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class TransactionTimers(Protocol):
    """The timer wheel: the deadlines of members (transactions), per bucket.

    This index may be lost, emptied or old at any time. Its user keeps the deadlines elsewhere,
    checks them there before it acts on a member, and sweeps there for members that the index lost.
    Deadlines are times of the controllers' clocks, so the caller passes the present time. Every
    call ends within about a second. All calls may raise Unavailable, with or without having had
    their effect. All calls but `due` are idempotent.
    """

    async def arm(self, bucket: int, deadlines_ms: Mapping[str, int]) -> None:
        """Set the members' deadlines, in place of earlier ones.

        After Unavailable, some of them may be set.
        """
        ...

    async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
        """Take out up to `limit` members whose deadline is at or before `now_ms`, earliest first.

        One caller gets each member. If the answer is lost, no caller gets its members.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class AskPeers(Protocol):
    """Sends a query to every other live controller."""

    async def __call__(
        self, name: str, payload: bytes, timeout_s: float, /
    ) -> Sequence[tuple[str, bytes]]:
        """Return (controller id, encoded answer) of each controller that answered in time."""
        ...


class TryAgain(Exception):
    """The command could not be decided now; the queue must deliver it again."""

    def __init__(self, cause: AnabranchError) -> None:
        super().__init__(str(cause))
        self.cause = cause
