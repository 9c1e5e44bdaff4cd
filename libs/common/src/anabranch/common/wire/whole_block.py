"""Checks of the bytes of an append: exactly one block that every reader can read. Pure.

A store checks what it appends. A controller checks what it decides to append, because a store must
not refuse it later. Both use this code, so what one of them accepts, the other accepts too.
"""

from anabranch.common.errors import CorruptBlock, EventTooLarge, InvalidRequest
from anabranch.common.wire.block import (
    EVENT_SIZE_BYTES_MAX,
    FLAG_TABLE,
    HEADER_SIZE_BYTES,
    BlockHeader,
    verify_block,
)
from anabranch.common.wire.contents import check_contents


def check_one_block(payload: bytes) -> BlockHeader:
    """The header of the payload, which is one block of events.

    Raises CorruptBlock, MalformedBlock, FormatTooNew, InvalidRequest (a table's block),
    EventTooLarge.
    """
    header = verify_block(payload)
    if header.size != len(payload):
        raise CorruptBlock(
            "the payload of an append is not exactly one block",
            size=len(payload),
            block=header.size,
        )
    if header.flags & FLAG_TABLE:
        raise InvalidRequest("a table block belongs to a table segment", events=header.event_count)
    if header.payloads_size > EVENT_SIZE_BYTES_MAX:
        _check_event_sizes(header, payload)
    check_contents(header, payload)
    return header


def check_carried_block(payload: bytes) -> BlockHeader:
    """The header of the payload, which is one block of small events that a transaction may carry.

    Raises as `check_one_block`, and InvalidRequest for a part of a large event, a reference to one,
    or events that are not numbered from 1 on.
    """
    header = check_one_block(payload)
    if header.is_part or header.is_large or header.event_count < 1:
        raise InvalidRequest(
            "a block of a transaction has small events, and at least one",
            events=header.event_count,
        )
    if header.first_event_number < 1:
        raise InvalidRequest("events are numbered from 1", first=header.first_event_number)
    return header


def events_numbered(header: BlockHeader) -> int:
    """How many event numbers the block takes: a part of a large event takes one."""
    return 1 if header.is_part else header.event_count


def _check_event_sizes(header: BlockHeader, payload: bytes) -> None:
    lengths_end = HEADER_SIZE_BYTES + 4 * header.event_count
    largest = max(memoryview(payload)[HEADER_SIZE_BYTES:lengths_end].cast("I"))
    if largest > EVENT_SIZE_BYTES_MAX:
        raise EventTooLarge("an event is over the limit", size=largest, limit=EVENT_SIZE_BYTES_MAX)
