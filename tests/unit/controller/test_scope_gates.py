"""Streams are created and scopes deleted by controllers that sleep at any step.

The listing of the mirror is deaf here, so that the gate alone keeps a scope that has streams. Every
store call waits a random while before and after it happens; two controllers run every workflow.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from anabranch.common.contracts import subjects
from anabranch.common.contracts.commands import (
    Command,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    SealStream,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.place import Part
from anabranch.common.errors import MembershipEnded
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage, Gate, NewMessage
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.runner import StepFailed, Workflow, run_to_rest
from anabranch.controller.domain.kinds import SCOPES, STREAMS
from anabranch.controller.domain.scope.state import ScopeStatus
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.state import next_step
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.workflows import create_stream, delete_scope, delete_stream, seal_stream
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.repositories import Repositories
from kit.desks import DAY_MS, command_desk
from kit.fake_stores import FakeSegmentStores
from kit.fed_mirror import fed_mirror
from kit.rng import seeded
from kit.thorough import one_in

SCOPE_NAME = ScopeName("s")
SCOPE_SUBJECT = subjects.scope_events(SCOPE_NAME)
REFS = [StreamRef(SCOPE_NAME, StreamName(name)) for name in "xyz"]
ALL_STEPS = {**create_stream.STEPS, **seal_stream.STEPS, **delete_stream.STEPS}
SEEDS = 72 // one_in(3)
PAUSE_TURNS_MAX = 12

S = TypeVar("S")
E = TypeVar("E")
K = TypeVar("K", bound=str)


class SleepyStore(InMemoryEventStore):
    """Waits before and after every call, some turns of the loop, as the seed says."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = seeded(seed)
        self.awake = False

    async def nap(self) -> None:
        if not self.awake:
            for _ in range(self._random.randrange(PAUSE_TURNS_MAX)):
                await asyncio.sleep(0)

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        await self.nap()
        try:
            return await super().append(subject, expected_sequence, message, gate=gate)
        finally:
            await self.nap()

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        await self.nap()
        found = await super().load(subject, after_sequence)
        await self.nap()
        return found

    async def scan(
        self, shard: int, pattern: str, after_sequence: int = 0
    ) -> AsyncIterator[EventMessage]:
        await self.nap()
        found = [one async for one in super().scan(shard, pattern, after_sequence)]
        await self.nap()
        for one in found:
            yield one


class Deaf:
    """A listing that knows of no stream."""

    async def live_parts(self, scope: ScopeName, incarnation: int) -> Mapping[Part, Sequence[str]]:
        return {}

    def stream(self, ref: StreamRef) -> None:
        return None

    async def stream_at_head(self, ref: StreamRef) -> None:
        return None

    async def group_at_head(self, ref: GroupRef) -> None:
        return None


class NoQueue:
    """Takes no command."""

    async def post(self, command: Command) -> None:
        raise AssertionError(f"nobody posts {command}")


class World:
    def __init__(self, seed: int) -> None:
        self.store = SleepyStore(seed)
        repositories = Repositories(self.store, SeededIds(1))
        self.scopes, self.streams = repositories[SCOPES], repositories[STREAMS]
        self.gates = Gates(self.store, SeededIds(3))
        self.segments = FakeSegmentStores()
        chunks = HistoryChunks(self.store, SeededIds(4))
        histories = Histories(chunks)
        deaf = Deaf()
        context = WorkContext(
            stores=self.segments,
            repositories=repositories,
            streams=deaf,
            groups=deaf,
            listing=fed_mirror(self.store),
            histories=histories,
            outcomes=OutcomeHistory(chunks),
            gates=self.gates,
            commands=NoQueue(),
            clock=SystemClock(),
            writer_times=None,
            outcomes_kept_ms=DAY_MS,
        )
        self.desk = command_desk(self.store, repositories=repositories, histories=histories)
        self.scope_workflow = Workflow(
            self.scopes,
            scope_next_step,
            {step: partial(do, context) for step, do in delete_scope.STEPS.items()},
        )
        self.stream_workflow = Workflow(
            self.streams,
            next_step,
            {step: partial(do, context) for step, do in ALL_STEPS.items()},
        )

    async def command(self, command: Command) -> None:
        await handle_command(self.desk, Envelope(command.model_dump_json().encode()))

    async def work(self) -> None:
        """One controller's runners, for as long as the commands take, and some more."""
        async with asyncio.TaskGroup() as group:
            nap = self.store.nap
            group.create_task(_persist(self.scope_workflow, SCOPE_SUBJECT, nap))
            for ref in REFS:
                subject = subjects.stream_events(ref)
                group.create_task(_persist(self.stream_workflow, subject, nap))

    async def rest(self) -> None:
        """Finish all workflows, without any sleep."""
        self.store.awake = True
        for ref in REFS:
            await run_to_rest(self.stream_workflow, subjects.stream_events(ref))
        await run_to_rest(self.scope_workflow, SCOPE_SUBJECT)

    async def live(self) -> list[str]:
        loaded = [await self.streams.load(subjects.stream_events(ref)) for ref in REFS]
        return [ref.stream for ref, one in zip(REFS, loaded, strict=True) if one.state.is_live]

    async def check(self) -> None:
        scope = (await self.scopes.load(SCOPE_SUBJECT)).state
        pattern = subjects.scope_members(SCOPE_NAME, 1)
        members = [subjects.member_name(one) for one in await self.gates.members(pattern)]
        assert members == await self.live(), "who lives is a member, and nobody else"
        if scope.status is ScopeStatus.DELETED:
            assert members == [], "a scope that has streams is not deleted"
            assert self.segments.live() == [], "no segment without its stream"


async def _nobody(inbox: str, answer: bytes) -> None:
    raise AssertionError("nobody asked for an answer")


async def _persist(
    workflow: Workflow[S, E, K], subject: str, nap: Callable[[], Awaitable[None]]
) -> None:
    for _ in range(24):
        await nap()
        with suppress(StepFailed):  # the runner pauses and begins again
            await run_to_rest(workflow, subject)
        await nap()


def asked(
    kind: type[CreateStream] | type[SealStream] | type[DeleteStream], name: str, ref: StreamRef
) -> CreateStream | SealStream | DeleteStream:
    return kind(command_id=name + ref.stream, scope=ref.scope, stream=ref.stream)


async def life(world: World, ref: StreamRef, *, dies: bool) -> None:
    await world.command(asked(CreateStream, "c", ref))
    for attempt in range(6 if dies else 0):
        await world.command(asked(SealStream, f"s{attempt}", ref))
        await world.command(asked(DeleteStream, f"d{attempt}", ref))


async def deletions(world: World, first: int) -> None:
    """The first one comes after so many naps, before, while or after the streams are created."""
    for attempt in range(6):
        for _ in range(attempt * 4 or first):
            await world.store.nap()
        await world.command(DeleteScope(command_id=f"del{attempt}", scope=SCOPE_NAME))


async def test_no_order_of_steps_deletes_a_scope_under_a_stream() -> None:
    ends = set()
    for seed in range(SEEDS):
        world = World(seed)
        await world.command(CreateScope(command_id="scope", scope=SCOPE_NAME))
        async with asyncio.TaskGroup() as group:
            for number, ref in enumerate(REFS):
                group.create_task(life(world, ref, dies=bool(seed >> number & 1)))
            group.create_task(deletions(world, seed % 24))
            for _ in range(2):
                group.create_task(world.work())

        await world.rest()

        await world.check()
        status = (await world.scopes.load(SCOPE_SUBJECT)).state.status
        ends.add(status)
        await _is_usable(world)
    assert ends == {ScopeStatus.ACTIVE, ScopeStatus.DELETED}, "both ends are reached"


async def _is_usable(world: World) -> None:
    """A scope that stays takes streams, and is deleted once it is empty: nothing is stuck."""
    if (await world.scopes.load(SCOPE_SUBJECT)).state.status is ScopeStatus.DELETED:
        return
    for ref in REFS:
        await world.command(asked(CreateStream, "again", ref))
        await world.rest()
        created = (await world.streams.load(subjects.stream_events(ref))).state
        assert created.status in (StreamState.ACTIVE, StreamState.SEALED)
        await world.command(asked(SealStream, "seal", ref))
        await world.rest()
        await world.command(asked(DeleteStream, "end", ref))
        await world.rest()
    await world.check()
    await world.command(DeleteScope(command_id="last", scope=SCOPE_NAME))
    await world.rest()
    assert (await world.scopes.load(SCOPE_SUBJECT)).state.status is ScopeStatus.DELETED


async def test_a_creation_that_failed_cannot_be_joined_by_a_controller_that_slept() -> None:
    world = World(0)
    world.store.awake = True
    x, y, z = REFS
    await world.command(CreateScope(command_id="scope", scope=SCOPE_NAME))
    await world.command(asked(CreateStream, "c", y))
    await world.rest()
    await world.command(asked(CreateStream, "c", x))
    await world.command(DeleteScope(command_id="delete", scope=SCOPE_NAME))
    await run_to_rest(world.stream_workflow, subjects.stream_events(x))  # the scope is closing
    await world.rest()
    await world.command(asked(CreateStream, "c", z))
    await world.rest()
    assert await world.live() == ["y", "z"]

    gate = subjects.scope_gate(SCOPE_NAME, 1)
    with pytest.raises(MembershipEnded):
        await world.gates.join(gate, subjects.scope_member(SCOPE_NAME, 1, x.stream, 1))

    await world.check()
