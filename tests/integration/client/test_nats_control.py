"""Administration through a real NATS server, with a controller that loses replies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import connect
from anabranch.client.client import Client
from anabranch.client.wire import nats_control
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.commands import OperationState
from anabranch.common.errors import (
    OutcomeUnknown,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    Unavailable,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.nats_target import nats_target
from kit.fake_admin import AdminController
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.infra import NatsServer
from kit.nats_controller import NatsController, nats_controller


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_control, "_ATTEMPT_S", 0.1)
    monkeypatch.setattr(nats_control, "_POLL_S", 0.05)


@asynccontextmanager
async def cluster(
    url: str, kind: type[FakeController] = FakeController
) -> AsyncIterator[tuple[Client, NatsController]]:
    async with FakeSegmentStore() as store:
        connection = await connect_nats(nats_target(url), "fake controller")
        try:
            async with (
                nats_controller(kind(store), connection) as controller,
                connect(url) as client,
            ):
                yield client, controller
        finally:
            await connection.close()


async def test_scopes_and_streams_live_their_lives(nats_url: str) -> None:
    async with cluster(nats_url) as (client, _):
        for name in ("b", "a", "c"):
            await client.scopes.create(name)
        assert [scope async for scope in client.scopes.list()] == ["a", "b", "c"]
        for name in ("s3", "s1", "s2"):
            await client.streams.create(f"a/{name}", segments=2)
        assert [stream async for stream in client.streams.list("a")] == ["s1", "s2", "s3"]
        assert (await client.streams.describe("a/s1")).segment_count == 2
        with pytest.raises(ScopeNotEmpty):
            await client.scopes.delete("a")
        with pytest.raises(StreamNotSealed):
            await client.streams.delete("a/s1")
        await client.streams.seal("a/s1")
        assert (await client.streams.describe("a/s1")).state is StreamState.SEALED
        await client.streams.delete("a/s1")
        with pytest.raises(StreamNotFound):
            await client.streams.describe("a/s1")
        await client.scopes.delete("c")
        with pytest.raises(ScopeNotFound):
            await client.scopes.describe("c")


async def test_events_find_their_store_through_nats(nats_url: str) -> None:
    async with cluster(nats_url) as (client, _):
        await client.scopes.create("plant")
        await client.streams.create("plant/sensors", segments=3)
        async with client.writer("plant/sensors") as writer:
            writer.write_batch([b"a", b"b", b"c"], keys=["1", "2", "3"])
        async with client.reader("plant/sensors", until_tail=True) as reader:
            assert sorted([event.payload async for event in reader]) == [b"a", b"b", b"c"]


async def test_a_lost_answer_is_asked_for_again_under_the_same_id(nats_url: str) -> None:
    async with cluster(nats_url) as (client, controller):
        controller.answers_to_lose = 1
        controller.notices_lost = True
        await client.scopes.create("once")
        assert len(controller.controller.operations) == 1
        with pytest.raises(ScopeExists):
            await client.scopes.create("once")


async def test_a_lost_notice_is_made_up_for_by_polling(nats_url: str) -> None:
    async with cluster(nats_url) as (client, controller):
        controller.notices_lost = True
        await client.scopes.create("polled")
        assert "polled" in controller.controller.scopes


async def test_a_command_that_nobody_answers_ends_with_its_operation(nats_url: str) -> None:
    async with cluster(nats_url) as (client, controller):
        controller.deaf = True
        with pytest.raises(OutcomeUnknown) as caught:
            await client.scopes.create("lost", timeout_s=0.3)
        assert caught.value.fields["operation"]


async def test_without_a_controller_commands_and_queries_are_unavailable(
    nats_server: NatsServer,
) -> None:
    async with await connect(nats_server.url) as client:
        with pytest.raises(Unavailable):
            await client.scopes.create("nobody", timeout_s=0.3)
        with pytest.raises(Unavailable):
            await client.scopes.describe("nobody", timeout_s=0.3)


async def test_without_nats_connecting_is_refused_by_name() -> None:
    with pytest.raises(Unavailable):
        await connect("nats://127.0.0.1:9", timeout_s=0.05)


async def test_a_change_is_awaited_as_long_as_asked_and_its_end_looked_up_later(
    nats_url: str,
) -> None:
    async with cluster(nats_url, AdminController) as (client, served):
        fake = served.controller
        assert isinstance(fake, AdminController)
        await client.scopes.create("plant")
        await client.streams.create("plant/sensors", segments=2)
        fake.held = {"scale_stream"}
        split = client.streams.split_segment
        async with asyncio.timeout(20):  # and not the half minute that all of it may take
            for how in ({"wait": False}, {"wait_s": 0.05}):
                handle = await split("plant/sensors", 0, command_id="mine", **how)
                assert (handle.operation_id, handle.state) == ("mine", OperationState.RUNNING)
        with pytest.raises(OutcomeUnknown) as late:
            await split("plant/sensors", 0, command_id="mine", timeout_s=0.3)
        assert late.value.fields["operation"] == "mine"
        fake.release()
        assert (await client.operations.wait(handle)).state == "succeeded"
        again = await split("plant/sensors", 1, command_id="mine", wait_s=5)
        assert again.state is OperationState.SUCCEEDED
        assert len((await client.streams.current_segments("plant/sensors")).segments) == 3


async def test_a_command_that_nobody_answers_is_not_taken_for_accepted(nats_url: str) -> None:
    async with cluster(nats_url, AdminController) as (client, served):
        served.deaf = True
        with pytest.raises(OutcomeUnknown):
            await client.scopes.create("plant", timeout_s=0.3, wait_s=0)
