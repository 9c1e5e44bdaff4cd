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
from anabranch.common.runtime.tracing import current_trace_parent
from anabranch.common.wire.messages import (
    CheckTruncation,
    CreateSegment,
    DeleteSegment,
    Done,
    Failed,
    GetSegmentInfo,
    MergeSegments,
    Message,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentsMerged,
    Stamp,
    Truncated,
    TruncateSegment,
    decode_message,
    encode_message,
    error_of,
)
from anabranch.common.wire.packet import PacketParser

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

    async def segment_length(self, segment: str) -> int:
        """See `SegmentStores.segment_length`."""
        request = GetSegmentInfo(segment=segment, trace_parent=current_trace_parent())
        return _expect(await self._ask("info", segment, request), SegmentInfo).length

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

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        """See `SegmentStores.delete_segment`."""
        parent = current_trace_parent()
        request = DeleteSegment(segment=segment, stamp=stamp, trace_parent=parent)
        reply = await self._ask("delete", segment, request)
        _expect(reply, Done)

    async def _ask(self, verb: str, segment: str, request: Message) -> Message:
        container = container_of(segment, self._container_count)
        request_id = next(self._request_ids)
        packet = b"".join(encode_message(request, request_id))
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
        return _decoded(answer.data, request_id)


def _decoded(data: bytes, request_id: int) -> Message:
    """The one message in `data`. Raises BadPacket, or the error in the store's answer."""
    packets = list(PacketParser().feed(data))
    if len(packets) != 1 or packets[0].request_id != request_id:
        raise BadPacket("a segment store's reply is not one packet that answers the request")
    reply = decode_message(packets[0])
    if isinstance(reply, Failed):
        raise error_of(reply)
    return reply


def _expect(reply: Message, kind: type[M]) -> M:
    if not isinstance(reply, kind):
        raise BadPacket("a segment store's reply has an unexpected kind", kind=type(reply).__name__)
    return reply
