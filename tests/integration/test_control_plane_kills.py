"""Real controllers on a real NATS server, killed in the middle of their work."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import commands
from anabranch.common.contracts.commands import Command, NewRange
from anabranch.common.model.names import StreamRef, segment_id, segment_name, stream_ref
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.nats_target import nats_target
from kit.control_processes import (
    StoresOnNats,
    StubbornCaller,
    all_ready,
    controller_processes,
)
from kit.infra import NatsServer
from kit.rng import seeded

SECONDS_MAX = 120
"""For a machine that does much else; alone, a test takes a fraction of it."""
STREAM_COUNT = 100
HALVES = (NewRange(key_start=0, key_end=0.5), NewRange(key_start=0.5, key_end=1))


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connected = await connect_nats(nats_target(nats_server.url), "test")
    yield connected
    await connected.close()


@pytest.fixture
async def stores(client: Client) -> StoresOnNats:
    answering = StoresOnNats(client)
    await answering.start()
    return answering


def refs(count: int) -> list[StreamRef]:
    return [stream_ref(f"s/x{number}") for number in range(count)]


def create(ref: StreamRef) -> Command:
    return commands.CreateStream(
        command_id=f"create-{ref.stream}", scope=ref.scope, stream=ref.stream
    )


def scale(ref: StreamRef) -> Command:
    return commands.ScaleStream(
        command_id=f"scale-{ref.stream}",
        scope=ref.scope,
        stream=ref.stream,
        seal=(segment_id(0, 0),),
        new_ranges=HALVES,
    )


async def perform_all(caller: StubbornCaller, asked: Iterable[Command]) -> None:
    async with asyncio.TaskGroup() as group:
        for command in asked:
            group.create_task(caller.perform(command))


async def check_scaled(
    caller: StubbornCaller, stores: StoresOnNats, streams: list[StreamRef]
) -> None:
    """Every stream is at epoch 1, and the stores have just what that says."""
    expected = {}
    for ref in streams:
        described = await caller.describe(ref)
        found = (described.state, described.stream_epoch, described.segment_count)
        assert found == (StreamState.ACTIVE, 1, 2), ref
        expected[segment_name(ref, segment_id(0, 0))] = True
        expected[segment_name(ref, segment_id(1, 1))] = False
        expected[segment_name(ref, segment_id(1, 2))] = False
    segments = {name: stores.segments.state(name) for name in stores.segments.known}
    assert {name: one is not None and one.sealed for name, one in segments.items()} == expected
    assert None not in segments.values()


async def test_a_hundred_scales_survive_the_death_of_a_controller_that_performs_them(
    nats_server: NatsServer, client: Client, stores: StoresOnNats, tmp_path: Path
) -> None:
    streams, caller = refs(STREAM_COUNT), StubbornCaller(client)
    with controller_processes(3, nats_server, tmp_path) as processes:
        async with asyncio.timeout(SECONDS_MAX):
            await all_ready(processes)
            await caller.perform(commands.CreateScope(command_id="scope", scope="s"))
            await perform_all(caller, map(create, streams))
            stores.held.clear()
            async with asyncio.TaskGroup() as group:
                for ref in streams:
                    group.create_task(caller.accepted(scale(ref)))
            enough = stores.requests + STREAM_COUNT
            stores.held.set()
            await stores.asked(enough)
            processes[0].kill()

            await perform_all(caller, map(scale, streams))
            await check_scaled(caller, stores, streams)


async def test_an_event_store_that_is_killed_again_and_again_loses_nothing(
    nats_server: NatsServer, client: Client, stores: StoresOnNats, tmp_path: Path
) -> None:
    streams, caller, rng = refs(12), StubbornCaller(client), seeded(15)

    async def live(ref: StreamRef) -> None:
        await caller.perform(create(ref))
        await caller.perform(scale(ref))

    async def strike() -> None:
        for _ in range(3):
            await asyncio.sleep(0.2 + rng.random())
            await asyncio.to_thread(nats_server.kill)
            await asyncio.to_thread(nats_server.start)

    with controller_processes(2, nats_server, tmp_path) as processes:
        async with asyncio.timeout(SECONDS_MAX):
            await all_ready(processes)
            await caller.perform(commands.CreateScope(command_id="scope", scope="s"))
            async with asyncio.TaskGroup() as group:
                group.create_task(strike())
                for ref in streams:
                    group.create_task(live(ref))
            await check_scaled(caller, stores, streams)
