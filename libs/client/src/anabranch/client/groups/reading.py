"""The part of a group's reader without the network: events go out, progress goes to the group.

    asks ──► given events are processed ──► released, completed, checkpoint reached
      ▲                                              │
      └── next event, if the lease runs ◄── segments that this reader has

When the application asks for more, all earlier events are processed, unless acknowledgements are
explicit. The reader hands out nothing after its lease has run out, or before it has reached a due
checkpoint. When a segment goes to another reader, the blocks that were read ahead are dropped.
After a failure every call raises it, unless it is raised only once (`_failed`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Generic, NamedTuple, Protocol, cast

from typing_extensions import TypeVar

from anabranch.client.groups.ledger import Ledger
from anabranch.client.groups.member import GroupMember
from anabranch.client.groups.state import Checkpoint, GroupSegment
from anabranch.client.groups.updates import GroupSuccessor, Saved
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.serializers import Serializer
from anabranch.common.errors import (
    AnabranchError,
    InvalidPosition,
    InvalidRequest,
    SerializationFailed,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger

_log = get_logger(__name__)

T = TypeVar("T", default=bytes)
OnCheckpoint = Callable[[str], Awaitable[None]]
"""Called with a checkpoint's name when every event before it is processed, and none after it. The
group's own checkpoints are named ``automatic-<number>``.
"""


class SegmentSource(Protocol):
    """A source of blocks: an `Intake`."""

    def open(self, segment: str, position: Position, end_offset: int | None = None) -> None: ...

    def drop(self, segment: str) -> None: ...

    def next_nowait(self) -> IntakeItem | None: ...

    def consumed(self, batch: EventBatch) -> None: ...

    async def close(self) -> None: ...


class _Refused(NamedTuple):
    """Stands for an event that cannot be deserialized."""

    position: Position


class GroupReading(Generic[T]):
    """The reader's segments, events and progress, without the network.

    The source and the membership set `news` whenever there may be something to do.
    """

    def __init__(
        self,
        source: SegmentSource,
        news: asyncio.Event,
        clock: Clock,
        *,
        explicit: bool,
        on_checkpoint: OnCheckpoint | None,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self._source = source
        self._news = news
        self._clock = clock
        self._on_checkpoint = on_checkpoint
        self._serializer = serializer
        self.ledger = Ledger(explicit=explicit)
        self._member: GroupMember | None = None
        self._to_give_up: set[str] = set()
        self._failure: AnabranchError | None = None
        self._due: Checkpoint | None = None
        self._reached_number = 0
        self._may_release = False
        self._batch: EventBatch | None = None
        self._events: deque[Event[T]] = deque()
        self._no_value: tuple[int, SerializationFailed] | None = None
        """The row of the open block after `_events` that the serializer refuses, and its error."""
        self._in_hand: Event[T] | _Refused | None = None
        self._is_due = False
        """Whether something must be done before the next event is handed out."""
        self._is_held_back = False
        """Whether the lease had run out when the application last asked."""
        self._free_until_s = -inf
        """Until then the lease runs and no save is due; a lower bound."""

    def belongs_to(self, member: GroupMember) -> None:
        """Set the membership of this reader."""
        self._member = member

    @property
    def member(self) -> GroupMember:
        assert self._member is not None
        return self._member

    # --- called by the membership ---------------------------------------------------------

    def gained(self, segment: GroupSegment) -> None:
        """See `Holder`."""
        self._source.drop(segment.name)
        self.ledger.gained(segment.name, segment.ownership, segment.position)
        self._source.open(segment.name, segment.position, segment.end_offset)

    def give_up(self, segments: Iterable[str]) -> None:
        """See `Holder`. A segment that is being given up stays so, even if the plan changes."""
        if self.member.state.config.release_after_checkpoint and not self._may_release:
            return
        self._to_give_up.update(name for name in segments if name in self.ledger.holdings)
        if self._to_give_up:
            self._settle()
            self._release()

    def news(self) -> tuple[Saved, ...]:
        """See `Holder`."""
        self._settle()
        return self.ledger.news()

    def checkpoint_due(self, checkpoint: Checkpoint | None) -> None:
        """See `Holder`."""
        is_new = checkpoint is not None and checkpoint.number > self._reached_number
        self._due = checkpoint if is_new else None
        self._is_due = self._is_due or is_new

    def wake(self) -> None:
        """See `Holder`."""
        if self.member.failure is not None:
            self._is_due = True
        self._news.set()

    # --- handing out ----------------------------------------------------------------------

    def next_event_nowait(self) -> Event[T] | None:
        """The next event of the open block, if nothing else must be done first."""
        if self._events and not self._is_due and self._clock.monotonic() < self._free_until_s:
            self._in_hand = event = self._events.popleft()
            return event
        return None

    async def next_event(self) -> Event[T] | None:
        """The next event; None at the end of everything that the group reads."""
        self._asked()
        await self.member.saving.wait()
        while True:
            await self._do_what_is_due()
            if self._events and self._is_lease_valid():
                self._free_until_s = min(self.member.valid_until_s, self.member.saving.due_s)
                self._in_hand = event = self._events.popleft()
                return event
            if self._events:
                await self._wait()
            elif self._no_value is not None:
                raise self._refused(*self._no_value)
            elif (batch := await self._take()) is not None:
                self._batch = batch
                self._open_rows(0)
            else:
                return None

    def _open_rows(self, row: int) -> None:
        """Let the open block's events from `row` on come next, up to one that cannot be
        deserialized.
        """
        batch = self._batch
        assert batch is not None
        self._no_value = None
        try:
            if self._serializer is None:
                self._events = cast("deque[Event[T]]", deque(batch.events()))
                return
            values, error = batch.values_from(row, self._serializer)
            self._events = deque(batch.events_with(values, row))
        except AnabranchError as failure:
            raise self._failed(SegmentFailed(batch.segment, failure)) from failure
        if error is not None:
            self._no_value = row + len(values), error

    def _refused(self, row: int, error: SerializationFailed) -> SerializationFailed:
        """The refused event is in hand like any other: asking for more skips it."""
        self._in_hand = _Refused(self._place_of(row))
        self._open_rows(row + 1)
        return error

    def _place_of(self, row: int) -> Position:
        assert self._batch is not None
        offset, first = self._batch.start
        return Position(offset, first + row)

    async def next_batch(self) -> EventBatch | None:
        """The next block's events; None at the end. Raises InvalidRequest within an open block."""
        self._check_no_open_block()
        self._asked()
        await self.member.saving.wait()
        batch = await self._take()
        if batch is not None:
            self.ledger.give(batch.segment, batch.next, batch.start)
        return batch

    def next_batch_nowait(self) -> EventBatch | None:
        """The next block's events if they were read ahead, and nothing else must be done first."""
        self._check_no_open_block()
        self._asked()
        is_saving_due = self._clock.monotonic() >= self.member.saving.due_s
        if self._is_due or is_saving_due or self.is_held_back:
            return None
        batch = self._take_nowait()
        if batch is not None:
            self.ledger.give(batch.segment, batch.next, batch.start)
        return batch

    def _check_no_open_block(self) -> None:
        if self._events or self._no_value is not None:
            raise InvalidRequest(
                "a batch was requested while the events of a block are being iterated",
                remedy="use either events or batches of one reader",
            )

    def _asked(self) -> None:
        """Mark the given events as processed, unless acknowledgements are explicit."""
        self._settle()
        self._in_hand = None
        self._settle()
        self.ledger.asked()
        self._complete()
        self._release()

    async def _take(self) -> EventBatch | None:
        """The next block of the source; the lease is valid when it is returned."""
        while True:
            await self._do_what_is_due()
            if self._is_lease_valid():
                if (batch := self._take_nowait()) is not None:
                    return batch
                if not self.ledger.holdings and self.member.state.is_complete:
                    return None
            await self._wait()

    def _take_nowait(self) -> EventBatch | None:
        """The next block that was read ahead; performs the ends of segments before it."""
        while (item := self._source.next_nowait()) is not None:
            match item:
                case EventBatch():
                    self._source.consumed(item)
                    self.ledger.opened(item.segment, item.start, len(item), item.next)
                    return item
                case SegmentEnd():
                    self._ended(item)
                case SegmentFailed():
                    raise self._failed(item)
        return None

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is handed out, because the lease has run out."""
        return self._clock.monotonic() >= self.member.valid_until_s

    def _is_lease_valid(self) -> bool:
        """Whether events may be handed out; logs each change once."""
        is_held_back = self.is_held_back
        if is_held_back != self._is_held_back:
            self._is_held_back = is_held_back
            if is_held_back:
                _log.warning(
                    "a reader pauses, because the group's log did not confirm its lease",
                    reader=self.member.reader_id,
                    lease_ms=self.member.state.config.lease_ms,
                )
            else:
                _log.info("a reader continues", reader=self.member.reader_id)
        return not is_held_back

    async def _wait(self) -> None:
        self._news.clear()
        if not self._is_due:
            await self._news.wait()

    async def _do_what_is_due(self) -> None:
        """Raise a failure; reach the checkpoint that waits for this reader."""
        failure = self.member.failure or self._failure
        if failure is not None:
            raise failure.copy()
        due = self._due
        if due is not None:
            if due.kind != "silent" and self._on_checkpoint is not None:
                await self._on_checkpoint(due.name)
            self.member.reach(due, self.all_saved())
            self._reached_number, self._due = due.number, None
            self._may_release = True
            self.member.share()
            self._may_release = False
        self._is_due = self.member.failure is not None

    def _ended(self, end: SegmentEnd) -> None:
        self.ledger.holdings[end.segment].successors = tuple(
            GroupSuccessor(each.name, each.segment_id, each.key_start, each.key_end)
            for each in end.successors
        )
        self._complete()

    def _failed(self, failed: SegmentFailed) -> AnabranchError:
        """The error to raise. A truncation is raised once, and reading continues after it. If a
        segment has no event at the group's position, this is raised once, and the segment stays
        unread. All other errors are final.
        """
        if failed.next is not None:
            self.ledger.skipped(failed.segment, failed.next)
        elif not isinstance(failed.error, InvalidPosition):
            self._failure = failed.error
        return failed.error.copy()

    # --- progress ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Note the open block's progress in the ledger."""
        if self._batch is None or self._batch.segment not in self.ledger.holdings:
            return
        in_hand = None if self._in_hand is None else self._in_hand.position
        behind = self._batch.next
        if self._events:
            behind = self._events[0].position
        elif self._no_value is not None:
            behind = self._place_of(self._no_value[0])
        self.ledger.give(self._batch.segment, behind, in_hand)
        if behind == self._batch.next and in_hand is None:
            self._batch = None

    def _complete(self) -> None:
        """Complete the finished segments."""
        for segment in self.ledger.finished():
            at = self.ledger.saved(segment)
            successors = self.ledger.gone(segment).successors or ()
            self._to_give_up.discard(segment)
            self.member.complete(at, successors)

    def _release(self) -> None:
        """Release the segments that are to be given up and whose given events are all processed."""
        self._to_give_up &= self.ledger.holdings.keys()
        released = [name for name in self._to_give_up if self.ledger.is_processed(name)]
        for name in self._to_give_up:
            self._stop_giving(name)
        if not released:
            return
        self.member.release([self.ledger.saved(name) for name in released])
        for name in released:
            self._to_give_up.discard(name)
            self.ledger.gone(name)

    def _stop_giving(self, segment: str) -> None:
        """Drop the blocks read ahead of the segment; the ledger knows the events still in hand."""
        self._source.drop(segment)
        if self._batch is not None and self._batch.segment == segment:
            self._events.clear()
            self._batch = self._no_value = None

    def all_saved(self) -> tuple[Saved, ...]:
        """The progress of all segments of this reader."""
        self._settle()
        return self.ledger.all_saved()

    def acknowledge(self, up_to: Mapping[str, Position] | None = None) -> None:
        """Mark every given event as processed, or only those before these positions."""
        self._settle()
        if up_to is None:
            self._in_hand = None
            self.ledger.acknowledge()
        else:
            self.ledger.acknowledge_up_to(up_to)
        self._complete()
        self._release()
