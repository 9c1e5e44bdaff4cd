"""Segment stores in memory: the `SegmentStores` port, and the same answering on NATS.

They keep the rules that a container keeps for control requests: the highest stamp per segment,
tombstones, and refusal of older requests.
"""

from dataclasses import dataclass, field

from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    SegmentExists,
    SegmentNotFound,
    StaleRequest,
    Unavailable,
)
from anabranch.common.wire.messages import (
    CreateSegment,
    DeleteSegment,
    Done,
    GetSegmentInfo,
    Message,
    Sealed,
    SealSegment,
    SegmentInfo,
    Stamp,
    Truncated,
    TruncateSegment,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser


@dataclass
class FakeSegment:
    """A segment as a container would have it."""

    stamp: Stamp
    sealed: bool = False
    start: int = 0
    length: int = 100
    deleted: bool = False


@dataclass
class FakeSegmentStores:
    """`SegmentStores` in memory. `down` makes every request fail as if nobody served.

    `requests` lists everything asked; `fail_after` requests the store goes down.
    """

    segments: dict[str, FakeSegment] = field(default_factory=dict)
    requests: list[tuple[str, str, Stamp]] = field(default_factory=list)
    down: bool = False
    fail_after: int | None = None

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        self._enter("create", segment, stamp)
        found = self.segments.get(segment)
        if found is None:
            self.segments[segment] = FakeSegment(stamp)
            return
        self._refuse_older(found, segment, stamp)
        if found.deleted or stamp != found.stamp:
            raise SegmentExists("the segment exists or existed", segment=segment)

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        self._enter("seal", segment, stamp)
        found = self._found(segment)
        self._refuse_older(found, segment, stamp)
        found.sealed = True
        found.stamp = stamp
        return found.length

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        self._enter("truncate", segment, stamp)
        found = self._found(segment)
        self._refuse_older(found, segment, stamp)
        if offset > found.length:
            raise InvalidRequest("the offset is beyond the segment's end", segment=segment)
        found.start = max(found.start, offset)
        found.stamp = stamp

    async def segment_length(self, segment: str) -> int:
        return self._found(segment).length

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

    def _refuse_older(self, found: FakeSegment, segment: str, stamp: Stamp) -> None:
        if stamp < found.stamp:
            raise StaleRequest("the segment has seen a later request", segment=segment)


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
            reply = await self._perform(decode_message(packet))
        except AnabranchError as error:
            reply = failed(error)
        await message.respond(b"".join(encode_message(reply, packet.request_id)))

    async def _perform(self, request: Message) -> Message:
        match request:
            case CreateSegment():
                await self.stores.create_segment(request.segment, request.stamp)
                return Done()
            case SealSegment():
                return Sealed(length=await self.stores.seal_segment(request.segment, request.stamp))
            case TruncateSegment():
                await self.stores.truncate_segment(request.segment, request.offset, request.stamp)
                return Truncated(start=request.offset)
            case GetSegmentInfo():
                length = await self.stores.segment_length(request.segment)
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
            case _:
                raise AssertionError(f"unexpected request {request}")
