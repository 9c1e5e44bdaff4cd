"""Publications to a log whose NATS server dies before it answers."""

import asyncio

import pytest

from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.segstore.adapters.jetstream_log.nats_stream import NatsStreams
from anabranch.segstore.adapters.jetstream_log.sync_check import unchecked
from anabranch.segstore.adapters.jetstream_log.view import CONFIRM_S_MAX
from anabranch.segstore.domain.log.stream.messages import Kind
from anabranch.segstore.ports_stream import PublishUnknown
from kit.infra import NatsServer


async def test_their_outcome_is_unknown_as_soon_as_the_connection_is_lost(
    nats_server: NatsServer,
) -> None:
    client = await connect_nats(nats_target(nats_server.url), "test")
    streams = NatsStreams(client, SystemClock(), replicas=1, check_synced=unchecked)
    await streams.listen()
    await streams.create("a-log")
    stream = streams.stream("a-log")
    async with asyncio.TaskGroup() as group:
        sender = group.create_task(streams.run())
        assert await stream.publish(Kind.FRAME, b"stored", 0) == 1
        await asyncio.to_thread(nats_server.pause)
        waiting = [stream.publish(Kind.FRAME, b"in flight", place) for place in (1, 2)]
        await asyncio.to_thread(nats_server.kill)
        for publication in waiting:
            with pytest.raises(PublishUnknown, match="connection"):
                async with asyncio.timeout(CONFIRM_S_MAX / 2):
                    await publication
        sender.cancel()
    await close_nats(client)
