"""The command queue on a real NATS server: pulled by owners alone, moved without loss, parked."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import create_streams
from anabranch.common.contracts import subjects
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.adapters.command_queue import (
    ACK_WAIT_S,
    PULL_EXPIRES_S,
    TELL_S,
    CommandQueue,
    Handle,
    Park,
)
from anabranch.controller.adapters.parked_commands import (
    JetStreamParkedCommands,
    create_parked_stream,
)
from anabranch.controller.domain.parking import PARK_AT_COUNT, ParkedCommand
from anabranch.controller.ports import TryAgain
from kit.controller_caller import until
from kit.infra import Infra, NatsServer
from kit.infra.hurting import unhurt
from kit.loud import loud
from kit.rng import seeded

QUICK = 0.01
DEADLINE_S = 10.0
BUCKET = 3


class StartQueue(Protocol):
    def __call__(
        self, handle: Handle, park: Park | None = None
    ) -> AbstractAsyncContextManager[CommandQueue]: ...


AGE_MS_MAX = 60_000


class Handled:
    """A handler that keeps what it was given, and fails as the test says."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.trace_parents: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: Envelope, stored_ms: int) -> None:
        assert abs(stored_ms - SystemClock().now_ms()) < AGE_MS_MAX, "the server is of this machine"
        command_id = CreateScope.model_validate_json(request.body).command_id
        self.ids.append(command_id)
        self.trace_parents.append(request.trace_parent)
        await self.gate.wait()
        if self.failures.get(command_id):
            raise self.failures[command_id].pop(0)


@pytest.fixture
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    with unhurt(infra).nats() as server:
        yield server


@pytest.fixture
async def parked(client: Client) -> JetStreamParkedCommands:
    await create_streams(client)
    await create_parked_stream(client)
    for stream in (subjects.COMMAND_STREAM, subjects.PARKED_STREAM):
        await client.jetstream().purge_stream(stream)
    return JetStreamParkedCommands(client)


@pytest.fixture
def queue(nats_server: NatsServer, parked: JetStreamParkedCommands) -> StartQueue:
    @asynccontextmanager
    async def run(handle: Handle, park: Park | None = None) -> AsyncIterator[CommandQueue]:
        made = CommandQueue(
            nats_target(nats_server.url),
            handle,
            park or parked.park,
            SystemClock(),
            rng=seeded(0),
            containment=loud(),
            pause_ratio=QUICK,
        )
        await made.start()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(made.serve())
            yield made
            await made.stop()
            serving.cancel()

    return run


async def send(client: Client, *ids: str) -> None:
    for command_id in ids:
        body = CreateScope(command_id=command_id, scope="s").model_dump_json().encode()
        headers = {"traceparent": f"00-{command_id}", "Nats-Msg-Id": command_id}
        subject = subjects.command(BUCKET, "create_scope", "s")
        await client.jetstream().publish(subject, body, headers=headers)


async def waiting(client: Client) -> int:
    return (await client.jetstream().stream_info(subjects.COMMAND_STREAM)).state.messages


async def until_empty(client: Client) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if await waiting(client) == 0:
                return
            await asyncio.sleep(0.01)


async def test_only_what_is_owned_is_pulled(client: Client, queue: StartQueue) -> None:
    handled = Handled()
    async with queue(handled) as commands:
        await send(client, "a")
        commands.own({0, 1, 2})
        await asyncio.sleep(0.1)
        assert handled.ids == []

        commands.own({BUCKET})
        await until_empty(client)

    assert (handled.ids, handled.trace_parents) == (["a"], ["00-a"])


async def test_a_bucket_changes_its_owner_without_loss_and_in_order(
    client: Client, queue: StartQueue
) -> None:
    one, other = Handled(), Handled()
    all_ids = one.ids = other.ids
    ids = [f"c-{index}" for index in range(60)]
    async with queue(one) as first, queue(other) as second:
        first.own({BUCKET})
        for index in range(0, len(ids), 10):
            await send(client, *ids[index : index + 10])
            first.own({BUCKET} if index % 20 else ())
            second.own(() if index % 20 else {BUCKET})
        await until_empty(client)

    assert all_ids == ids
    assert one.trace_parents
    assert other.trace_parents


async def test_a_command_in_hand_is_finished_after_its_bucket_is_lost(
    client: Client, queue: StartQueue
) -> None:
    handled = Handled()
    handled.gate.clear()
    async with queue(handled) as commands:
        commands.own({BUCKET})
        await send(client, "a", "b")
        await until(lambda: handled.ids == ["a"])
        commands.own(())
        handled.gate.set()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if await waiting(client) == 1:
                    break
                await asyncio.sleep(0.01)

    assert handled.ids == ["a"]


async def test_what_a_dead_owner_had_in_hand_is_delivered_again_soon(
    client: Client, queue: StartQueue
) -> None:
    handled = Handled()
    async with queue(handled) as commands:
        commands.own({BUCKET})
        await send(client, "a")
        await until_empty(client)
        commands.own(())
        await asyncio.sleep(PULL_EXPIRES_S)

        dead = await client.jetstream().pull_subscribe_bind(
            subjects.command_consumer(BUCKET), subjects.COMMAND_STREAM
        )
        await send(client, "b", "c")
        await dead.fetch(timeout=DEADLINE_S)
        commands.own({BUCKET})
        await until_empty(client)

    assert handled.ids == ["a", "b", "c"]


async def test_a_command_that_is_worked_at_for_long_is_delivered_once(
    client: Client, queue: StartQueue
) -> None:
    handled = Handled()
    async with queue(handled) as commands:
        commands.own({BUCKET})
        handled.gate.clear()
        await send(client, "a", "b")
        await asyncio.sleep(ACK_WAIT_S + TELL_S)
        handled.gate.set()
        await until_empty(client)

    assert handled.ids == ["a", "b"]


async def test_a_command_that_never_ends_is_left_to_the_next_owner(
    client: Client, queue: StartQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.controller.adapters.command_queue.IN_HAND_S_MAX", 0.0)
    stuck, handled = Handled(), Handled()
    stuck.gate.clear()
    async with queue(stuck) as first, queue(handled) as second:
        first.own({BUCKET})
        await send(client, "a")
        await until(lambda: stuck.ids == ["a"])
        first.own(())
        second.own({BUCKET})
        await until(lambda: handled.ids == ["a"])
        stuck.gate.set()
        await until_empty(client)


async def test_stopping_waits_for_the_command_in_hand(client: Client, queue: StartQueue) -> None:
    handled = Handled()
    handled.gate.clear()
    async with queue(handled) as commands:
        commands.own({BUCKET})
        await send(client, "a")
        await until(lambda: handled.ids == ["a"])
        asyncio.get_running_loop().call_later(0.2, handled.gate.set)

    assert await waiting(client) == 0


async def test_it_stops_while_the_server_is_away(
    client: Client, queue: StartQueue, nats_server: NatsServer
) -> None:
    async with queue(Handled()) as commands:
        commands.own({BUCKET})
        nats_server.kill()
        await until(lambda: not client.is_connected)
    nats_server.start()


async def test_a_command_that_fails_ten_times_is_parked_and_the_next_one_goes_on(
    client: Client, queue: StartQueue, parked: JetStreamParkedCommands
) -> None:
    handled = Handled()
    handled.failures["poison"] = [ZeroDivisionError("no")] * 1000
    async with queue(handled) as commands:
        commands.own({BUCKET})
        await send(client, "poison", "good")
        await until_empty(client)
        assert commands.parked_count == 1

        ((_, found),) = await parked.page(0, 10)
        assert (found.command_id, found.bucket, found.attempts) == ("poison", BUCKET, PARK_AT_COUNT)
        assert found.headers == {"traceparent": "00-poison"}
        assert "ZeroDivisionError" in found.error
        assert 0 < found.first_ms <= found.last_ms
        assert handled.ids == ["poison"] * PARK_AT_COUNT + ["good"]

        handled.failures.clear()
        assert await parked.redrive("poison")
        await until(lambda: handled.ids[-1] == "poison")
        await until_empty(client)

    assert handled.trace_parents[-1] == "00-poison"
    assert await parked.page(0, 10) == []


async def test_commands_that_the_stores_cannot_decide_are_never_parked(
    client: Client,
    queue: StartQueue,
    parked: JetStreamParkedCommands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.controller.adapters.command_queue.TRY_AGAIN_S", 0.01)
    handled = Handled()
    tries = 3 * PARK_AT_COUNT
    handled.failures["slow"] = [TryAgain(Unavailable("down")) for _ in range(tries)]
    async with queue(handled) as commands:
        commands.own({BUCKET})
        await send(client, "slow")
        await until_empty(client)

    assert handled.ids == ["slow"] * (tries + 1)
    assert await parked.page(0, 10) == []


async def test_a_command_that_cannot_be_parked_stays_in_its_queue(
    client: Client, queue: StartQueue, parked: JetStreamParkedCommands
) -> None:
    handled = Handled()
    handled.failures["poison"] = [ZeroDivisionError("no")] * 1000
    refused: list[str] = []

    async def park(command: ParkedCommand) -> None:
        if len(refused) < 2:
            refused.append(command.command_id)
            raise Unavailable("full")
        await parked.park(command)

    async with queue(handled, park) as commands:
        commands.own({BUCKET})
        await send(client, "poison")
        await until_empty(client)

    assert len(handled.ids) == PARK_AT_COUNT + 2
    assert len(await parked.page(0, 10)) == 1


async def test_the_queue_goes_on_after_the_server_was_killed(
    client: Client, queue: StartQueue, nats_server: NatsServer
) -> None:
    handled = Handled()
    async with queue(handled) as commands:
        commands.own(range(16))
        await send(client, "a")
        await until_empty(client)
        nats_server.kill()
        nats_server.start()
        await until(lambda: client.is_connected and client.stats["reconnects"] > 0)
        await send(client, "b")
        await until_empty(client)

    assert handled.ids == ["a", "b"]
