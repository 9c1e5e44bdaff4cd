"""One reader of a group on a desk: its reading and its membership, on a log and blocks in memory.

The log is folded at once; others' entries are put there by the test. Time is virtual.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anabranch.client.groups import updates as u
from anabranch.client.groups.apply import apply
from anabranch.client.groups.member import GroupMember
from anabranch.client.groups.ports import Surroundings
from anabranch.client.groups.reading import GroupReading, OnCheckpoint
from anabranch.client.groups.state import Checkpoint, GroupSegment, ReaderGroupState
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import IntakeItem
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.serializers import Serializer
from anabranch.common.errors import Unavailable
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from kit.virtual_time import VirtualClock

LEASE_S = 8.0
SAVE_S = 1.0
A, B = "s/x/0.#epoch.0", "s/x/1.#epoch.0"


def two_segments(*, release_after_checkpoint: bool = False) -> ReaderGroupState:
    """A group that reads A and B from their starts."""
    config = ReaderGroupConfig(
        (GroupStream("s/x"),),
        lease_ms=int(LEASE_S * 1000),
        release_after_checkpoint=release_after_checkpoint,
    )
    segments = {
        A: GroupSegment(A, 0, 0.0, 0.5, Position(0)),
        B: GroupSegment(B, 1, 0.5, 1.0, Position(0)),
    }
    return ReaderGroupState(1, 0, config, segments)


class DeskLog:
    """A `GroupLog` whose entries are folded as they come. `is_away`: nothing can be appended;
    `fetch_s`: so long every fetch takes, beside its wait."""

    def __init__(self, state: ReaderGroupState) -> None:
        self.state = state
        self.entries: list[u.AnyUpdate] = []
        self.is_away = False
        self.fetch_s = 0.0
        self._known = 0
        self._news = asyncio.Event()

    @property
    def revision(self) -> int:
        return len(self.entries)

    @property
    def bytes_since_init(self) -> int:
        return 0

    async def compact(self) -> bool:
        return False

    def put(self, *updates: u.AnyUpdate) -> None:
        """Others write these."""
        for update in updates:
            self.entries.append(update)
            self.state = apply(self.state, update)
        self._news.set()

    def said(self, kind: type[u.AnyUpdate]) -> list[u.AnyUpdate]:
        return [each for each in self.entries if isinstance(each, kind)]

    async def fetch(self, *, wait_s: float = 0.0) -> int:
        if self.fetch_s:
            await asyncio.sleep(self.fetch_s)
        if self._known == len(self.entries) and wait_s:
            self._news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        count, self._known = len(self.entries) - self._known, len(self.entries)
        return count

    async def append(self, updates: Sequence[u.AnyUpdate]) -> int:
        if self.is_away:
            raise Unavailable("the log is away")
        self.put(*updates)
        return len(self.entries)

    async def update(
        self, decide: Callable[[ReaderGroupState], Sequence[u.AnyUpdate]]
    ) -> Sequence[u.AnyUpdate]:
        updates = decide(self.state)
        self.put(*updates)
        return updates


class DeskSource:
    """A `SegmentSource` whose items the test puts there."""

    def __init__(self, news: asyncio.Event) -> None:
        self.open_at: dict[str, tuple[Position, int | None]] = {}
        self._items: deque[IntakeItem] = deque()
        self._news = news

    def open(self, segment: str, position: Position, end_offset: int | None = None) -> None:
        assert segment not in self.open_at, "a segment is opened once at a time"
        self.open_at[segment] = (position, end_offset)

    def drop(self, segment: str) -> None:
        self.open_at.pop(segment, None)
        self._items = deque(each for each in self._items if each.segment != segment)

    def put(self, *items: IntakeItem) -> None:
        self._items.extend(items)
        self._news.set()

    def next_nowait(self) -> IntakeItem | None:
        return self._items.popleft() if self._items else None

    def consumed(self, batch: EventBatch) -> None:
        assert batch.segment in self.open_at

    async def close(self) -> None:
        self._items.clear()


class Desk:
    """A reader that has joined, as its application sees it."""

    def __init__(
        self,
        state: ReaderGroupState | None = None,
        *,
        explicit: bool = False,
        on_checkpoint: OnCheckpoint | None = None,
        serializer: Serializer[Any] | None = None,
    ) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.log = DeskLog(state or two_segments())
        news = asyncio.Event()
        self.source = DeskSource(news)
        self.reading = GroupReading(
            self.source, news, self.clock, explicit=explicit, on_checkpoint=on_checkpoint,
            serializer=serializer,
        )  # fmt: skip
        self.member = GroupMember(
            "me", 7, log=self.log, clock=self.clock, holder=self.reading,
            surroundings=Surroundings(_nothing_unread, _not_told), save_interval_s=SAVE_S,
        )  # fmt: skip
        self.reading.belongs_to(self.member)

    async def settle(self, seconds: float = 0.1) -> None:
        """Let what was said be written, folded and concluded."""
        await self.clock.sleep(seconds)

    async def next(self) -> bytes:
        payload: bytes = (await self.next_event()).payload
        return payload

    async def next_event(self) -> Event[Any]:
        event = await self.reading.next_event()
        assert event is not None
        return event

    def position(self, segment: str) -> Position:
        """Where the group has it."""
        return self.log.state.segments[segment].position

    def owner(self, segment: str) -> str:
        return self.log.state.segments[segment].owner


async def _nothing_unread(_segment: str, _offset: int) -> int:
    return 0


async def _not_told(_checkpoint: Checkpoint) -> None:
    return None


@asynccontextmanager
async def at_desk(
    state: ReaderGroupState | None = None,
    *,
    explicit: bool = False,
    on_checkpoint: OnCheckpoint | None = None,
    serializer: Serializer[Any] | None = None,
) -> AsyncIterator[Desk]:
    """A reader `me` that has joined, and has got what nobody had."""
    desk = Desk(state, explicit=explicit, on_checkpoint=on_checkpoint, serializer=serializer)
    await desk.member.join()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(desk.member.speak()), tasks.create_task(desk.member.listen())
        ]  # fmt: skip
        await desk.settle()
        try:
            yield desk
        finally:
            for task in running:
                task.cancel()


def block(segment: str, offset: int, *payloads: str) -> EventBatch:
    """A block of events at the offset."""
    data = encode_block(
        [each.encode() for each in payloads],
        writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0,
    )  # fmt: skip
    return EventBatch(FetchedBlock(segment, offset, Block(data)))
