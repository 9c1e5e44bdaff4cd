"""Closing a connection to NATS that is gone at the moment, on the loop that services run on."""

import asyncio

import uvloop

from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import NatsServer


def test_a_connection_that_has_something_to_send_and_nowhere_to_is_closed_in_order(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        client = await connect_nats(nats_target(nats_server.url), "test")
        nats_server.stop()
        async with asyncio.timeout(10):
            while client.is_connected:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await client.publish("anything", b"to be sent later")
        await close_nats(client)
        assert client.is_closed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
