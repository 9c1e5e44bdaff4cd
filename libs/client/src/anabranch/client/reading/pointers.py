"""Event pointers: each names one event, to read it again later.

As text, a pointer is ``scope/stream/0.#epoch.0:offset:index``: event number `index`, from 0, of the
block at byte `offset` of the segment. A pointer is valid until its event is truncated or deleted.
"""

from typing import NamedTuple, Self

from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.large_events import fetch_large
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import (
    CorruptBlock,
    EventNotFound,
    EventsTruncated,
    InvalidName,
    InvalidRequest,
    Remedy,
    SegmentNotFound,
    SegmentTruncated,
)
from anabranch.common.model.names import parse_segment_name
from anabranch.common.wire.block import Block, parse_header
from anabranch.common.wire.messages import ReadSegment, Request, SegmentRead

_DIGITS_MAX = 19


class EventPointer(NamedTuple):
    """The parts of a pointer; `str` makes the text. See the module.

    ::

        event = await client.fetch(EventPointer.parse(text))
    """

    segment: str
    offset: int
    event_index: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises InvalidRequest.

        ::

            pointer = EventPointer.parse("plant/sensors/0.#epoch.0:4096:2")
        """
        segment, *places = text.rsplit(":", 2)
        try:
            parse_segment_name(segment)
        except InvalidName:
            places = []
        if len(places) != 2 or not all(map(_is_number, places)):
            raise InvalidRequest(
                f"{text[:600]!r} is not an event pointer",
                remedy=Remedy("use the pointer of an event", api="use a value of `Event.pointer`"),
            )
        return cls(segment, int(places[0]), int(places[1]))

    def __str__(self) -> str:
        return f"{self.segment}:{self.offset}:{self.event_index}"


async def fetch_event(calls: SegmentCalls, pointer: EventPointer) -> Event:
    """The event. Reads only its block, and the parts of a large event. `calls` are of its segment.

    Raises EventNotFound, CorruptBlock, CodecMissing, and the errors of `calls` if no store answers.
    """
    data = await _stored_block(calls, pointer)
    try:
        parse_header(data)
    except CorruptBlock as error:
        raise _not_found("no block begins at the pointer's offset", pointer) from error
    try:
        block = Block(data)
        if pointer.event_index >= len(block):
            raise _not_found("the pointer's index exceeds the block's events", pointer)
        if block.header.is_large:
            await _put_large(calls, block, pointer)
        fetched = FetchedBlock(pointer.segment, pointer.offset, block, pointer.event_index)
        batch = EventBatch(fetched)
        batch.open()
    except CorruptBlock as error:
        raise CorruptBlock(
            error.message, segment=pointer.segment, offset=pointer.offset, cause=str(error)
        ) from error
    return batch.events()[0]


async def _put_large(calls: SegmentCalls, block: Block, pointer: EventPointer) -> None:
    async def read(offset: int, size: int) -> bytes:
        return await _read(calls, offset, size)

    block.open()
    try:
        block.put_event(await fetch_large(read, block.reference(pointer.offset)))
    except EventsTruncated as error:
        raise _not_found("the parts of the event were truncated", pointer) from error


async def _read(calls: SegmentCalls, offset: int, size: int) -> bytes:
    """Whole blocks from `offset`, at least one, and about `size` bytes."""

    def request(container_epoch: int) -> Request:
        return ReadSegment(
            segment=calls.segment, container_epoch=container_epoch, offset=offset, size_max=size
        )

    return (await calls.ask(request, SegmentRead))[1]


async def _stored_block(calls: SegmentCalls, pointer: EventPointer) -> bytes:
    """The block at the pointer's offset, as it is stored."""
    try:
        data = await _read(calls, pointer.offset, 1)
    except SegmentTruncated as error:
        raise _not_found("the event was truncated", pointer) from error
    except SegmentNotFound as error:
        raise _not_found("the event was deleted", pointer) from error
    except InvalidRequest as error:
        raise _not_found("no event exists at the pointer", pointer) from error
    if not data:
        raise _not_found("the segment ends before the pointer", pointer)
    return data


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _not_found(what: str, pointer: EventPointer) -> EventNotFound:
    return EventNotFound(
        what, segment=pointer.segment, offset=pointer.offset, index=pointer.event_index
    )
