"""A client of a server of its own, on which the event streams exist."""

from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import create_streams
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import NatsServer


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connected = await connect_nats(nats_target(nats_server.url), "test")
    await create_streams(connected)
    yield connected
    await connected.close()
