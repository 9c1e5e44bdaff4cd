"""Small numbers in place of the sizes of large events, and what is stored of these."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.client import settings
from anabranch.client.reading.large_events import fetch_large
from anabranch.client.writing import columns, lane_writer, placing, uploads
from anabranch.common.errors import SegmentTruncated
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.block import Block
from kit.client_bench import Bench
from kit.fake_segment import FakeSegment

LARGE_FROM = 100
PART_SIZE = 40


@contextmanager
def small_parts() -> Iterator[None]:
    """Events over 100 bytes are large, and parts have 40."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (lane_writer, placing, columns, settings):
            patch.setattr(module, "EVENT_SIZE_BYTES_MAX", LARGE_FROM)
        patch.setattr(uploads, "PART_SIZE_BYTES_MAX", PART_SIZE)
        yield


async def events_in(segment: FakeSegment) -> list[tuple[str | None, bytes]]:
    """(key, payload) of all events, large ones put together."""

    async def read(offset: int, size: int) -> bytes:
        if offset < segment.start:
            raise SegmentTruncated("truncated", start=segment.start)
        return segment.read(offset, size)

    found: list[tuple[str | None, bytes]] = []
    at = 0
    while at < len(segment.data):
        block = Block(bytes(segment.data), at)
        for key, payload in zip(block.keys(), block.events(), strict=True):
            if block.header.is_large:
                payload = await fetch_large(read, block.reference(at))  # noqa: PLW2901
            found.append((None if key is None else key.decode(), payload))
        at += block.header.size
    return found


async def events_of(b: Bench) -> list[tuple[str | None, bytes]]:
    """(key, payload) of all events, predecessors before their successors."""
    found: list[tuple[str | None, bytes]] = []
    for each in sorted(b.every_segment(), key=lambda each: each.segment_id):
        events = await events_in(b.store.segments[each.name])
        for key, _ in events:
            at = each.key_start if key is None else routing_position(key)
            assert each.key_start <= at < each.key_end, f"{key} is not of {each.name}"
        found += events
    return found
