"""The edge of the fold: an event that does not fit stops its aggregate, and nothing beside it."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.contracts.commands import (
    ANSWERS,
    CreateStream,
    DeleteScope,
    Rejected,
    SealStream,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.parked import ListParked, ParkedList, RedriveParked
from anabranch.common.contracts.queries import DescribeStream, QueryFailed
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.errors import CorruptEvent, Defect
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.model.names import ScopeName, stream_ref
from anabranch.common.model.stream import fixed
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import FOLD, Containment
from anabranch.controller.domain.kinds import SCOPES, STREAMS
from anabranch.controller.domain.scope.state import ScopeCreated
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.desk.parked import (
    ParkedDesk,
    list_parked,
    redrive_parked,
    resume,
)
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.workflows.repositories import Repositories
from kit.desks import command_desk, query_desk
from kit.fake_parked import FakeParkedCommands
from kit.fed_mirror import mirror_of
from kit.rng import seeded

BAD, GOOD = stream_events(stream_ref("s/bad")), stream_events(stream_ref("s/good"))


class World:
    """A mirror that follows a store, and the desks of a controller."""

    def __init__(self) -> None:
        self.store = InMemoryEventStore()
        self.clock = SystemClock()
        self.containment = Containment(self.clock, seeded(0))
        repositories = Repositories(self.store, SeededIds(1))
        self.scopes, self.streams = repositories[SCOPES], repositories[STREAMS]
        self.mirror = mirror_of(self.store, repositories=repositories, containment=self.containment)
        self.queries = query_desk(self.mirror)
        self.answers: list[bytes] = []
        self.commands = command_desk(
            self.store,
            repositories=repositories,
            clock=self.clock,
            reply=self._reply,
            require_not_parked=self.containment.require_not_parked,
        )
        self.peers: list[tuple[str, bytes]] = []
        self.woken: list[str] = []
        self.parked = ParkedDesk(
            commands=FakeParkedCommands(),
            containment=self.containment,
            resume=self._resume,
            ask_peers=self._ask,
            controller_id="me",
        )

    async def _reply(self, _inbox: str, answer: bytes) -> None:
        self.answers.append(answer)

    async def _resume(self, subject: str) -> None:
        await resume(self.containment, self.mirror, self.woken.append, subject)

    async def _ask(self, _name: str, _payload: bytes, _timeout_s: float) -> list[tuple[str, bytes]]:
        return self.peers

    async def create(self, *names: str) -> None:
        event = ScopeCreated(command_id="c", scope="s", incarnation=1, at_ms=5)
        await self.scopes.transact(
            scope_events(ScopeName("s")),
            lambda loaded: [] if loaded.revision else [event],
        )
        for name in names:
            await self.command(
                CreateStream(command_id=f"c-{name}", scope="s", stream=name, config=fixed(1))
            )

    async def command(self, command: Any) -> Any:
        body = command.model_copy(update={"reply_to": "inbox"}).model_dump_json().encode()
        await handle_command(self.commands, Envelope(body))
        return ANSWERS.validate_json(self.answers[-1])

    async def describe(self, name: str) -> str:
        query = DescribeStream(scope="s", stream=name).model_dump_json().encode()
        answer = await answer_query(self.queries, "describe_stream", Envelope(query))
        try:
            return QueryFailed.model_validate_json(answer).error.code
        except ValueError:
            return "ok"


@contextmanager
def broken(kind: str) -> Iterator[None]:
    """What is made of BAD's events raises what nobody expected: in the mirror or the aggregate."""
    index, fold = Mirror._index, Aggregate.fold

    def in_mirror(self: Mirror, kind: Any, change: Any, folded: Fold) -> Any:
        found = index(self, kind, change, folded)
        if folded.subject == BAD:
            raise KeyError("an index")
        return found

    def in_aggregate(self: Aggregate[Any, Any], state: Any, message: EventMessage) -> Any:
        if message.subject == BAD:
            raise AssertionError("the event does not fit")
        return fold(self, state, message)

    plants: dict[str, AbstractContextManager[object]] = {
        "mirror": patch.object(Mirror, "_index", in_mirror),
        "aggregate": patch.object(Aggregate, "fold", in_aggregate),
    }
    with plants[kind]:
        yield


@pytest.fixture
async def world() -> Any:
    built = World()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(built.mirror.serve())
        yield built
        serving.cancel()


@pytest.mark.parametrize("kind", ["mirror", "aggregate"])
async def test_an_event_that_does_not_fit_stops_its_aggregate_alone(
    world: World, kind: str
) -> None:
    with broken(kind):
        await world.create("bad", "good")
        await world.mirror.reach_heads()

        assert (await world.describe("bad"), await world.describe("good")) == (
            "corrupt-event",
            "ok",
        )
        assert list(world.mirror.damaged()) == [BAD]
        assert [(one.part, one.subject, one.parked) for one in world.containment.all()] == [
            (FOLD, BAD, True)
        ]
        answer = await world.command(SealStream(command_id="c2", scope="s", stream="bad"))
        assert isinstance(answer, Rejected)
        assert answer.error.code == "parked"
        assert "operation redrive stream:s/bad" in answer.error.remedy
        assert (await world.command(SealStream(command_id="c3", scope="s", stream="good"))).kind


@pytest.mark.parametrize("kind", ["mirror", "aggregate"])
async def test_a_redrive_folds_again_what_was_passed_over(world: World, kind: str) -> None:
    with broken(kind):
        await world.create("bad")
        await world.mirror.reach_heads()
        await redrive_parked(world.parked, RedriveParked(command_id="stream:s/bad"))
        assert await world.describe("bad") == "corrupt-event"

    found = await redrive_parked(world.parked, RedriveParked(command_id="stream:s/bad"))

    assert found.was_parked  # type: ignore[attr-defined]
    assert await world.describe("bad") == "ok"
    assert world.mirror.known(BAD) == await world.streams.load(BAD)
    assert world.containment.all() == []
    assert world.woken == [BAD]
    again = await redrive_parked(world.parked, RedriveParked(command_id="stream:s/bad"))
    assert not again.was_parked  # type: ignore[attr-defined]


async def test_a_command_that_was_accepted_before_is_accepted_again_while_it_is_parked(
    world: World,
) -> None:
    await world.create("bad")
    world.containment.note("step", BAD, Defect("x"), park_at=1)
    create = CreateStream(command_id="c-bad", scope="s", stream="bad", config=fixed(1))

    assert (await world.command(create)).kind == "accepted"

    other = create.model_copy(update={"command_id": "other", "config": fixed(2)})
    assert (await world.command(other)).kind == "rejected"
    assert await world.describe("bad") == "ok"


async def test_a_parked_aggregate_refuses_what_it_would_accept(world: World) -> None:
    await world.create()
    world.containment.note("step", scope_events(ScopeName("s")), Defect("x"), park_at=1)

    refused = await world.command(DeleteScope(command_id="c2", scope="s"))

    assert isinstance(refused, Rejected)
    assert refused.error.code == "parked"
    assert (await world.scopes.load(scope_events(ScopeName("s")))).revision == 1


async def test_a_load_names_the_aggregate_that_does_not_fit(world: World) -> None:
    await world.create("bad")
    with broken("aggregate"), pytest.raises(CorruptEvent) as refused:
        await world.streams.load(BAD)
    assert "contradicts the state" in refused.value.message
    assert refused.value.fields["cause"] == "AssertionError('the event does not fit')"


async def test_parked_work_of_all_controllers_is_listed_before_the_commands(world: World) -> None:
    await world.create("bad")
    world.containment.note("step", BAD, Defect("x"), park_at=1)
    here = await list_parked(world.parked, ListParked(only_here=True))
    assert isinstance(here, ParkedList)
    world.peers = [("you", here.model_dump_json().encode()), ("old", b"?")]

    listed = await list_parked(world.parked, ListParked())

    assert isinstance(listed, ParkedList)
    (mine, theirs) = listed.commands
    assert (mine.command_id, mine.part, mine.controller) == ("stream:s/bad", "step", "me")
    assert mine == theirs
