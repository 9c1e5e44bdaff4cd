"""A whole controller: real NATS server, real event store and queue, a store in memory."""

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.contracts import queries, subjects
from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.contracts.commands import (
    Accepted,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    OperationState,
    OperationStatus,
    Rejected,
    SealStream,
)
from anabranch.common.errors import (
    InvalidSetting,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
)
from anabranch.common.model.cluster import Endpoint, NodeRecord, Placement, PlacementState
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import SystemClock
from kit.announced import announced
from kit.controller_caller import Caller, StartController, until
from kit.fake_stores import FakeSegmentStores
from kit.infra import NatsServer


async def test_a_stream_lives_from_creation_to_deletion_and_again(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        await caller.perform(
            CreateStream(command_id="c2", scope="s", stream="a.b", segment_count=3)
        )
        described = await caller.ask(
            "describe_stream",
            queries.DescribeStream(scope="s", stream="a.b"),
            queries.StreamDescription,
        )
        assert (described.state, described.incarnation) == (StreamState.ACTIVE, 1)
        assert described.segment_count == 3
        first_life = ["s/a.b/0.#epoch.0", "s/a.b/1.#epoch.0", "s/a.b/2.#epoch.0"]
        assert stores.live() == first_life

        with pytest.raises(StreamNotSealed):
            await caller.perform(DeleteStream(command_id="c3", scope="s", stream="a.b"))
        await caller.perform(SealStream(command_id="c4", scope="s", stream="a.b"))
        await caller.perform(SealStream(command_id="c5", scope="s", stream="a.b"))
        segments = await caller.ask(
            "current_segments",
            queries.CurrentSegments(scope="s", stream="a.b"),
            queries.SegmentList,
        )
        assert segments.state is StreamState.SEALED
        assert [s.name for s in segments.segments] == first_life
        assert segments.segments[-1].key_end == 1.0

        with pytest.raises(ScopeNotEmpty):
            await caller.perform(DeleteScope(command_id="c6", scope="s"))
        await caller.perform(DeleteStream(command_id="c7", scope="s", stream="a.b"))
        assert stores.live() == []
        with pytest.raises(StreamNotFound):
            await caller.ask(
                "describe_stream",
                queries.DescribeStream(scope="s", stream="a.b"),
                queries.StreamDescription,
            )

        await caller.perform(CreateStream(command_id="c8", scope="s", stream="a.b"))
        again = await caller.ask(
            "current_segments",
            queries.CurrentSegments(scope="s", stream="a.b"),
            queries.SegmentList,
        )
        assert again.incarnation == 2
        assert [s.name for s in again.segments] == ["s/a.b/3.#epoch.0"]


async def test_a_repeated_command_gets_the_same_answer_and_is_not_done_twice(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        create = CreateStream(command_id="c2", scope="s", stream="x")
        await caller.perform(create)
        await caller.perform(create)

        other = await caller.send(CreateStream(command_id="c3", scope="s", stream="x"))

    assert isinstance(other, Rejected)
    assert isinstance(other.error.to_error(), StreamExists)
    assert [verb for verb, _, _ in stores.requests] == ["create"]


async def test_lists_come_in_pages_sorted_by_name(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c0", scope="s"))
        for index, name in enumerate(("b", "c", "a")):
            await caller.perform(CreateStream(command_id=f"s{index}", scope="s", stream=name))

        first = await caller.ask(
            "list_streams", queries.ListStreams(scope="s", page_size=2), queries.StreamList
        )
        second = await caller.ask(
            "list_streams",
            queries.ListStreams(scope="s", page_size=2, page_token=first.next_page_token),
            queries.StreamList,
        )
        scopes = await caller.ask("list_scopes", queries.ListScopes(), queries.ScopeList)

    assert (first.streams, second.streams) == (("a", "b"), ("c",))
    assert second.next_page_token == ""
    assert scopes.scopes == ("s",)


async def test_unknown_things_are_named_in_the_refusal(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        with pytest.raises(ScopeNotFound):
            await caller.perform(CreateStream(command_id="c1", scope="none", stream="x"))
        with pytest.raises(ScopeNotFound):
            await caller.perform(DeleteScope(command_id="c2", scope="none"))
        await caller.perform(CreateScope(command_id="c3", scope="s"))
        with pytest.raises(StreamNotFound):
            await caller.perform(SealStream(command_id="c4", scope="s", stream="x"))
        with pytest.raises(ScopeNotFound):
            await caller.ask("list_streams", queries.ListStreams(scope="none"), queries.StreamList)


async def test_a_malformed_command_is_answered_and_does_not_block_its_bucket(
    controller: StartController, caller: Caller, stores: FakeSegmentStores, client: Client
) -> None:
    async with controller():
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        subject = subjects.command(3, "create_scope", "s")
        for body in (
            b"\xff\x00",
            b"[]",
            b'{"kind": "make_tea", "reply_to": "%s"}' % inbox.encode(),
        ):
            await client.jetstream().publish(subject, body)

        refused = await answers.next_msg(timeout=5)

        assert b"invalid-request" in refused.data
        await client.jetstream().publish(
            subject,
            CreateScope(command_id="c", scope="s", reply_to=inbox).model_dump_json().encode(),
        )
        accepted = await answers.next_msg(timeout=5)
        assert Accepted.model_validate_json(accepted.data).operation == "c"


async def test_the_end_of_an_operation_is_announced(
    controller: StartController, caller: Caller, stores: FakeSegmentStores, client: Client
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        notices = await client.subscribe(subjects.operation_notice("c2"))

        answer = await caller.send(CreateStream(command_id="c2", scope="s", stream="x"))
        notice = await notices.next_msg(timeout=5)

    status = OperationStatus.model_validate_json(notice.data)
    assert isinstance(answer, Accepted)
    assert status.state is OperationState.SUCCEEDED
    assert status.read_token is not None
    assert status.read_token.sequence > answer.read_token.sequence


async def test_a_controller_that_starts_again_finishes_what_was_begun(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    create = CreateStream(command_id="c2", scope="s", stream="x", segment_count=40)
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        stores.fail_after = 10
        answer = await caller.send(create)
        await until(lambda: stores.down)
    assert isinstance(answer, Accepted)
    assert len(stores.live()) == 10

    stores.fail_after, stores.down = None, False
    async with controller():
        await caller.outcome(create, answer)

    assert len(stores.live()) == 40


async def test_a_controller_survives_the_loss_of_its_nats_server(
    controller: StartController,
    caller: Caller,
    stores: FakeSegmentStores,
    client: Client,
    nats_server: NatsServer,
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        nats_server.kill()
        nats_server.start()
        await until(lambda: client.is_connected and client.stats["reconnects"] > 0)
        await caller.perform(CreateStream(command_id="c2", scope="s", stream="x"))

    assert stores.live() == ["s/x/0.#epoch.0"]


async def test_a_controller_stops_in_order_while_nats_is_away(
    client: Client, controller: StartController, nats_server: NatsServer
) -> None:
    async with controller():
        nats_server.kill()
        await until(lambda: not client.is_connected)
    nats_server.start()


async def test_another_container_count_refuses_to_start(controller: StartController) -> None:
    async with controller():
        pass

    with pytest.raises(ExceptionGroup) as refusal:
        async with controller(container_count=8):
            pass

    assert refusal.value.subgroup(InvalidSetting) is not None


async def test_a_tier_two_that_nobody_shares_refuses_to_start(controller: StartController) -> None:
    with pytest.raises(ExceptionGroup) as refusal:
        async with controller(tier2_url="memory:"):
            pass

    assert refusal.group_contains(InvalidSetting, match="in memory")


async def test_a_tier_two_that_fails_is_shown_and_holds_nothing_up(
    controller: StartController, caller: Caller, stores: FakeSegmentStores, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    async with controller(tier2_url=(tmp_path / "file").as_uri()) as lifetime:
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        await caller.perform(CreateStream(command_id="c2", scope="s", stream="x"))
        await until(lambda: "tier 2" in lifetime.parts["export"].reason)
        assert lifetime.ready


async def test_without_a_tier_two_nothing_is_told(controller: StartController) -> None:
    async with controller() as lifetime:
        assert "export" not in lifetime.parts


async def test_containers_are_assigned_to_the_store_and_located_once_open(
    controller: StartController, caller: Caller, client: Client
) -> None:
    nodes = JetStreamObjectStore(client, SystemClock(), subjects.NODES_BUCKET)
    placements = JetStreamObjectStore(client, SystemClock(), subjects.PLACEMENTS_BUCKET)
    segment = "s/x/0.#epoch.0"
    node = NodeRecord("node-1", Endpoint("127.0.0.1", 4000), "journal-1", "session-1")
    async with controller(), announced(nodes, node):
        async with asyncio.timeout(10):
            async for _ in placements.watch():
                if len(await placements.list()) == 4:
                    break
        before = await caller.ask("locate", queries.Locate(segments=(segment,)), queries.Located)
        assert before.locations[0].container_epoch == 0

        container = before.locations[0].container
        stored = await placements.get(placement_key(container))
        assert stored is not None
        assert placement_from_bytes(stored.value) == Placement(container, ("node-1",))
        opened = Placement(container, ("node-1",), 7, "log", PlacementState.OPEN)
        await placements.update(stored.key, placement_to_bytes(opened), stored.revision)
        async with asyncio.timeout(10):
            while True:
                located = await caller.ask(
                    "locate", queries.Locate(segments=(segment,)), queries.Located
                )
                if located.locations[0].container_epoch:
                    break
                await asyncio.sleep(0.02)
        listed = await caller.ask(
            "list_containers", queries.ListContainers(), queries.ContainerList
        )

    assert [found.container for found in listed.containers] == [0, 1, 2, 3]
    assert listed.containers[container] == queries.ContainerDescription(
        container=container, state="open", container_epoch=7, node_id="node-1",
        host="127.0.0.1", port=4000, log="journal",
    )  # fmt: skip
    assert {found.state for found in listed.containers} == {"open", "assigned"}
    found = located.locations[0]
    assert (found.container_epoch, found.host, found.port) == (7, "127.0.0.1", 4000)
