"""The numbers of a partition's records, compared with what a reader finds in it."""

import pytest

from anabranch.common.errors import RecordEvicted
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import EventLocated, LocateEvent, SegmentInfo
from kit.store_world import Client


async def check_numbers(client: Client, info: SegmentInfo, content: bytes) -> None:
    """Every number is located at a boundary at or before it, and truncated ones are refused.

    `content` is everything from the start on, of one writer: the n-th event of the writer has the
    number n - 1 for ever, whatever was truncated.
    """
    boundaries = [(info.start, info.start_event_count)]
    at = 0
    while at < len(content):
        header = parse_header(content, at)
        offset, count = boundaries[-1]
        assert count == header.first_event_number - 1, f"{info}: a record has another number"
        boundaries.append((offset + header.size, count + header.event_count))
        at += header.size
    assert boundaries[-1] == (info.length, info.event_count), f"{info} does not count its records"
    for number in range(info.start_event_count, info.event_count + 1):
        request = LocateEvent(segment=info.segment, event_index=number)
        found = await client.control(request)
        assert isinstance(found, EventLocated)
        assert (found.offset, found.event_index) in boundaries, f"{info}: {found} for {number}"
        assert found.event_index <= number
    if info.start_event_count:
        request = LocateEvent(segment=info.segment, event_index=info.start_event_count - 1)
        with pytest.raises(RecordEvicted) as refused:
            await client.control(request)
        assert refused.value.fields["next_available"] == info.start_event_count
