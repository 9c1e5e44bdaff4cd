"""Commands, queries and steps: counted by what became of them, and part of their caller's trace."""

from collections.abc import Awaitable, Callable

import pytest

from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    CreateScope,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import scope_events
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.trace_context import trace_parent_of
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.workflows.observed import (
    REMEMBERED_MAX,
    CommandTraces,
    Observer,
    observed,
)
from kit.desks import command_desk, query_desk
from kit.fed_mirror import mirror_of
from kit.spans import RecordedSpans, UntouchableTracer

SUBJECT = scope_events(ScopeName("s"))
CREATE = CreateScope(command_id="c1", scope="s")


class World:
    """Desks over stores in memory, and a caller's span around what they are asked."""

    def __init__(self, spans: RecordedSpans | None = None) -> None:
        self.observer = Observer(tracer=spans.tracer if spans else UntouchableTracer())
        self.metrics = self.observer.metrics
        store = InMemoryEventStore()
        self.commands = command_desk(store, observer=self.observer)
        self.queries = query_desk(mirror_of(store), observer=self.observer)

    async def _reply(self, _inbox: str, _answer: bytes) -> None:
        return

    async def command(self, command: CommandBase, trace_parent: str = "") -> None:
        await handle_command(
            self.commands, Envelope(command.model_dump_json().encode(), trace_parent)
        )

    def step(self, perform: Callable[[Loaded[str]], Awaitable[str]]) -> Awaitable[str]:
        return observed(self.observer, "make_tea", perform)(Loaded(SUBJECT, "state"))


async def done(loaded: Loaded[str]) -> str:
    return loaded.state


async def failing(_loaded: Loaded[str]) -> str:
    raise Unavailable("no store answers")


async def test_a_command_and_the_steps_that_follow_it_belong_to_its_callers_trace() -> None:
    spans = RecordedSpans()
    world = World(spans)
    with spans.tracer.start_as_current_span("caller") as caller:
        parent = trace_parent_of(caller)
    await world.command(CREATE, parent)
    await world.step(done)

    command = "controller command create_scope"
    assert spans.parents() == {
        "caller": None,
        command: "caller",
        "controller step make_tea": command,
    }


async def test_steps_after_a_command_that_is_not_traced_are_not_traced() -> None:
    spans = RecordedSpans()
    world = World(spans)
    with spans.tracer.start_as_current_span("caller") as caller:
        parent = trace_parent_of(caller)
    await world.command(CREATE, parent)
    await world.command(CREATE.model_copy(update={"command_id": "c2"}))
    await world.step(done)

    assert spans.named("controller step make_tea") == []


async def test_a_query_belongs_to_its_callers_trace() -> None:
    spans = RecordedSpans()
    with spans.tracer.start_as_current_span("caller") as caller:
        parent = trace_parent_of(caller)
    await answer_query(World(spans).queries, "list_scopes", Envelope(b"{}", parent))

    assert spans.parents()["controller query list_scopes"] == "caller"


async def test_what_is_not_traced_makes_no_span() -> None:
    world = World()
    await world.command(CREATE)
    await answer_query(world.queries, "list_scopes", Envelope(b"{}"))
    await world.step(done)

    assert world.metrics.commands["create_scope", "accepted"] == 1


async def test_commands_and_queries_are_counted_by_kind_and_outcome() -> None:
    world = World()
    await world.command(CREATE)
    await world.command(CREATE.model_copy(update={"command_id": "c2"}))
    await handle_command(world.commands, Envelope(b"no command"))
    await answer_query(world.queries, "list_scopes", Envelope(b"{}"))
    await answer_query(world.queries, "list_scopes", Envelope(b"nonsense"))

    assert dict(world.metrics.commands) == {
        ("create_scope", "accepted"): 1,
        ("create_scope", "rejected"): 1,
        ("malformed", "rejected"): 1,
    }
    assert dict(world.metrics.queries) == {
        ("list_scopes", "answered"): 1,
        ("list_scopes", "invalid-request"): 1,
    }


async def test_steps_are_counted_by_outcome() -> None:
    world = World()
    assert await world.step(done) == "state"
    with pytest.raises(Unavailable):
        await world.step(failing)

    assert dict(world.metrics.steps) == {("make_tea", "done"): 1, ("make_tea", "failed"): 1}


def test_the_traces_remembered_are_bounded_and_the_oldest_go_first() -> None:
    traces = CommandTraces()
    for number in range(REMEMBERED_MAX + 1):
        traces.remember(f"subject {number}", "parent")

    assert traces.of("subject 0") == ""
    assert traces.of(f"subject {REMEMBERED_MAX}") == "parent"
