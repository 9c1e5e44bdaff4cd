"""Reader groups on a whole controller: real NATS server, a store of segments in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.client import connect
from anabranch.common.contracts import queries
from anabranch.common.contracts.commands import (
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    SealStream,
    TruncateStream,
)
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    DescribeReaderGroup,
    ListReaderGroups,
    ListSubscribers,
    ReaderGroupDescription,
    ReaderGroupList,
    ResetReaderGroup,
    SubscriberList,
    UpdateSubscriberCut,
)
from anabranch.common.contracts.writer_times import (
    ListWriterMarks,
    NoteTime,
    TimeNoted,
    WriterMarkList,
)
from anabranch.common.errors import (
    InvalidRequest,
    ReaderGroupExists,
    ReaderGroupNotFound,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamNotFound,
)
from anabranch.common.model.names import segment_id
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupState,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
    group_ref,
)
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit.controller_caller import Caller, StartController, until
from kit.fake_stores import FakeSegmentStores
from kit.infra import Infra, NatsServer, Server
from kit.infra.hurting import unhurt

FIRST = segment_id(0, 0)


@pytest.fixture
def redis(infra: Infra) -> Iterator[Server]:
    with unhurt(infra).redis() as server:
        yield server


def config(*streams: str, retention: str = "automatic", **more: Any) -> ReaderGroupConfig:
    return ReaderGroupConfig(
        tuple(GroupStream(stream) for stream in streams),
        retention=GroupRetention(retention),
        **more,
    )


async def with_streams(caller: Caller, *names: str) -> None:
    await caller.perform(CreateScope(command_id=caller.new_id(), scope="s"))
    for name in names:
        await caller.perform(CreateStream(command_id=caller.new_id(), scope="s", stream=name))


async def create(caller: Caller, group: str, asked: ReaderGroupConfig) -> None:
    await caller.perform(
        CreateReaderGroup(command_id=caller.new_id(), scope="s", group=group, config=asked)
    )


async def describe(caller: Caller, group: str = "g") -> ReaderGroupDescription:
    query = DescribeReaderGroup(scope="s", group=group)
    return await caller.ask("describe_reader_group", query, ReaderGroupDescription)


async def subscribers(caller: Caller, stream: str) -> list[tuple[str, int]]:
    query = ListSubscribers(scope="s", stream=stream)
    found = await caller.ask("list_subscribers", query, SubscriberList)
    return [(one.subscriber, one.generation) for one in found.subscribers]


async def test_a_reader_group_lives_from_creation_to_deletion_and_again(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await with_streams(caller, "x", "y")
        truncation = TruncateStream(
            command_id="t", scope="s", stream="x", cut=(SegmentOffset(FIRST, 10),)
        )
        await caller.perform(truncation)

        await create(caller, "g", config("s/x", "s/y"))
        found = await describe(caller)
        assert (found.state, found.incarnation, found.generation) == (GroupState.ACTIVE, 1, 0)
        assert [each.start for each in found.config.streams] == [
            (SegmentPosition(FIRST, 10),),
            (SegmentPosition(FIRST, 0),),
        ]
        assert stores.live() == ["s/_RGg/0.#epoch.0", "s/x/0.#epoch.0", "s/y/0.#epoch.0"]
        assert await subscribers(caller, "x") == await subscribers(caller, "y") == [("s/g", 0)]
        with pytest.raises(ReaderGroupExists):
            await create(caller, "g", config("s/x"))

        await caller.perform(
            UpdateSubscriberCut(
                command_id="u", scope="s", stream="y", subscriber="s/g", generation=0,
                cut=(SegmentPosition(FIRST, 5, 2),),
            )
        )  # fmt: skip
        reset = ResetReaderGroup(
            command_id="r", scope="s", group="g", expected_generation=0, config=config("s/y")
        )
        await caller.perform(reset)
        assert (await describe(caller)).generation == 1
        assert await subscribers(caller, "x") == []
        assert await subscribers(caller, "y") == [("s/g", 1)]

        await caller.perform(DeleteReaderGroup(command_id="d", scope="s", group="g"))
        with pytest.raises(ReaderGroupNotFound):
            await describe(caller)
        assert await subscribers(caller, "y") == []
        assert stores.live() == ["s/x/0.#epoch.0", "s/y/0.#epoch.0"]

        await create(caller, "g", config("s/y"))
        assert (await describe(caller)).incarnation == 2
        assert await subscribers(caller, "y") == [("s/g", 0)]
        assert stores.live() == ["s/_RGg/1.#epoch.0", "s/x/0.#epoch.0", "s/y/0.#epoch.0"]


async def test_groups_are_listed_and_their_state_streams_are_not(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await with_streams(caller, "x")
        for name in ("b", "a", "x"):
            await create(caller, name, config("s/x", retention="none"))
        assert len(stores.live()) == 4

        page = await caller.ask(
            "list_reader_groups", ListReaderGroups(scope="s", page_size=2), ReaderGroupList
        )
        assert (page.groups, page.next_page_token) == (("a", "b"), "b")
        rest = ListReaderGroups(scope="s", page_token=page.next_page_token)
        assert (await caller.ask("list_reader_groups", rest, ReaderGroupList)).groups == ("x",)
        streams = await caller.ask(
            "list_streams", queries.ListStreams(scope="s"), queries.StreamList
        )
        assert streams.streams == ("x",)
        assert await subscribers(caller, "x") == []
        segments = await caller.ask(
            "current_segments",
            queries.CurrentSegments(scope="s", stream="_RGa"),
            queries.SegmentList,
        )
        assert [each.name for each in segments.segments] == ["s/_RGa/0.#epoch.0"]
        with pytest.raises(ScopeNotFound):
            await caller.ask("list_reader_groups", ListReaderGroups(scope="none"), ReaderGroupList)


async def test_a_scope_with_groups_goes_only_recursively_and_with_them(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await with_streams(caller, "x")
        await create(caller, "g", config("s/x"))
        for command in (SealStream, DeleteStream):
            await caller.perform(command(command_id=caller.new_id(), scope="s", stream="x"))

        with pytest.raises(ScopeNotEmpty, match="reader groups"):
            await caller.perform(DeleteScope(command_id="d1", scope="s"))
        await caller.perform(DeleteScope(command_id="d2", scope="s", recursive=True))

        assert stores.live() == []
        with pytest.raises(ScopeNotFound):
            await describe(caller)


async def test_a_group_outlives_its_streams(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await with_streams(caller, "x", "y")
        await create(caller, "g", config("s/x", "s/y"))
        for command in (SealStream, DeleteStream):
            await caller.perform(command(command_id=caller.new_id(), scope="s", stream="x"))

        with pytest.raises(StreamNotFound):
            await create(caller, "h", config("s/x"))
        await caller.perform(
            ResetReaderGroup(command_id="r", scope="s", group="g", config=config("s/y"))
        )
        await caller.perform(DeleteReaderGroup(command_id="d", scope="s", group="g"))

        assert stores.live() == ["s/y/0.#epoch.0"]


async def test_a_group_is_deleted_whose_state_stream_is_gone_already(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await with_streams(caller, "x")
        await create(caller, "g", config("s/x"))
        for command in (SealStream, DeleteStream):
            await caller.perform(command(command_id=caller.new_id(), scope="s", stream="_RGg"))

        await caller.perform(DeleteReaderGroup(command_id="d", scope="s", group="g"))

        assert stores.live() == ["s/x/0.#epoch.0"]
        assert await subscribers(caller, "x") == []


async def test_the_client_administers_groups_of_a_real_controller(
    controller: StartController, stores: FakeSegmentStores, nats_server: NatsServer
) -> None:
    async with controller(), connect(nats_server.url) as client:
        await client.scopes.create("s")
        await client.streams.create("s/x", segments=2)
        groups = client.reader_groups

        created = await groups.create("s/g", config("s/x", retention="manual"))
        described = await groups.describe("s/g")
        assert len(described.config.streams[0].start) == 2
        assert (await client.operations.describe(created)).group == "g"
        assert [name async for name in groups.list("s")] == ["g"]

        await groups.reset("s/g", expected_generation=0)
        await groups.release("s/g", "s/x", {0: 0, 1: 0})
        (subscriber,) = await groups.subscribers("s/x")
        assert (subscriber.generation, len(subscriber.cut)) == (1, 2)
        await client.streams.truncate(group_ref("s/g").state_stream, {0: 5})
        assert stores.segments["s/_RGg/0.#epoch.0"].start == 5

        await client.scopes.delete("s", recursive=True)
        with pytest.raises(ScopeNotFound):
            await groups.describe("s/g")
        assert stores.live() == []


async def test_times_are_noted_by_a_controller_with_redis(
    nats_server: NatsServer, redis: Server, stores: FakeSegmentStores, caller: Caller
) -> None:
    lifetime = Lifetime()
    settings = Settings(
        nats_url=nats_server.url,
        nats_monitor_url=nats_server.monitor_url,
        redis_url=redis.url,
    )
    noting = NoteTime(scope="s", stream="x", writer_id="a" * 32, timestamp_ms=7)
    asking = ListWriterMarks(scope="s", stream="x")
    async with asyncio.TaskGroup() as group:
        group.create_task(run_controller(settings, lifetime))
        await until(lambda: lifetime.ready)
        await with_streams(caller, "x")

        await caller.ask("note_time", noting, TimeNoted)
        earlier = noting.model_copy(update={"timestamp_ms": 6})
        with pytest.raises(InvalidRequest, match="lower than its last"):
            await caller.ask("note_time", earlier, TimeNoted)
        found = await caller.ask("list_writer_marks", asking, WriterMarkList)

        assert [(mark.writer_id, mark.timestamp_ms) for mark in found.marks] == [("a" * 32, 7)]
        assert stores.live() == ["s/x/0.#epoch.0"]
        lifetime.request_stop()
