"""A client over HTTP alone: administration through a gateway's own application."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from anabranch.client import (
    Client,
    ContainerDescription,
    Operation,
    OperationState,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.client.wire.http_control import HttpControlPlane
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.contracts.queries import DescribeScope, ScopeDescription
from anabranch.common.contracts.reader_groups import CreateReaderGroup
from anabranch.common.contracts.transactions import BeginTransaction, TransactionBegun
from anabranch.common.errors import (
    AnabranchError,
    InvalidName,
    InvalidPosition,
    InvalidRequest,
    InvalidSetting,
    NodeNotFound,
    OutcomeUnknown,
    ScopeExists,
    StreamNotFound,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.names import SegmentId
from anabranch.common.model.reader_group import GroupStream
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.fake_admin import AdminController
from kit.gateway_bench import GatewayBench, gateway, problem
from kit.lossy import Lossy

STREAM = "plant/sensors"


@dataclass
class World:
    gateway: GatewayBench
    lossy: Lossy
    control: HttpControlPlane
    client: Client

    @property
    def controller(self) -> AdminController:
        found = self.gateway.bench.controller
        assert isinstance(found, AdminController)
        return found


@asynccontextmanager
async def world(segment_count: int = 2) -> AsyncIterator[World]:
    clock, ids, rng = SystemClock(), SeededIds(7), system_rng()
    async with gateway(segment_count=segment_count) as g:
        lossy = Lossy(g.transport)
        calls = GatewayCalls("http://gateway", transport=lossy, token="mine")
        control = HttpControlPlane(calls, clock=clock, ids=ids)
        async with Client(control, clock=clock, ids=ids, rng=rng) as client:
            yield World(g, lossy, control, client)


async def test_everything_is_administered_over_http_alone() -> None:
    async with world() as w:
        client = w.client
        await client.scopes.create("yard")
        await client.streams.create("yard/gate", segments=2)
        await client.streams.split_segment("yard/gate", 0)
        present = await client.streams.current_segments("yard/gate")
        await client.reader_groups.create("yard/readers", streams=["yard/gate"])
        described = await client.reader_groups.describe("yard/readers")
        begun = await client.transactions("yard/gate").begin()
        await begun.close()
        ended = await client.transactions("yard/gate").abort(begun.transaction_id)
        await client.streams.seal("yard/gate")
        await client.streams.delete("yard/gate")
        scopes = [name async for name in client.scopes.list()]
        containers = [one async for one in client.containers.list()]
        moved = await client.containers.move(0, "other")
        operations = [one async for one in client.operations.list()]

    assert [(s.key_start, s.key_end) for s in present.segments] == [
        (0, 0.25), (0.25, 0.5), (0.5, 1),
    ]  # fmt: skip
    assert [each.stream for each in described.config.streams] == ["yard/gate"]
    assert ended.state == "aborted"
    assert scopes == ["plant", "yard"]
    assert all(isinstance(one, ContainerDescription) for one in containers)
    assert moved.node_id == "other"
    assert operations


async def test_errors_are_those_of_the_tree_with_their_fields() -> None:
    async with world() as w:
        with pytest.raises(ScopeExists):
            await w.client.scopes.create("plant")
        with pytest.raises(StreamNotFound):
            await w.client.streams.describe("plant/missing")
        with pytest.raises(StreamNotFound) as caught:
            await w.client.streams.seal("plant/missing")
    assert caught.value.fields["stream"] == "plant/missing"


@pytest.mark.parametrize(
    "lost",
    [
        lambda lossy: lossy.before.append(httpx.ConnectError("refused")),
        lambda lossy: lossy.after.append(httpx.ReadError("cut")),
    ],
)
async def test_a_command_whose_request_or_answer_is_lost_is_carried_out_once(
    lost: Callable[[Lossy], None],
) -> None:
    async with world() as w:
        lost(w.lossy)
        done = await w.client.scopes.create("yard", command_id="mine")
        known = list(w.controller.commanded)
    assert done == Operation("mine", OperationState.SUCCEEDED)
    assert known.count("mine") == 1


async def test_what_lost_its_answer_is_repeated_but_for_a_begin_without_a_key() -> None:
    async with world() as w:
        transactions = w.client.transactions(STREAM)
        cut = httpx.ReadError("cut")
        w.lossy.after = [cut]
        assert (await w.client.scopes.describe("plant")).scope == "plant"
        w.lossy.after = [cut]
        assert (await w.client.containers.unpin(0)).container == 0
        begun = [one async for one in transactions.list()]
        w.lossy.after = [cut]
        with pytest.raises(OutcomeUnknown):
            await w.control.query(
                "begin_transaction",
                BeginTransaction(scope="plant", stream="sensors"),
                TransactionBegun,
                timeout_s=5.0,
            )
        open_now = [one async for one in transactions.list()]
    assert (len(begun), len(open_now)) == (0, 1)


async def test_a_gateway_that_is_away_is_unavailable_when_time_is_over() -> None:
    async with world() as w:
        w.lossy.before.extend([httpx.ConnectError("refused")] * 100)
        with pytest.raises(Unavailable, match="no gateway answers"):
            await w.client.scopes.describe("plant", timeout_s=0.2)
        with pytest.raises(Unavailable, match="no gateway answers"):
            await w.client.scopes.create("yard", timeout_s=0.2)


async def test_a_command_that_takes_long_is_told_as_running_and_then_polled() -> None:
    async with world() as w:
        w.controller.held = {"seal_stream"}
        sealing = await w.client.streams.seal(STREAM, command_id="mine", wait_s=0.05)
        with pytest.raises(OutcomeUnknown) as doubted:
            await w.client.streams.seal(STREAM, command_id="mine", timeout_s=0.3)
        w.controller.release()
        ended = await w.client.streams.seal(STREAM, command_id="mine")
    assert sealing.state is OperationState.RUNNING
    assert doubted.value.fields["operation"] == "mine"
    assert ended.state is OperationState.SUCCEEDED


async def test_positions_of_a_reader_group_are_checked_by_the_client_and_by_the_gateway() -> None:
    async with world(segment_count=1) as w:
        config = ReaderGroupConfig((GroupStream(STREAM, (SegmentPosition(SegmentId(0), 3, 1),)),))
        with pytest.raises(InvalidPosition):
            await w.client.reader_groups.create("plant/readers", config)
        unchecked = CreateReaderGroup(
            command_id="mine", scope="plant", group="readers", config=config
        )
        with pytest.raises(InvalidPosition):
            await w.control.execute(unchecked, timeout_s=5.0)
    assert not w.controller.commanded


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(502, html="<h1>Bad gateway</h1>"), Unavailable),
        (httpx.Response(404, html="<h1>Not here</h1>"), InvalidRequest),
        (httpx.Response(302, headers={"location": "/login"}), InvalidRequest),
        (httpx.Response(200, html="<h1>It works!</h1>"), UnsupportedProtocol),
        (
            httpx.Response(400, content=b"{", headers={"content-type": "application/problem+json"}),
            InvalidRequest,
        ),
    ],
)
async def test_whatever_else_answers_is_told_from_a_gateway(
    answer: httpx.Response, error: type[AnabranchError]
) -> None:
    calls = GatewayCalls("http://gateway", transport=httpx.MockTransport(lambda _: answer))
    control = HttpControlPlane(calls, clock=SystemClock(), ids=SeededIds(7))
    query = DescribeScope(scope="a")
    with pytest.raises(error):
        await control.query("describe_scope", query, ScopeDescription, timeout_s=0.1)
    await control.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "nats://here", "http://here:port", ""])
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(InvalidSetting):
        GatewayCalls(url)


async def test_a_gateway_serves_each_name_on_one_path() -> None:
    async with world() as w:
        http = w.gateway.http
        path = "/v1/control"
        wrong = await http.post(f"{path}/query/unpin_container", json={"container": 0})
        assert problem(wrong, 400) == "invalid-request"
        assert "/v1/control/action" in wrong.json()["remedy"]
        for posted in (
            await http.post(f"{path}/query/nothing", json={}),
            await http.post(f"{path}/action/describe_scope", json={"scope": "plant"}),
            await http.post(f"{path}/query/describe_scope", json={}),
            await http.post(f"{path}/query/describe_scope", content=b"[" * 1000),
            await http.post(f"{path}/command/create_scope", content=b"[" * 100_000),
            await http.post(f"{path}/command/create_scope", json=[]),
            await http.post(f"{path}/command/nothing", json={"scope": "s", "command_id": "a"}),
            await http.post(
                f"{path}/command/create_scope",
                content=b'{"scope":"s","command_id":"a","kind":"delete_scope"}',
            ),
            await http.post(
                f"{path}/command/create_scope",
                content=b'{"scope":"s\\ud800","command_id":"a"}',
            ),
            await http.post(f"{path}/query/describe_scope?timeout=0", json={"scope": "plant"}),
        ):
            assert problem(posted, 400) == "invalid-request"


async def test_streams_that_the_cluster_keeps_for_itself_are_not_commanded() -> None:
    async with world() as w:
        body = {"scope": "plant", "stream": "_RGreaders", "command_id": "mine"}
        sealed = await w.gateway.http.post("/v1/control/command/seal_stream", json=body)
    assert problem(sealed, 400) == InvalidName.code
    assert not w.controller.commanded


async def test_the_inbox_of_a_command_is_the_gateways_own() -> None:
    async with world() as w:
        command = CreateScope(command_id="mine", scope="yard", reply_to="elsewhere", deadline_ms=1)
        await w.control.execute(command, timeout_s=5.0)
        told = w.controller.commanded["mine"]
    assert (told.reply_to, told.deadline_ms) == ("", 0)


async def test_answers_come_while_others_wait() -> None:
    async with world() as w, asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                w.control.query(
                    "describe_scope", DescribeScope(scope="plant"), ScopeDescription, timeout_s=5.0
                )
            )
            for _ in range(8)
        ]
    assert {each.result().scope for each in asked} == {"plant"}


async def test_a_store_is_drained_and_a_container_explained() -> None:
    async with world() as w:
        stores, containers = w.client.stores, w.client.containers
        drained = await stores.drain("other")
        listed = {one.node_id: one.draining async for one in stores.list()}
        undrained = await stores.undrain("other")
        explained = await containers.explain(0)
        with pytest.raises(NodeNotFound):
            await stores.drain("nowhere")
        with pytest.raises(InvalidRequest):
            await containers.explain(99)

    assert (drained.node_id, drained.draining, undrained.draining) == ("other", True, False)
    assert listed == {"fake": False, "other": True}
    assert explained.container.container == 0
    assert explained.reasons
