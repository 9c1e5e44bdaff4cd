"""Segment stores in memory: the `SegmentStores` port, and the same answering on NATS.

They keep the rules that a container keeps for control requests: the highest stamp per segment,
tombstones, and refusal of older requests. A merge seals the segments of transactions by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    NotAtBoundary,
    OffsetMismatch,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTruncated,
    StaleRequest,
    Unavailable,
)
from anabranch.common.model.names import transaction_segment
from anabranch.common.wire.messages import (
    Appended,
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    DeleteSegment,
    Done,
    GetSegmentInfo,
    LocateOffset,
    MergedSegment,
    MergeSegments,
    Message,
    OffsetLocated,
    ReadSegment,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    Stamp,
    Truncated,
    TruncateSegment,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.controller.ports import SegmentBounds


@dataclass
class FakeSegment:
    """A segment as a container would have it. `merged`: what was merged into it, in that order,
    each with its length; `merged_at`: where it begins in what it was merged into."""

    stamp: Stamp
    sealed: bool = False
    start: int = 0
    length: int = 100
    deleted: bool = False
    merged: list[tuple[str, int]] = field(default_factory=list)
    merged_at: tuple[str, int] | None = None
    blocks: dict[int, bytes] = field(default_factory=dict)
    """Of watermarks alone: where they begin."""
    taken_ms: dict[int, int] = field(default_factory=dict)
    """Appends by where they begin: when they were taken; Unix ms."""


@dataclass
class FakeSegmentStores:
    """`SegmentStores` in memory. `down` makes every request fail as if nobody served.

    `requests` lists everything asked; `fail_after` requests the store goes down. Appends have
    `append_size` bytes each.
    """

    segments: dict[str, FakeSegment] = field(default_factory=dict)
    requests: list[tuple[str, str, Stamp]] = field(default_factory=list)
    down: bool = False
    fail_after: int | None = None
    append_size: int = 1

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        self._enter("create", segment, stamp)
        found = self.segments.get(segment)
        if found is None:
            length = 0 if is_watermarks(segment) else 100
            self.segments[segment] = FakeSegment(stamp, length=length)
            return
        self._refuse_older(found, segment, stamp)
        if found.deleted and is_watermarks(segment) and stamp > found.stamp:
            self.segments[segment] = FakeSegment(stamp, length=0)
            return
        if found.deleted or stamp != found.stamp:
            raise SegmentExists("the segment exists or existed", segment=segment)

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        self._enter("seal", segment, stamp)
        found = self._found(segment)
        self._refuse_older(found, segment, stamp)
        found.sealed = True
        found.stamp = stamp
        return found.length

    async def check_truncation(self, segment: str, offset: int, stamp: Stamp) -> None:
        self._enter("check", segment, stamp)
        self._truncatable(segment, offset, stamp)

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        self._enter("truncate", segment, stamp)
        found = self._truncatable(segment, offset, stamp)
        found.start = max(found.start, offset)
        found.stamp = stamp

    def _truncatable(self, segment: str, offset: int, stamp: Stamp) -> FakeSegment:
        found = self._found(segment)
        self._refuse_older(found, segment, stamp)
        if offset > found.length:
            raise InvalidRequest("the offset is beyond the segment's end", segment=segment)
        past = offset % self.append_size
        if is_watermarks(segment):
            past = offset not in (*found.blocks, found.length)
        if past and found.start < offset < found.length:
            raise NotAtBoundary(
                "the offset is within an append", segment=segment, lower=offset - past
            )
        return found

    async def segment_lengths(self, segments: Sequence[str]) -> Sequence[int]:
        return [self._found(segment).length for segment in segments]

    async def segment_bounds(self, segment: str) -> SegmentBounds:
        self._reach(segment)
        found = self._found(segment)
        return SegmentBounds(found.start, found.length)

    async def boundary_at(self, segment: str, offset: int) -> int:
        self._reach(segment)
        found = self._found(segment)
        if offset < found.start:
            raise SegmentTruncated("before the start", segment=segment, start=found.start)
        return min((at for at in found.blocks if at >= offset), default=found.length)

    async def boundary_at_time(self, segment: str, time_ms: int) -> int:
        self._reach(segment)
        found = self._found(segment)
        late = (at for at, taken_ms in found.taken_ms.items() if taken_ms >= time_ms)
        return max(found.start, min(late, default=found.length))

    async def read_appends(self, segment: str, offset: int, size_max: int) -> bytes:
        self._reach(segment)
        found, data = self._found(segment), b""
        if offset < found.start:
            raise SegmentTruncated("before the start", segment=segment, start=found.start)
        while offset < found.length and (not data or len(data) < size_max):
            block = found.blocks[offset]
            data, offset = data + block, offset + len(block)
        return data

    async def append_if(self, segment: str, block: bytes, expected_length: int) -> None:
        self._reach(segment)
        found = self._found(segment)
        if block in found.blocks.values():
            return
        if found.length != expected_length:
            raise OffsetMismatch("another length", segment=segment, length=found.length)
        self.append_now(segment, block)

    def append_now(self, segment: str, block: bytes) -> None:
        """As anybody may."""
        found = self._found(segment)
        found.blocks[found.length] = block
        found.length += len(block)

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        return max(place.offset + place.length for place in self.merge_now(segment, sources, stamp))

    def merge_now(
        self, segment: str, sources: Sequence[str], stamp: Stamp
    ) -> Sequence[MergedSegment]:
        """All or none → where each of them is."""
        self._enter("merge", segment, stamp)
        target = self._found(segment)
        self._refuse_older(target, segment, stamp)
        fresh = [name for name in sources if self._is_to_merge(name, segment, stamp)]
        if fresh and target.sealed:
            raise SegmentSealed("the target is sealed", segment=segment)
        for name in fresh:
            source = self.segments[name]
            source.merged_at, source.deleted, source.stamp = (segment, target.length), True, stamp
            target.merged.append((name, source.length))
            target.length += source.length
        target.stamp = stamp
        places = [(name, self.segments[name]) for name in sources]
        return [MergedSegment(n, s.merged_at[1], s.length) for n, s in places if s.merged_at]

    async def merge_batch(self, segment: str, parts: Sequence[str | bytes], stamp: Stamp) -> int:
        self._enter("merge_batch", segment, stamp)
        target = self._found(segment)
        self._refuse_older(target, segment, stamp)
        if target.stamp == stamp:
            return target.length
        if target.sealed:
            raise SegmentSealed("the target is sealed", segment=segment)
        for part in parts:
            if isinstance(part, str):
                self.merge_now(segment, [part], stamp)
            else:
                self.append_now(segment, part)
        target.stamp = stamp
        return target.length

    def _is_to_merge(self, source: str, target: str, stamp: Stamp) -> bool:
        """False: it is merged there already."""
        known = self.segments.get(source)
        if known is not None and known.merged_at is not None:
            assert known.merged_at[0] == target, "a segment is merged once"
            return False
        found = self._found(source)
        self._refuse_older(found, source, stamp)
        if not found.sealed and transaction_segment(source) is None:
            raise SegmentNotSealed("only what is sealed is merged", segment=source)
        return True

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        self._enter("delete", segment, stamp)
        found = self.segments.setdefault(segment, FakeSegment(stamp))
        self._refuse_older(found, segment, stamp)
        found.deleted = True
        found.stamp = stamp

    def live(self) -> list[str]:
        """Names of the segments that exist, sorted."""
        return sorted(name for name, found in self.segments.items() if not found.deleted)

    def _found(self, segment: str) -> FakeSegment:
        found = self.segments.get(segment)
        if found is None or found.deleted:
            raise SegmentNotFound("no such segment", segment=segment)
        return found

    def _enter(self, verb: str, segment: str, stamp: Stamp) -> None:
        if self.fail_after is not None and len(self.requests) >= self.fail_after:
            self.down = True
        if self.down:
            raise Unavailable("no segment store serves the container", segment=segment)
        self.requests.append((verb, segment, stamp))

    def _reach(self, segment: str) -> None:
        if self.down:
            raise Unavailable("no segment store serves the container", segment=segment)

    def _refuse_older(self, found: FakeSegment, segment: str, stamp: Stamp) -> None:
        if stamp < found.stamp:
            raise StaleRequest("the segment has seen a later request", segment=segment)


def is_watermarks(segment: str) -> bool:
    """Whether it holds watermarks, which begin at 0 and are known byte by byte."""
    return "/_MARK" in segment


class FakeStoreOnNats:
    """Answers control packets on the containers' subjects."""

    def __init__(self, client: Client, stores: FakeSegmentStores) -> None:
        self._client = client
        self.stores = stores

    async def start(self) -> None:
        await self._client.subscribe("ana.seg.*.*", cb=self._answer)
        await self._client.flush()

    async def _answer(self, message: Msg) -> None:
        (packet,) = PacketParser().feed(message.data)
        try:
            reply, data = await self._exchange(decode_message(packet), packet.payload)
        except AnabranchError as error:
            reply, data = failed(error), b""
        await message.respond(b"".join(encode_message(reply, packet.request_id, data)))

    async def _exchange(self, request: Message, payload: bytes) -> tuple[Message, bytes]:
        match request:
            case ReadSegment(segment=segment, offset=offset, size_max=size_max):
                data = await self.stores.read_appends(segment, offset, size_max)
                return SegmentRead(offset=offset), data
            case ConditionalAppend(segment=segment, expected_length=int(expected)):
                await self.stores.append_if(segment, payload, expected)
                length = expected + len(payload)
                return Appended(session=0, last_event_number=1, length=length), b""
            case LocateOffset(segment=segment, offset=offset):
                return OffsetLocated(offset=await self.stores.boundary_at(segment, offset)), b""
            case _:
                return await self._perform(request), b""

    async def _perform(self, request: Message) -> Message:
        match request:
            case CreateSegment():
                await self.stores.create_segment(request.segment, request.stamp)
                return Done()
            case SealSegment():
                return Sealed(length=await self.stores.seal_segment(request.segment, request.stamp))
            case CheckTruncation():
                await self.stores.check_truncation(request.segment, request.offset, request.stamp)
                return Truncated(start=request.offset)
            case TruncateSegment():
                await self.stores.truncate_segment(request.segment, request.offset, request.stamp)
                return Truncated(start=request.offset)
            case GetSegmentInfo():
                (length,) = await self.stores.segment_lengths([request.segment])
                return SegmentInfo(
                    segment=request.segment,
                    start=self.stores.segments[request.segment].start,
                    length=length,
                    tiered_length=0,
                    sealed=self.stores.segments[request.segment].sealed,
                    event_count=0,
                    container=0,
                    container_epoch=1,
                )
            case DeleteSegment():
                await self.stores.delete_segment(request.segment, request.stamp)
                return Done()
            case MergeSegments():
                merged = self.stores.merge_now(request.segment, request.sources, request.stamp)
                return SegmentsMerged(merged=tuple(merged))
            case _:
                raise AssertionError(f"unexpected request {request}")
