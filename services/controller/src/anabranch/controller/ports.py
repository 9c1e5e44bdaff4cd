"""What the controller's workflows need from outside. Each port has a fake in tests/kit."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from anabranch.common.contracts.commands import Command
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import StreamCut
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.parking import ParkedCommand
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.history import EpochRecord, History
from anabranch.controller.domain.stream.state import Stream, TransactionsSeen
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.domain.writer_times import MarkPage


class SegmentStores(Protocol):
    """Control requests on segments, wherever they live. All are idempotent.

    A request older (by stamp) than what the segment has seen raises StaleRequest. A container
    that nobody serves at the moment raises Unavailable. Every call ends within its deadline.
    """

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        """Create it empty; already there under this stamp is success."""
        ...

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        """Forbid appends; returns the final length in bytes. Already sealed is success."""
        ...

    async def check_truncation(self, segment: str, offset: int, stamp: Stamp) -> None:
        """Return if `truncate_segment` would succeed now; nothing changes.

        Raises NotAtBoundary, InvalidRequest (beyond the end).
        """
        ...

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        """Give up what lies before the offset; at or behind the start already is success.

        Raises NotAtBoundary with the nearest `lower` boundary, InvalidRequest (beyond the end).
        """
        ...

    async def segment_length(self, segment: str) -> int:
        """Its present length in bytes. Raises SegmentNotFound."""
        ...

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        """Append the sources to the segment, in order, and leave tombstones of them; returns where
        the last one ends. Sources of transactions need not be sealed. Merged before is success.

        Raises SegmentNotFound (a source that never was), SegmentSealed (the target).
        """
        ...

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        """Delete, leaving a tombstone; unknown is success (and leaves the tombstone)."""
        ...


class StreamListing(Protocol):
    """Which streams there are, as of now."""

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as it was known to be lately; None: it never was."""
        ...

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The same with everything stored before the call."""
        ...

    async def live_streams(self, scope: ScopeName, incarnation: int) -> Sequence[StreamName]:
        """The scope's streams that are not deleted, half-created ones included.

        Whatever was stored before the call is taken into account, in every shard.
        """
        ...


class GroupListing(Protocol):
    """Which reader groups there are."""

    async def group_at_head(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """The group with everything stored before the call; None: it never was."""
        ...


class StreamHistories(Protocol):
    """The epochs of streams, wherever they are kept."""

    async def of(self, stream: Stream) -> History:
        """All epochs of the stream. Raises Unavailable, CorruptEvent, FormatTooNew."""
        ...

    async def archive(self, stream: Stream, epochs: Sequence[EpochRecord]) -> None:
        """Store the stream's next history chunk. Idempotent. Raises Unavailable, CorruptEvent."""
        ...


class TransactionListing(Protocol):
    """Which transactions of a stream there are: those that have not ended, and those that have and
    of which the stream does not know yet."""

    def seen(self, stream: Stream) -> TransactionsSeen:
        """What they ask of the stream, as known by now."""
        ...

    async def settle(self, loaded: Loaded[Stream]) -> None:
        """Know of them all that was stored before the stream's last event. Raises Unavailable."""
        ...

    async def transactions_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """All of them, with everything that the stream's shard had stored up to that sequence.

        Those to be committed come first, in commit order. Raises Unavailable, Corrupt.
        """
        ...

    async def decided_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """`transactions_at`, but for those that are open: it costs the same however many are."""
        ...


class OutcomeChunks(Protocol):
    """What became of the transactions of streams, as far as streams need not keep it."""

    async def archive(self, stream: Stream, outcomes: Sequence[Outcome]) -> None:
        """Store the stream's next chunk of outcomes. Idempotent. Raises Unavailable."""
        ...

    async def forget(self, stream: Stream, chunks: Sequence[int]) -> None:
        """Delete chunks for good. Idempotent. Raises Unavailable."""
        ...

    async def forget_all(self, stream: Stream, below_sequence: int) -> None:
        """The stream is deleted: give up all chunks, and what applications committed, as far as it
        was stored before that sequence of its shard. Idempotent. Raises Unavailable."""
        ...

    async def find(self, stream: Stream, transaction: str) -> Outcome | None:
        """The outcome of an ended transaction; None: it is forgotten, or never was.

        Raises Unavailable, CorruptEvent, FormatTooNew.
        """
        ...


class CommandSender(Protocol):
    """Where commands wait to be decided."""

    async def post(self, command: Command) -> None:
        """Queue it durably; it may be decided more than once. Raises Unavailable."""
        ...


class ParkedCommands(Protocol):
    """Commands that were put aside because handling them fails. All may raise Unavailable."""

    async def park(self, command: ParkedCommand) -> None:
        """Keep it, durably; one of the same bucket and id takes the place of the older one."""
        ...

    async def page(self, after: int, count: int) -> Sequence[tuple[int, ParkedCommand]]:
        """Up to `count` of them with their numbers, which grow, from the first above `after`."""
        ...

    async def redrive(self, command_id: str) -> bool:
        """Publish it again as it came, then remove it; False if none has that id.

        After a crash in between both may be done again: the command is recognised by its id.
        """
        ...

    async def drop(self, command_id: str) -> bool:
        """Remove it for good; False if none has that id."""
        ...


class WriterTimes(Protocol):
    """What the writers of streams noted last of time. It may be lost, or be a little old.

    Per incarnation of a stream it is kept of a bounded number of writers, and for a bounded time.
    Every call ends within a second or so; all raise Unavailable.
    """

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """The writer's mark from now on; the same again is success.

        Raises InvalidRequest (its time, or its position in a segment, goes back), Overloaded (too
        many writers).
        """
        ...

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """Forget the writer's mark; False if there is none."""
        ...

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """The marks of at most `count` writers, from the first whose id sorts above `after`."""
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class TransactionTimers(Protocol):
    """The timer wheel: per bucket, which members (transactions) have a deadline, and when.

    It is an index that may be lost, emptied or old at any time: whoever uses it knows the
    deadlines from elsewhere, looks there before acting on a member, and sweeps there for members
    that were lost. Deadlines are of the controllers' clocks, so the caller says what time it is.
    Every call ends within a second or so; all raise Unavailable, and may then have been done or
    not. All but `due` are idempotent.
    """

    async def arm(self, bucket: int, deadlines_ms: Mapping[str, int]) -> None:
        """The members' deadlines from now on, in place of earlier ones; of an Unavailable some may
        be armed."""
        ...

    async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
        """Up to `limit` members whose deadline is at or before `now_ms`, earliest first.

        They are taken out: each is given to one caller, and to nobody if the answer is lost.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class AskPeers(Protocol):
    """Puts a query to every other live controller."""

    async def __call__(
        self, name: str, payload: bytes, timeout_s: float, /
    ) -> Sequence[tuple[str, bytes]]:
        """(controller id, encoded answer) of all who answered in time."""
        ...


class TryAgain(Exception):
    """The command could not be decided now; it must be delivered again."""

    def __init__(self, cause: AnabranchError) -> None:
        super().__init__(str(cause))
        self.cause = cause
