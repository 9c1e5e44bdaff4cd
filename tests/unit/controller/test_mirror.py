"""The mirror and the queries that are answered from it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts import queries
from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import NewMessage
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.names import ScopeName, stream_ref
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.scope.state import SCOPE, ScopeCreated
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCommandSatisfied,
    StreamCreated,
    StreamCreateFailed,
    StreamCreating,
    StreamEvent,
    StreamIntentJoined,
    StreamJoinedScope,
    StreamSealed,
    StreamSealing,
)
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.projections.quarantine import Fold
from kit.desks import query_desk
from kit.fed_mirror import mirror_of


class World:
    """A mirror that follows a store in memory."""

    def __init__(self) -> None:
        self.store = InMemoryEventStore()
        self.scopes = Repository(self.store, SCOPE, SeededIds(1))
        self.streams = Repository(self.store, STREAM, SeededIds(2))
        self.groups = Repository(self.store, GROUP, SeededIds(5))
        self.folds: list[Fold] = []
        self.mirror = mirror_of(self.store, self.folds.append)
        self.desk = query_desk(self.mirror)

    async def scope(self, name: str) -> None:
        event = ScopeCreated(command_id="c", scope=name, incarnation=1, at_ms=5)
        await self.scopes.transact(scope_events(ScopeName(name)), lambda _: [event])

    async def stream(self, name: str, *following: StreamEvent) -> ReadToken:
        ref = stream_ref(name)
        creating = StreamCreating(
            command_id="c-" + ref.stream,
            revision=1,
            scope=ref.scope,
            stream=ref.stream,
            incarnation=1,
            scope_incarnation=1,
            segments=(PlannedSegment(segment_id=0, key_start=0.0, key_end=1.0),),
            at_ms=5,
        )
        subject = stream_events(ref)
        loaded = await self.streams.transact(subject, lambda _: [creating])
        for event in following:
            loaded = await self.streams.append(loaded, [event])
        return ReadToken(shard=shard_of(name), sequence=loaded.sequence)

    async def ask(self, name: str, query: queries.Query, kind: type[Contract]) -> Contract:
        answer = await answer_query(self.desk, name, Envelope(query.model_dump_json().encode()))
        return kind.model_validate_json(answer)

    async def refusal(self, name: str, query: queries.Query) -> str:
        answer = await answer_query(self.desk, name, Envelope(query.model_dump_json().encode()))
        return queries.QueryFailed.model_validate_json(answer).error.code


ACTIVE = (StreamJoinedScope(), StreamCreated())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    built = World()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(built.mirror.serve())
        yield built
        serving.cancel()


async def listed(world: World, token: str, size: int) -> queries.StreamList:
    query = queries.ListStreams(scope="s", page_token=token, page_size=size)
    answer = await world.ask("list_streams", query, queries.StreamList)
    assert isinstance(answer, queries.StreamList)
    return answer


async def test_a_no_is_only_said_after_reading_the_head(world: World) -> None:
    await world.scope("s")
    await world.stream("s/x", *ACTIVE)

    # Nothing was folded yet: the mirror's task has not run since.
    query = queries.DescribeStream(scope="s", stream="x")
    answer = await world.ask("describe_stream", query, queries.StreamDescription)

    assert isinstance(answer, queries.StreamDescription)
    assert (answer.state, answer.revision, answer.created_ms) == ("active", 3, 5)
    assert (
        await world.refusal("describe_stream", queries.DescribeStream(scope="s", stream="y"))
        == "stream-not-found"
    )
    assert (
        await world.refusal("describe_stream", queries.DescribeStream(scope="t", stream="y"))
        == "scope-not-found"
    )


async def test_pages_stay_right_while_names_come_and_go(world: World) -> None:
    await world.scope("s")
    for name in ("b", "d", "f"):
        await world.stream(f"s/{name}", *ACTIVE)
    await world.mirror.reach_heads()
    first = await listed(world, "", 2)
    await world.stream("s/a", *ACTIVE)
    await world.stream("s/e", *ACTIVE)
    await world.mirror.reach_heads()

    second = await listed(world, first.next_page_token, 2)

    assert (first.streams, second.streams) == (("b", "d"), ("e", "f"))
    assert second.next_page_token == ""


async def test_streams_that_are_half_created_or_gone_are_not_listed(world: World) -> None:
    await world.scope("s")
    await world.stream("s/creating")
    error = ErrorBody(code="scope-not-found", message="gone")
    await world.stream("s/failed", StreamCreateFailed(error=error))
    await world.stream("s/here", *ACTIVE)
    await world.mirror.reach_heads()

    assert (await listed(world, "", 10)).streams == ("here",)


async def test_a_query_waits_for_the_point_it_demands(world: World) -> None:
    await world.scope("s")
    token = await world.stream("s/x")
    query = queries.GetOperation(operation="c-x", scope="s", stream="x", at_least=token)

    answer = await world.ask("operation", query, queries.OperationFound)

    assert isinstance(answer, queries.OperationFound)
    assert answer.state == "running"
    assert (
        await world.refusal(
            "operation", queries.GetOperation(operation="other", scope="s", stream="x")
        )
        == "operation-not-found"
    )


async def test_damage_stops_one_aggregate_and_not_its_neighbours(world: World) -> None:
    await world.scope("s")
    await world.stream("s/x", *ACTIVE)
    await world.stream("s/y", *ACTIVE)
    shard = shard_of("s/x")
    sequence = (await world.store.load(stream_events(stream_ref("s/x"))))[1].sequence
    world.store.damage(shard, sequence, b"[]")
    await world.mirror.reach_heads()

    assert (
        await world.refusal("describe_stream", queries.DescribeStream(scope="s", stream="x"))
        == "corrupt-event"
    )
    query = queries.DescribeStream(scope="s", stream="y")
    assert await world.ask("describe_stream", query, queries.StreamDescription)
    with pytest.raises(CorruptEvent):
        await world.mirror.live_parts(ScopeName("s"), 1)


async def test_a_later_snapshot_heals_a_damaged_aggregate(world: World) -> None:
    await world.scope("s")
    await world.stream("s/x", *ACTIVE)
    subject = stream_events(stream_ref("s/x"))
    healthy = await world.streams.load(subject)
    world.store.damage(shard_of("s/x"), healthy.sequence, b"[]")
    await world.mirror.reach_heads()
    query = queries.DescribeStream(scope="s", stream="x")
    assert await world.refusal("describe_stream", query) == "corrupt-event"

    await world.streams.snapshot(healthy)
    await world.mirror.reach_heads()

    answer = await world.ask("describe_stream", query, queries.StreamDescription)
    assert isinstance(answer, queries.StreamDescription)
    assert (answer.state, answer.revision) == ("active", 4)
    assert world.mirror.damaged() == {}


async def test_a_mirror_that_lags_behind_a_purge_goes_on_from_the_snapshot(world: World) -> None:
    await world.scope("s")
    await world.stream("s/x", StreamJoinedScope())
    subject = stream_events(stream_ref("s/x"))
    await world.mirror.reach_heads()

    # All of this happens before the mirror's task runs again.
    created = await world.streams.append(await world.streams.load(subject), [StreamCreated()])
    snapshot = await world.streams.snapshot(created)
    await world.streams.append(snapshot, [StreamSealing(command_id="seal", revision=5)])
    await world.store.purge(subject, snapshot.sequence)

    query = queries.DescribeStream(scope="s", stream="x")
    answer = await world.ask("describe_stream", query, queries.StreamDescription)
    assert isinstance(answer, queries.StreamDescription)
    assert (answer.state, answer.revision) == ("sealing", 5)


async def test_a_newer_release_stops_the_aggregate_by_name(world: World) -> None:
    await world.scope("s")
    subject = stream_events(stream_ref("s/x"))
    await world.store.append(subject, 0, NewMessage(1, "a", "events", 2, 0, b"[]"))
    await world.mirror.reach_heads()

    assert (
        await world.refusal("describe_stream", queries.DescribeStream(scope="s", stream="x"))
        == "format-too-new"
    )


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"scope": 1}', b'{"scope":"s","page_size":0}'])
async def test_a_malformed_query_is_refused_by_name(world: World, body: bytes) -> None:
    answer = await answer_query(world.desk, "list_streams", Envelope(body))

    assert queries.QueryFailed.model_validate_json(answer).error.code == "invalid-request"


async def test_only_news_is_announced_and_wakes_work() -> None:
    woken: list[str] = []
    listener = FoldListener(woken.append)
    world = World()
    world.mirror = mirror_of(world.store, listener)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.mirror.serve())
        await world.stream("s/old", *ACTIVE)
        await world.mirror.reach_heads()
        listener.go_live()
        token = await world.stream("s/new", *ACTIVE)

        async with asyncio.timeout(5):
            notice = await listener.next_notice()

        assert (notice.operation, notice.state, notice.read_token) == ("c-new", "succeeded", token)
        assert woken == [stream_events(stream_ref("s/new"))] * 2
        serving.cancel()


async def test_a_command_that_is_only_noted_leaves_the_stream_s_shape(world: World) -> None:
    sealing = StreamSealing(command_id="seal", revision=4)
    noted = StreamIntentJoined(command_id="again")
    satisfied = StreamCommandSatisfied(command_id="late")
    await world.stream("s/x", *ACTIVE, sealing, noted, StreamSealed(lengths=(0,)), satisfied)
    await world.stream("s/y", *ACTIVE)
    await world.mirror.reach_heads()

    subject = stream_events(stream_ref("s/x"))
    (found,) = world.mirror.shaped_streams([subject, "ana.evt.0.stream.s.unknown"])

    assert (found.stream.status, found.revision) == ("sealed", 6)
    assert [fold.reshaped for fold in world.folds if fold.subject == subject] == [
        *(True, False, True),
        *(False, False, True, False),
    ]
    assert len(list(world.mirror.shaped_streams())) == 2


async def test_a_stream_that_cannot_be_read_is_not_told_of(world: World) -> None:
    await world.stream("s/x", *ACTIVE)
    subject = stream_events(stream_ref("s/x"))
    await world.mirror.reach_heads()
    world.mirror._streams.damaged[subject] = CorruptEvent("damaged")

    assert list(world.mirror.shaped_streams()) == []


async def test_a_change_of_shape_is_passed_on_once_the_past_is_known() -> None:
    told: list[str] = []
    listener = FoldListener(lambda _subject: None, told.append)
    world = World()
    world.mirror = mirror_of(world.store, listener)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.mirror.serve())
        await world.stream("s/old", *ACTIVE)
        await world.mirror.reach_heads()
        listener.go_live()
        await world.stream("s/new", *ACTIVE)
        await world.mirror.reach_heads()
        serving.cancel()

    assert told == [stream_events(stream_ref("s/new"))] * 2


async def test_a_defect_in_one_query_is_answered_and_ends_nothing() -> None:
    def broken(_segments: object) -> tuple[queries.SegmentLocation, ...]:
        raise AssertionError("a defect")

    world = World()
    world.desk = query_desk(world.mirror, locate=broken)

    assert await world.refusal("locate", queries.Locate(segments=("s/x/0.#epoch.0",))) == "error"
