"""A controller on a real NATS server, with a store that answers from memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from kit.controller_caller import Caller, StartController, run_supervised, until
from kit.fake_stores import FakeSegmentStores, FakeStoreOnNats
from kit.infra import NatsServer


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connected = await connect_nats(nats_target(nats_server.url), "test")
    yield connected
    await connected.close()


@pytest.fixture
async def stores(client: Client) -> FakeSegmentStores:
    fake = FakeSegmentStores()
    await FakeStoreOnNats(client, fake).start()
    return fake


@pytest.fixture
def controller(nats_server: NatsServer) -> StartController:
    @asynccontextmanager
    async def run(
        container_count: int = 4, tier2_url: str = "", *, retention_period_s: float = 60.0
    ) -> AsyncIterator[Lifetime]:
        lifetime = Lifetime()
        settings = Settings(
            nats_url=nats_server.url,
            nats_monitor_url=nats_server.monitor_url,
            container_count=container_count,
            tier2_url=tier2_url,
            retention_period_s=retention_period_s,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(run_supervised(settings, lifetime))
            await until(lambda: lifetime.ready)
            try:
                yield lifetime
            finally:
                lifetime.request_stop()

    return run


@pytest.fixture
def caller(client: Client) -> Caller:
    return Caller(client)
