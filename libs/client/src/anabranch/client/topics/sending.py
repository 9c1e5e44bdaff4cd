"""Single records whose numbers the caller waits for.

    send ─► waits ─┐
    send ─► waits ─┴─ all that wait at once ─► one append ─► the number of its first record

Each partition sends one append at a time, which is performed exactly once (`ExactAppends`); the
records that come meanwhile make the next one. The store says how many records the partition has
after the append. If an append had to be repeated, so that the store cannot say it, or if the store
is of an older release, the records are counted from the last known place up to its end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.client.one_segment.exact_appends import ExactAppends
from anabranch.client.one_segment.segment import OneSegment
from anabranch.client.runtime import Runtime
from anabranch.client.settings import OneSegmentSettings, WriterSettings
from anabranch.client.topics.places import bounds_of
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    OutcomeUnknown,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    StreamNotFound,
    StreamSealed,
    TopicNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.block_encoding import encode_block

_SCAN_SIZE_BYTES = 1024 * 1024
APPEND_RECORDS_MAX = 4096


@dataclass(eq=False, slots=True)
class Sent:
    """A record that waits for its number. `cost`: its share of the producer's buffer."""

    value: bytes
    key: bytes | None
    timestamp_ms: int | None
    cost: int
    numbered: asyncio.Future[int]


class SentRecords:
    """The content of one append. Its block is the same at every attempt, except for the number."""

    def __init__(self, records: Sequence[Sent], zstd_level: int | None) -> None:
        self._records = records
        self._zstd_level = zstd_level
        self._now_ms: int | None = None

    @property
    def count(self) -> int:
        return len(self._records)

    @property
    def is_block(self) -> bool:
        return True

    def encode(self, writer_id: bytes, number: int, now_ms: int) -> bytes:
        """The records as one block; those without a time get that of the first attempt."""
        if self._now_ms is None:
            self._now_ms = now_ms
        stamps = [each.timestamp_ms for each in self._records]
        return encode_block(
            [each.value for each in self._records],
            writer_id=writer_id,
            first_event_number=number,
            base_timestamp_ms=self._now_ms,
            keys=[each.key for each in self._records],
            timestamps_ms=(
                None
                if stamps.count(None) == len(stamps)
                else [self._now_ms if stamp is None else stamp for stamp in stamps]
            ),
            zstd_level=self._zstd_level,
        )


class PartitionSegment(OneSegment):
    """The segment of one partition, which is known already."""

    def __init__(
        self,
        topic: str,
        stream: StreamRef,
        segment: str,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: OneSegmentSettings,
    ) -> None:
        super().__init__(
            stream, control=control, directory=directory, runtime=runtime, settings=settings
        )
        self._topic = topic
        self.name = segment

    async def named(self, error: AnabranchError) -> AnabranchError:
        """The topic's error for a refusal of the segment's store."""
        if isinstance(error, SegmentSealed | SegmentNotFound | StreamSealed | StreamNotFound):
            return TopicNotFound("the topic was deleted during a write", topic=self._topic)
        return error

    async def require_known(self) -> None:
        """Raises TopicNotFound if the controller knows for certain that the topic is gone."""
        try:
            await super().require_known()
        except StreamNotFound as error:
            raise await self.named(error) from error


class PartitionSender:
    """Sends the single records of one partition; `released` receives the cost of each when its fate
    is known."""

    def __init__(
        self, segment: PartitionSegment, settings: WriterSettings, released: Callable[[int], None]
    ) -> None:
        self._segment = segment
        self._settings = settings
        self._released = released
        self._appends = ExactAppends(segment)
        self._waiting: deque[Sent] = deque()
        self._task: asyncio.Task[None] | None = None
        self._place: tuple[int, int] | None = None
        """A byte of the segment, and the number of records before it."""
        self._closed = False

    def add(self, sent: Sent) -> None:
        """Send the record after those that wait."""
        self._waiting.append(sent)
        if self._task is None:
            self._task = self._segment.runtime.start(self._run())

    async def close(self) -> None:
        """Stop: the append under way raises OutcomeUnknown, waiting records Closed. Repeatable."""
        self._closed = True
        await self._appends.close()
        if (task := self._task) is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        taken: list[Sent] = []
        try:
            while self._waiting and not self._closed:
                taken = self._take()
                await self._settle(taken)
                taken = []
        finally:
            self._task = None
            self._tell(taken, OutcomeUnknown("the producer was closed during a send"))
            self._tell(self._waiting, Closed("the producer was closed before the record was sent"))
            self._waiting.clear()

    def _take(self) -> list[Sent]:
        """The records of the next append: about a block, at least one."""
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < APPEND_RECORDS_MAX:
            size += taken[-1].cost
            if size + self._waiting[0].cost > self._settings.block_size_bytes:
                break
            taken.append(self._waiting.popleft())
        return taken

    async def _settle(self, taken: list[Sent]) -> None:
        try:
            first = await self._append(taken)
        except AnabranchError as error:
            self._tell(taken, error)
            return
        for row, sent in enumerate(taken):
            self._released(sent.cost)
            if not sent.numbered.done():
                sent.numbered.set_result(first + row)

    def _tell(self, taken: Sequence[Sent] | deque[Sent], error: AnabranchError) -> None:
        for sent in taken:
            self._released(sent.cost)
            if not sent.numbered.done():
                sent.numbered.set_exception(error.copy())
                sent.numbered.exception()  # a caller may have given up waiting

    async def _append(self, taken: Sequence[Sent]) -> int:
        """The number of the first of these records, once they are durable."""
        if self._place is None:
            info = await self._segment.info()
            self._place = info.length, info.event_count
        content = SentRecords(taken, self._settings.zstd_level)
        end = await self._appends.append(content)
        assert end is not None, "an append without a condition is never refused"
        count = self._appends.event_count
        if count < 0:
            count = await self._counted_up_to(end)
        self._place = end, count
        return count - len(taken)

    async def _counted_up_to(self, end: int) -> int:
        """The number of records before byte `end`, which is the end of an append."""
        assert self._place is not None
        offset, count = self._place
        try:
            while offset < end:
                try:
                    _, data = await self._segment.read(offset, _SCAN_SIZE_BYTES)
                except SegmentTruncated:
                    info = await self._segment.info()
                    offset, count = info.start, bounds_of(info).start
                    if offset <= end:
                        continue
                    raise
                at = 0
                while at < len(data) and offset + at < end:
                    header = parse_header(data, at)
                    at += header.size
                    count += header.event_count
                offset += at
        except (Retry, SegmentTruncated) as error:
            raise OutcomeUnknown(
                "the record is stored, but its number could not be read",
                remedy="do not send it again",
                segment=self._segment.name,
            ) from error
        return count
