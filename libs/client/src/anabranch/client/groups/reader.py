"""A reader of a group, as applications use it: it joins, yields events and leaves.

::

    async with group.reader("worker-1") as reader:
        async for event in reader:
            await process(event)       # asking for the next event marks this one as processed

Events of one key are processed in write order, whichever readers process them. A reader that
reaches the end of its block has processed all events that it received; one that leaves by an
exception has not processed the current event. If a reader dies, other readers process its unsaved
events again: at most those of the last `save_interval_s` and since it last asked for more. Asking
saves progress that is due, so this also holds for an application that never yields to the event
loop. If the group's log does not answer, the reader saves nothing, and hands out nothing after ⅞ of
the lease.
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
from anabranch.client.reading.times.follower import WatermarkFollower
from anabranch.client.reading.times.window import Place, TimeWindow
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import ReaderSettings
from anabranch.common.errors import Closed, InvalidRequest, InvalidSetting, Remedy
from anabranch.common.model.names import StreamRef
from anabranch.common.model.topics import readable_stream

T = TypeVar("T", default=bytes)


@dataclass(frozen=True, slots=True)
class GroupReaderSettings:
    """The settings of a group's reader.

    The reader saves its progress every `save_interval_s` seconds, in the background and when the
    application asks for more. `acks` "asking": asking for more marks the earlier events as
    processed; "explicit": only `ack` does. `reading` configures the reads.

    ::

        settings = GroupReaderSettings(acks="explicit")
        async with group.reader("worker-1", settings) as reader:
            batch = await reader.next_batch()
            reader.ack()
    """

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
    """The parts of an open reader.

    `watch` follows resets of the group until it is deleted. `follower` follows the watermarks of a
    stream's present life.
    """

    log: GroupSynchronizer
    source: SegmentSource
    news: asyncio.Event
    surroundings: Surroundings
    watch: Callable[[], Awaitable[None]]
    follower: Callable[[StreamRef], Awaitable[WatermarkFollower]]


class GroupReader(Generic[T]):
    """Reads a share of the group's segments: an async context manager, made by
    `ReaderGroup.reader`. One consumer at a time. See the module.

    ::

        async with client.reader_group("plant/readers").reader() as reader:
            async for event in reader:
                print(event.key, event.payload)
    """

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
        self._followers: dict[tuple[str, int, int], WatermarkFollower] = {}
        """Of streams whose windows were asked for, for one generation of the group."""
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
        """Leave the group: its other readers continue at once after the last processed event.

        The current event counts as not processed. Repeatable, also after it was cancelled.
        """
        self._closed = True
        if self._ended or self._parts is None:
            return
        assert self._member is not None
        assert self._reading is not None
        try:
            # First end the tasks that follow the log: newly assigned segments cannot be opened.
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
        """The next event. Ends when everything that the group reads is processed, for ever.

        Raises EventsTruncated once for truncated events, and SerializationFailed once for an event
        that cannot be deserialized, and continues after them. If a segment has no event at the
        group's position, it raises InvalidPosition once: other segments continue, and a reset of
        the group repairs it. ReaderRemoved, ReaderGroupReset, ReaderGroupNotFound, Closed, and the
        errors of an unreadable segment are final.
        """
        reading = self._reading
        if reading is None or self._closed:
            reading = self._opened()
        event = reading.next_event_nowait()
        if event is None and (event := await reading.next_event()) is None:
            raise StopAsyncIteration
        return event

    async def next_batch(self) -> EventBatch | None:
        """The next block's events; asking marks the earlier ones as processed. None at the end.

        Raises as iterating does.

        ::

            batch = await reader.next_batch()
        """
        return await self._opened().next_batch()

    def next_batch_nowait(self) -> EventBatch | None:
        """The next block if it was read ahead; None: await `next_batch`. Raises as iterating does.

        ::

            batch = reader.next_batch_nowait()
        """
        return self._opened().next_batch_nowait()

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end, see `next_batch`.

        ::

            async for batch in reader.batches():
                print(len(batch), batch.segment)
        """
        while (batch := await self.next_batch()) is not None:
            yield batch

    def ack(self, up_to: Mapping[str, Position] | None = None) -> None:
        """Mark every received event as processed; the reader saves this within `save_interval_s`.

        `up_to` marks only the events before these positions, segment → the position after the last
        processed event: the `next` of a batch, or ``Position(offset, index + 1)`` of an event
        within it. Positions beyond the received events, or before processed ones, change nothing.
        Raises InvalidPosition for a position among the received events at which no block begins.

        ::

            async for batch in reader.batches():
                reader.ack({batch.segment: batch.next})
        """
        self._opened().acknowledge(up_to)

    def ownership(self, segment: str) -> int:
        """The number of the segment's assignment to this reader; 0 if the reader does not have it.

        It grows with every assignment of the group. A sink that stores the highest number per
        segment can therefore refuse writes of a reader that was declared dead.

        ::

            fence = reader.ownership(event.segment)
        """
        holding = self._opened().ledger.holdings.get(segment)
        return 0 if holding is None else holding.ownership

    def positions(self) -> dict[str, Position]:
        """Segment → the place of the next event to process, for this reader's present segments.

        ::

            positions = reader.positions()
        """
        return {at.segment: at.position for at in self._opened().all_saved()}

    async def time_window(self, stream: str) -> TimeWindow:
        """The bounds of event time at the position of the whole group in a stream, by the stream's
        watermarks.

        The position is the one that all members have saved, as far as this reader knows: every
        event before it is processed. The lower bound is therefore never beyond an event that some
        member has not processed yet, also if the member fails. It follows the processing by up to
        `save_interval_s` of the slowest member and a quarter of the lease, and it never falls
        before the group is reset. The upper bound belongs to the same position; events that are
        not saved yet may be later. If the watermarks cannot be read at the moment, the bounds are
        those of the known ones. Raises InvalidRequest for a stream that the group does not read,
        StreamNotFound, CorruptBlock if the stored watermarks are damaged, and the final errors of
        reading.

        ::

            window = await reader.time_window("plant/sensors")
            print(window.lower_ms, window.upper_ms)
        """
        self._opened()
        while True:
            generation, places = self._places(stream)
            follower = await self._follower(stream, generation)
            await follower.catch_up(places)
            present, places = self._places(stream)
            if present == generation:  # else the group was reset, perhaps to an earlier place
                return follower.window(places)

    async def _follower(self, stream: str, generation: tuple[int, int]) -> WatermarkFollower:
        assert self._parts is not None
        key = (stream, *generation)
        if key not in self._followers:
            made = await self._parts.follower(readable_stream(stream))
            self._followers.setdefault(key, made)
        return self._followers[key]

    def _places(self, stream: str) -> tuple[tuple[int, int], list[Place]]:
        """The group's generation, and its saved position in the stream."""
        assert self._member is not None
        if self._member.failure is not None:
            raise self._member.failure.copy()
        state = self._member.state
        places = state.places(stream)
        if not places:
            raise InvalidRequest(
                "the reader group does not read this stream", stream=stream, reader=self.reader_id
            )
        return (state.incarnation, state.generation), places

    @property
    def is_held_back(self) -> bool:
        """Whether the reader hands out nothing because the group's log did not confirm its lease in
        time: the log does not answer, or the application blocked the event loop."""
        return self._opened().is_held_back

    def _opened(self) -> GroupReading[T]:
        if self._reading is None or self._closed:
            raise Closed(
                "the reader is not open",
                remedy=Remedy(api="use it as `async with group.reader(...)`"),
                reader=self.reader_id,
            )
        return self._reading


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
