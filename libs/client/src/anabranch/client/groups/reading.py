"""What a reader of a group hands out, and what it tells the group of it: all but the network.

    asks ──► what was given is processed ──► released, completed, checkpoint reached
      ▲                                              │
      └── next event, if the lease runs ◄── segments that this reader has

Asking for more says that all before is processed, unless acknowledgements are explicit. Nothing is
handed out when the lease has run out, or before a checkpoint that is due is reached; what was read
ahead of a segment that goes to another reader is dropped. A failure is raised by every later call,
unless it is told once (`_failed`).
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
"""Called with a checkpoint's name when everything before it is processed, and nothing behind. The
group's own checkpoints are named ``automatic-<number>``."""


class SegmentSource(Protocol):
    """Where blocks come from: an `Intake`."""

    def open(self, segment: str, position: Position, end_offset: int | None = None) -> None: ...

    def drop(self, segment: str) -> None: ...

    def next_nowait(self) -> IntakeItem | None: ...

    def consumed(self, batch: EventBatch) -> None: ...

    async def close(self) -> None: ...


class _Refused(NamedTuple):
    """In the place of an event that is no value."""

    position: Position


class GroupReading(Generic[T]):
    """The part of a reader that knows no network: who has what, what is given, what is told.

    `news` is set by the source and by the membership whenever there may be something to do.
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
        """The row of the open block behind `_events`, which the serializer refuses, and why."""
        self._in_hand: Event[T] | _Refused | None = None
        self._is_due = False
        """Something is to be done before the next event is handed out."""
        self._is_held_back = False
        """The lease had run out when the application asked last."""
        self._free_until_s = -inf
        """Until then the lease runs and no save is due: not later than either says."""

    def belongs_to(self, member: GroupMember) -> None:
        """Whom this reader speaks through."""
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
        """See `Holder`. What is being given up stays so, whatever the plan is by then."""
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
        """The next event of the open block, if nothing else is to be done first."""
        if self._events and not self._is_due and self._clock.monotonic() < self._free_until_s:
            self._in_hand = event = self._events.popleft()
            return event
        return None

    async def next_event(self) -> Event[T] | None:
        """The next event; None at the end of all that the group reads."""
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
        """Let the open block's events from `row` on come next, up to one that is no value."""
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
        """It is in hand as an event would be: asking for more passes over it."""
        self._in_hand = _Refused(self._place_of(row))
        self._open_rows(row + 1)
        return error

    def _place_of(self, row: int) -> Position:
        assert self._batch is not None
        offset, first = self._batch.start
        return Position(offset, first + row)

    async def next_batch(self) -> EventBatch | None:
        """The next block's events; None at the end. Raises InvalidRequest within an open block."""
        if self._events or self._no_value is not None:
            raise InvalidRequest(
                "a batch was requested while the events of a block are being iterated",
                remedy="use either events or batches of one reader",
            )
        self._asked()
        await self.member.saving.wait()
        batch = await self._take()
        if batch is not None:
            self.ledger.give(batch.segment, batch.next, batch.start)
        return batch

    def _asked(self) -> None:
        """The application has processed what it was given, unless it says so explicitly."""
        self._settle()
        self._in_hand = None
        self._settle()
        self.ledger.asked()
        self._complete()
        self._release()

    async def _take(self) -> EventBatch | None:
        """The next block of the source; a valid lease when it is returned."""
        while True:
            await self._do_what_is_due()
            if self._is_lease_valid():
                item = self._source.next_nowait()
                match item:
                    case EventBatch():
                        self._source.consumed(item)
                        self.ledger.opened(item.segment, item.start, len(item), item.next)
                        return item
                    case SegmentEnd():
                        self._ended(item)
                        continue
                    case SegmentFailed():
                        raise self._failed(item)
                if not self.ledger.holdings and self.member.state.is_complete:
                    return None
            await self._wait()

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is handed out, because the lease has run out."""
        return self._clock.monotonic() >= self.member.valid_until_s

    def _is_lease_valid(self) -> bool:
        """Whether something may be handed out; a change is logged once."""
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
        """Raise the failure; reach the checkpoint that the group waits for."""
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
        """Truncation is told once, and reading goes on by itself. A segment that has no event where
        the group has it is told once, and stays unread; all else is final."""
        if failed.next is not None:
            self.ledger.skipped(failed.segment, failed.next)
        elif not isinstance(failed.error, InvalidPosition):
            self._failure = failed.error
        return failed.error.copy()

    # --- what is told ---------------------------------------------------------------------

    def _settle(self) -> None:
        """Make the ledger say where the open block stands."""
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
        """Segments of which everything is processed are told to be finished."""
        for segment in self.ledger.finished():
            at = self.ledger.saved(segment)
            successors = self.ledger.gone(segment).successors or ()
            self._to_give_up.discard(segment)
            self.member.complete(at, successors)

    def _release(self) -> None:
        """What is to be given up, and processed as far as it was given, is released."""
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
        """What was read ahead of it is dropped; the ledger knows what is still in hand."""
        self._source.drop(segment)
        if self._batch is not None and self._batch.segment == segment:
            self._events.clear()
            self._batch = self._no_value = None

    def all_saved(self) -> tuple[Saved, ...]:
        """Where everything stands that this reader has."""
        self._settle()
        return self.ledger.all_saved()

    def acknowledge(self, up_to: Mapping[str, Position] | None = None) -> None:
        """All that was given is processed, or of each segment named what lies before there."""
        self._settle()
        if up_to is None:
            self._in_hand = None
            self.ledger.acknowledge()
        else:
            self.ledger.acknowledge_up_to(up_to)
        self._complete()
        self._release()
