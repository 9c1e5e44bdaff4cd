"""The connection that clients and stores share, to a store that serves: no client is involved."""

import pytest

from anabranch.common.adapters.store_connection import ConnectionSettings, open_connection
from anabranch.common.errors import SegmentNotFound
from anabranch.common.wire.messages import (
    Appended,
    AppendOnce,
    CreateSegment,
    Done,
    ReadSegment,
    SegmentRead,
    Stamp,
)
from kit.live_store import World, live_store

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = bytes(16)


async def test_a_program_without_a_client_asks_a_store() -> None:
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        connection = await open_connection(live.endpoint, ConnectionSettings())
        with pytest.raises(SegmentNotFound):
            await connection.request(
                ReadSegment(segment=SEGMENT, offset=0, size_max=9), SegmentRead
            )
        await connection.request(CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)), Done)
        append = AppendOnce(
            segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1, is_block=False
        )
        appended, _ = await connection.request(append, Appended, payload=b"bytes")
        assert appended == Appended(session=0, last_event_number=1, length=5, event_count=1)
        read = ReadSegment(segment=SEGMENT, offset=0, size_max=9)
        assert (await connection.request(read, SegmentRead))[1] == b"bytes"
        connection.close()
        await connection.ended
