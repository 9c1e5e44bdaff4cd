"""The control plane by NATS against a connection that drops cancellations, as nats-py can."""

import asyncio
from collections.abc import Callable, Coroutine

import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from anabranch.client.wire.control import ControlPlane
from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.adapters.nats_connection import connect_nats, keeping_cancellation
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.contracts.queries import ListScopes, ScopeList
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.runtime.nats_target import nats_target
from kit.served_streams import served_streams


class _SwallowingConnection:
    """A NATS client, its JetStream and its subscriptions in one, none of which ends by being
    cancelled."""

    is_closed = False
    published = 0

    def jetstream(self) -> "_SwallowingConnection":
        return self

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, **_options: object) -> "_SwallowingConnection":
        return self

    async def unsubscribe(self) -> None:
        return None

    async def publish(self, *_arguments: object, **options: object) -> None:
        self.published += 1
        if "reply" in options:
            await _deaf(60)  # a question; it waits until what is pending was sent

    async def next_msg(self, **options: float) -> None:
        await _deaf(options["timeout"])
        raise nats.errors.TimeoutError


async def _deaf(seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return


def _control() -> ControlPlane:
    connection: NatsClient = _SwallowingConnection()  # type: ignore[assignment]
    return NatsControlPlane(connection, clock=SystemClock(), ids=SeededIds(1))


async def _query() -> None:
    await _control().query("list_scopes", ListScopes(), ScopeList, timeout_s=60)


async def _execute() -> None:
    await _control().execute(CreateScope(command_id="c", scope="plant"), timeout_s=60)


@pytest.mark.parametrize("call", [_query, _execute])
async def test_a_cancellation_that_the_nats_client_drops_ends_the_call_all_the_same(
    call: Callable[[], Coroutine[object, object, None]],
) -> None:
    async with asyncio.timeout(2), asyncio.TaskGroup() as group:
        task = group.create_task(call())
        await asyncio.sleep(0.05)
        task.cancel()
    assert task.cancelled()


async def test_a_command_ends_at_its_deadline_though_the_nats_client_drops_it() -> None:
    command = CreateScope(command_id="c", scope="plant")
    async with asyncio.timeout(2):
        with pytest.raises(OutcomeUnknown):
            await _control().execute(command, timeout_s=0.1)


async def test_who_cleans_up_after_being_cancelled_can_still_call() -> None:
    async def cleaning_up() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            with keeping_cancellation():
                await asyncio.sleep(0)
            return "cleaned up"
        return "not cancelled"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(cleaning_up())
        await asyncio.sleep(0)
        task.cancel()
    assert task.result() == "cleaned up"


async def test_a_cancelled_attempt_to_connect_leaves_no_connection() -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()
        gone.set()
        writer.close()

    async with served_streams(mute) as port, asyncio.timeout(2):
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(
                connect_nats(nats_target(f"nats://127.0.0.1:{port}"), "test")
            )
            await came.wait()
            await asyncio.sleep(0.05)
            connecting.cancel()
        await gone.wait()


async def test_closing_while_the_server_is_away_is_success() -> None:
    class Severed(_SwallowingConnection):
        async def close(self) -> None:
            raise ConnectionResetError("Connection lost")

    connection: NatsClient = Severed()  # type: ignore[assignment]
    await NatsControlPlane(connection, clock=SystemClock(), ids=SeededIds(1)).close()
