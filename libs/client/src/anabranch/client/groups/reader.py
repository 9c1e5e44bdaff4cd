"""A reader of a group, as applications use it: joins, yields events, leaves.

::

    async with group.reader("worker-1") as reader:
        async for event in reader:
            await process(event)       # asking for the next event says that this one is processed

Events of one key are processed in the order of their writing, by whichever readers. A reader that
leaves by the end of its block has processed all that it was given; one that leaves by an exception,
not what it had in hand. What a reader that dies has processed and not saved is processed again by
others: at most what it did in the last `save_interval_s` and since it last asked for more. Asking
saves what is due, so this holds also for an application that keeps the event loop to itself. If the
group's log does not answer, nothing is saved, and nothing is handed out after ⅞ of the lease.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Literal, Self

from typing_extensions import TypeVar

from anabranch.client.groups.access import GroupSynchronizer
from anabranch.client.groups.member import GroupMember
from anabranch.client.groups.ports import Surroundings
from anabranch.client.groups.reading import GroupReading, OnCheckpoint, SegmentSource
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import ReaderSettings
from anabranch.common.errors import Closed, InvalidSetting

T = TypeVar("T", default=bytes)


@dataclass(frozen=True, slots=True)
class GroupReaderSettings:
    """`save_interval_s`: what is processed is saved that often, in the background and when the
    application asks for more. `acks`: whether asking for more
    says that what came before is processed, or only `ack` does."""

    reading: ReaderSettings = field(default_factory=ReaderSettings)
    save_interval_s: float = 1.0
    acks: Literal["asking", "explicit"] = "asking"

    def __post_init__(self) -> None:
        if self.save_interval_s <= 0:
            raise InvalidSetting("a reader's save interval must be positive")
        if self.acks not in ("asking", "explicit"):
            raise InvalidSetting("acknowledge must be by asking or explicit", acks=self.acks)


@dataclass(frozen=True, slots=True)
class GroupReaderParts:
    """What a reader is made of, once it is opened. `watch` ends when the group has a newer
    generation, which it has seen to be in the log, or is gone."""

    log: GroupSynchronizer
    source: SegmentSource
    news: asyncio.Event
    surroundings: Surroundings
    watch: Callable[[], Awaitable[None]]


class GroupReader(Generic[T]):
    """See the module. An async context manager; one consumer at a time."""

    def __init__(
        self,
        reader_id: str,
        *,
        open_parts: Callable[[], Awaitable[GroupReaderParts]],
        runtime: Runtime,
        settings: GroupReaderSettings,
        on_checkpoint: OnCheckpoint | None = None,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self.reader_id = reader_id
        self._open_parts = open_parts
        self._runtime = runtime
        self._settings = settings
        self._on_checkpoint = on_checkpoint
        self._serializer = serializer
        self._parts: GroupReaderParts | None = None
        self._reading: GroupReading[T] | None = None
        self._member: GroupMember | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._ended = False

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Join the group. Raises ReaderGroupNotFound, ReaderInUse, TooManyReaders, ReaderRemoved,
        Unavailable."""
        parts = await self._open_parts()
        clock = self._runtime.clock
        reading = GroupReading(
            parts.source, parts.news, clock,
            explicit=self._settings.acks == "explicit", on_checkpoint=self._on_checkpoint,
            serializer=self._serializer,
        )  # fmt: skip
        member = GroupMember(
            self.reader_id,
            int.from_bytes(self._runtime.ids.new_bytes()[:7], "little"),
            log=parts.log,
            clock=clock,
            holder=reading,
            surroundings=parts.surroundings,
            save_interval_s=self._settings.save_interval_s,
        )
        reading.belongs_to(member)
        self._parts, self._reading, self._member = parts, reading, member
        try:
            await member.join()
        except BaseException:
            await self.close()
            raise
        self._runtime.open_parts.add(self)
        self._run(member.speak())
        self._run(member.listen())
        self._run(member.attend(self._held, reading.ledger.measured))
        self._run(_awaited(parts.watch))
        return self

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = self._runtime.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _held(self) -> Iterator[tuple[str, int]]:
        assert self._reading is not None
        for segment, holding in self._reading.ledger.holdings.items():
            yield segment, holding.given.offset

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._reading is not None and self._settings.acks == "asking":
            self._reading.acknowledge()
        await self.close()

    async def close(self) -> None:
        """Leave the group: its other readers go on at once where this one has processed to.

        What is in hand counts as not processed. Repeatable, also after it was cancelled.
        """
        self._closed = True
        if self._ended or self._parts is None:
            return
        assert self._member is not None
        assert self._reading is not None
        try:
            # Whoever hears the group first: what it is given now cannot be opened any more.
            if tasks := tuple(self._tasks):
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            await self._parts.source.close()
            await self._member.leave(self._reading.all_saved())
            await self._parts.log.close()
            self._ended = True
            self._runtime.open_parts.discard(self)
        finally:
            self._parts.news.set()

    # --- reading --------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        """The next event. Ends when all that the group reads is processed, for ever.

        Raises EventsTruncated once for events that are gone, SerializationFailed once for an event
        that is no value, and goes on behind them. Raises InvalidPosition once for a segment that
        has no event where the group stands in it: other segments go on, and a reset mends it.
        Raises for good ReaderRemoved, ReaderGroupReset, ReaderGroupNotFound, Closed, and what makes
        a segment unreadable.
        """
        reading = self._reading
        if reading is None or self._closed:
            reading = self._opened()
        event = reading.next_event_nowait()
        if event is None and (event := await reading.next_event()) is None:
            raise StopAsyncIteration
        return event

    async def next_batch(self) -> EventBatch | None:
        """The next block's events; asking says that those before are processed. None at the end.

        Raises as iterating does.
        """
        return await self._opened().next_batch()

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end, see `next_batch`."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    def ack(self, up_to: Mapping[str, Position] | None = None) -> None:
        """Everything given so far is processed; it is saved within `save_interval_s`.

        `up_to`: only what lies before these positions, segment → behind what is processed: the
        `next` of a batch, or ``Position(offset, index + 1)`` of an event within it. What lies
        beyond that is given, or before what is processed already, changes nothing. Raises
        InvalidPosition for a place within what was given where no block begins.
        """
        self._opened().acknowledge(up_to)

    def ownership(self, segment: str) -> int:
        """The number of the segment's assignment to this reader, 0 where it has it no more.

        Grows with every assignment of the group: a sink that keeps the highest it has seen per
        segment can refuse what a reader writes that was taken for dead.
        """
        holding = self._opened().ledger.holdings.get(segment)
        return 0 if holding is None else holding.ownership

    def positions(self) -> dict[str, Position]:
        """Segment → where processing stands, of those that this reader has now."""
        return {at.segment: at.position for at in self._opened().all_saved()}

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is handed out because the group's log did not confirm the lease in time:
        it does not answer, or the application kept the event loop to itself."""
        return self._opened().is_held_back

    def _opened(self) -> GroupReading[T]:
        if self._reading is None or self._closed:
            raise Closed(
                "the reader is not open", remedy="use it as `async with group.reader(…)`",
                reader=self.reader_id,
            )  # fmt: skip
        return self._reading


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
