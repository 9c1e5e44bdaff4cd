"""`SegmentStores` over NATS: one wire packet to the container's subject, one packet back."""

from collections.abc import Sequence
from itertools import count
from typing import TypeVar

import nats.errors
from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.subjects import segment_request
from anabranch.common.errors import BadPacket, Unavailable
from anabranch.common.model.hashing import container_of
from anabranch.common.runtime.trace_context import current_trace_parent
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import (
    Appended,
    BatchMerged,
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    DeleteSegment,
    Done,
    Failed,
    GetLengths,
    GetSegmentInfo,
    Lengths,
    LocateOffset,
    LocateTime,
    MergeBatch,
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
    error_of,
)
from anabranch.common.wire.packet import Packet, PacketParser
from anabranch.controller.ports import SegmentBounds

REQUEST_DEADLINE_S = 5.0

M = TypeVar("M", bound=Message)


class NatsSegmentStores:
    """See `SegmentStores`."""

    def __init__(self, client: Client, container_count: int) -> None:
        self._client = client
        self._container_count = container_count
        self._request_ids = count(1)

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        """See `SegmentStores.create_segment`."""
        parent = current_trace_parent()
        request = CreateSegment(segment=segment, stamp=stamp, trace_parent=parent)
        reply = await self._ask("create", segment, request)
        _expect(reply, Done)

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        """See `SegmentStores.seal_segment`."""
        parent = current_trace_parent()
        request = SealSegment(segment=segment, stamp=stamp, trace_parent=parent)
        reply = await self._ask("seal", segment, request)
        return _expect(reply, Sealed).length

    async def check_truncation(self, segment: str, offset: int, stamp: Stamp) -> None:
        """See `SegmentStores.check_truncation`."""
        parent = current_trace_parent()
        request = CheckTruncation(segment=segment, stamp=stamp, offset=offset, trace_parent=parent)
        _expect(await self._ask("check_truncation", segment, request), Truncated)

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        """See `SegmentStores.truncate_segment`."""
        parent = current_trace_parent()
        request = TruncateSegment(segment=segment, stamp=stamp, offset=offset, trace_parent=parent)
        _expect(await self._ask("truncate", segment, request), Truncated)

    async def segment_lengths(self, segments: Sequence[str]) -> Sequence[int]:
        """See `SegmentStores.segment_lengths`."""
        first = segments[0]
        if len(segments) == 1:
            return [(await self.segment_bounds(first)).length]
        prefix = first[: first.rindex("/") + 1]
        request = GetLengths(
            segment=first,
            prefix=prefix,
            segments=tuple(name.removeprefix(prefix) for name in segments),
            trace_parent=current_trace_parent(),
        )
        return _expect(await self._ask("lengths", first, request), Lengths).lengths

    async def segment_bounds(self, segment: str) -> SegmentBounds:
        """See `SegmentStores.segment_bounds`."""
        request = GetSegmentInfo(segment=segment, trace_parent=current_trace_parent())
        found = _expect(await self._ask("info", segment, request), SegmentInfo)
        return SegmentBounds(found.start, found.length)

    async def boundary_at(self, segment: str, offset: int) -> int:
        """See `SegmentStores.boundary_at`."""
        parent = current_trace_parent()
        request = LocateOffset(segment=segment, offset=offset, trace_parent=parent)
        return _expect(await self._ask("locate", segment, request), OffsetLocated).offset

    async def boundary_at_time(self, segment: str, time_ms: int) -> int:
        """See `SegmentStores.boundary_at_time`."""
        parent = current_trace_parent()
        request = LocateTime(segment=segment, time_ms=time_ms, trace_parent=parent)
        return _expect(await self._ask("locate_time", segment, request), OffsetLocated).offset

    async def read_appends(self, segment: str, offset: int, size_max: int) -> bytes:
        """See `SegmentStores.read_appends`."""
        parent = current_trace_parent()
        request = ReadSegment(
            segment=segment, offset=offset, size_max=size_max, trace_parent=parent
        )
        packet = await self._exchange("read", segment, request)
        _expect(_message_of(packet), SegmentRead)
        return bytes(packet.payload)

    async def append_if(self, segment: str, block: bytes, expected_length: int) -> None:
        """See `SegmentStores.append_if`."""
        header = parse_header(block)
        request = ConditionalAppend(
            segment=segment,
            writer_id=header.writer_id,
            first_event_number=header.first_event_number,
            count=header.event_count,
            expected_length=expected_length,
            trace_parent=current_trace_parent(),
        )
        packet = await self._exchange("append_if", segment, request, block)
        _expect(_message_of(packet), Appended)

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        """See `SegmentStores.merge_segments`."""
        request = MergeSegments(
            segment=segment,
            sources=tuple(sources),
            stamp=stamp,
            trace_parent=current_trace_parent(),
        )
        merged = _expect(await self._ask("merge", segment, request), SegmentsMerged).merged
        return max(source.offset + source.length for source in merged)

    async def merge_batch(self, segment: str, parts: Sequence[str | bytes], stamp: Stamp) -> int:
        """See `SegmentStores.merge_batch`."""
        request = MergeBatch(
            segment=segment,
            stamp=stamp,
            parts=tuple(part if isinstance(part, str) else len(part) for part in parts),
            trace_parent=current_trace_parent(),
        )
        blocks = b"".join(part for part in parts if isinstance(part, bytes))
        packet = await self._exchange("merge_batch", segment, request, blocks)
        return _expect(_message_of(packet), BatchMerged).end

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        """See `SegmentStores.delete_segment`."""
        parent = current_trace_parent()
        request = DeleteSegment(segment=segment, stamp=stamp, trace_parent=parent)
        reply = await self._ask("delete", segment, request)
        _expect(reply, Done)

    async def _ask(self, verb: str, segment: str, request: Message) -> Message:
        return _message_of(await self._exchange(verb, segment, request))

    async def _exchange(
        self, verb: str, segment: str, request: Message, payload: bytes = b""
    ) -> Packet:
        container = container_of(segment, self._container_count)
        request_id = next(self._request_ids)
        packet = b"".join(encode_message(request, request_id, payload))
        with as_unavailable("bring an answer of the segment store", container=container):
            try:
                answer = await self._client.request(
                    segment_request(container, verb), packet, timeout=REQUEST_DEADLINE_S
                )
            except nats.errors.NoRespondersError as error:
                raise Unavailable(
                    "no segment store serves the container",
                    remedy="start the store that owns it; the controller retries the request",
                    container=container,
                    segment=segment,
                ) from error
        return _one_packet(answer.data, request_id)


def _one_packet(data: bytes, request_id: int) -> Packet:
    """The one packet in `data`. Raises BadPacket."""
    packets = list(PacketParser().feed(data))
    if len(packets) != 1 or packets[0].request_id != request_id:
        raise BadPacket("a segment store's reply is not one packet that answers the request")
    return packets[0]


def _message_of(packet: Packet) -> Message:
    """Its message. Raises BadPacket, or the error in the store's answer."""
    reply = decode_message(packet)
    if isinstance(reply, Failed):
        raise error_of(reply)
    return reply


def _expect(reply: Message, kind: type[M]) -> M:
    if not isinstance(reply, kind):
        raise BadPacket("a segment store's reply has an unexpected kind", kind=type(reply).__name__)
    return reply
