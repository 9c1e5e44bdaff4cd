"""Controllers, segment stores and a NATS server in virtual time.

A `SimController` is what the controller's wiring builds: its repositories, its mirror, its command
desk, its runners with the steps of its workflows, on the real adapters; only the connection is
simulated (`simbus`). It can be killed at any await, stand still, and be replaced. The `World` sees
everything that is stored anywhere and tells it to a `Referee`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from nats.aio.client import Client

from anabranch.common.contracts.commands import (
    ANSWERS,
    COMMANDS,
    Command,
    OperationState,
)
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import Corrupt, Unavailable
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.message import KIND_EVENTS, decode_message
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.runner import Runner
from anabranch.controller.adapters.command_queue import TRY_AGAIN_S
from anabranch.controller.adapters.command_sender import NatsCommandSender
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import SCOPE, Scope
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.handlers.commands import CommandDesk, handle_command
from anabranch.controller.handlers.desk import QueryDesk
from anabranch.controller.ports import TryAgain
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.mirror import Known, Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.wiring.serving import CATCH_UP_PAUSE_S, SWEEP_S
from anabranch.controller.wiring.workflows import (
    group_workflow,
    scope_workflow,
    stream_workflow,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer
from kit.control_referee import Referee
from kit.rng import Random
from kit.sim_segments import SimSegments
from kit.simbus import SimClient, SimServer, Stored, sim_event_store
from kit.simlink import Link
from kit.simqueue import Queued, SimQueue

CONTAINER_COUNT = 4
PULLERS = 4
KILLED = "controllers killed"
PAUSED = "controllers that stood still"
REJECTED_FIRST = "commands rejected, and accepted at a later delivery"


@dataclass(slots=True)
class Handled:
    """How one delivery of a command was answered, if it was.

    `was_accepted_before`: an earlier delivery's decision is stored; `is_first`: there was none.
    """

    command_id: str
    was_accepted_before: bool
    is_first: bool
    answer: str = ""
    is_accepted: bool = False


class SimController:
    """One controller process. `failure`: what ended it, if it ended by itself."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.failure: BaseException | None = None
        self.is_caught_up = False
        self.owned = frozenset(range(SHARD_COUNT))
        """Its buckets. By default every controller believes to own all."""
        self.link = Link(world.rng, world.counts)
        self.link.on_resume = world.server.queue.announce
        self.client = SimClient(world.server, self.link, world.rng)
        self._task: asyncio.Task[None] | None = None
        self._handling: dict[str, Handled] = {}
        client, clock, observer = cast(Client, self.client), world.clock, world.observer
        self.store = sim_event_store(self.client, clock)
        ids = SeededIds(world.rng.getrandbits(64))
        scopes = Repository(self.store, SCOPE, ids, self._known_scope)
        streams = Repository(self.store, STREAM, ids, self._known_stream)
        self.listener = FoldListener(self._wake)
        groups = Repository(self.store, GROUP, ids, self._known_group)
        self.mirror = Mirror(self.store, scopes, streams, groups, self.listener)
        histories = Histories(HistoryChunks(self.store, ids))
        context = WorkContext(
            NatsSegmentStores(client, CONTAINER_COUNT),
            scopes,
            self.mirror,
            histories,
            NatsCommandSender(client),
            Gates(self.store, ids),
            self.mirror,
        )
        self.desk = CommandDesk(
            scopes, streams, groups, clock, self._reply, observer, histories=histories
        )
        self.query_desk = QueryDesk(self.mirror, lambda _: (), tuple, observer)
        scope_work = scope_workflow(scopes, context, observer)
        stream_work = stream_workflow(streams, context, observer)
        group_work = group_workflow(groups, context, observer)
        self.scope_runner = Runner(scope_work, clock, world.rng, self._owns)
        self.stream_runner = Runner(stream_work, clock, world.rng, self._owns)
        self.group_runner = Runner(group_work, clock, world.rng, self._owns)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run in the group until killed."""
        self._task = group.create_task(self._live())

    def own(self, buckets: frozenset[int]) -> None:
        """From now on it works on these, as when leases were given and lost."""
        self.owned = buckets
        self.scope_runner.let_go()
        self.stream_runner.let_go()
        self.group_runner.let_go()
        self._wake_all()

    def kill(self) -> None:
        """End it wherever it is; nothing more leaves it."""
        self.link.cut()
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.mirror.serve())
                group.create_task(self.scope_runner.serve())
                group.create_task(self.stream_runner.serve())
                group.create_task(self.group_runner.serve())
                await self._catch_up()
                self.listener.go_live()
                self.is_caught_up = True
                group.create_task(self._sweep())
                for _ in range(PULLERS):
                    group.create_task(self._pull())
        except BaseExceptionGroup as failures:
            self.link.cut()
            self.failure = first_of(failures)
            self.world.on_failure(self, self.failure)

    async def _catch_up(self) -> None:
        while True:
            try:
                await self.mirror.reach_heads()
                return
            except Unavailable:
                await self.world.clock.sleep(CATCH_UP_PAUSE_S)

    async def _sweep(self) -> None:
        while True:
            self._wake_all()
            await self.world.clock.sleep(SWEEP_S)

    def _wake_all(self) -> None:
        for subject in self.mirror.with_work():
            self._wake(subject)

    def _known_scope(self, subject: str) -> Loaded[Scope] | None:
        return self.mirror.known_scope(subject)

    def _known_stream(self, subject: str) -> Loaded[Stream] | None:
        return self.mirror.known_stream(subject)

    def _known_group(self, subject: str) -> Loaded[ReaderGroup] | None:
        return self.mirror.known_group(subject)

    def _owns(self, subject: str) -> bool:
        return shard_of_subject(subject) in self.owned

    def _wake(self, subject: str) -> None:
        match subject.split(".")[3]:
            case "scope":
                self.scope_runner.wake(subject)
            case "stream":
                self.stream_runner.wake(subject)
            case _:
                self.group_runner.wake(subject)

    async def _pull(self) -> None:
        """Take commands one after another, as `command_broker` does."""
        queue = self.world.server.queue
        while True:
            await self._handle(queue, *await queue.take(lambda: not self.link.is_paused))

    async def _handle(self, queue: SimQueue, queued: Queued, delivery: int) -> None:
        command_id = COMMANDS.validate_json(queued.body).command_id
        accepted = self.world.referee.accepted
        handled = Handled(command_id, command_id in accepted, command_id not in self.world.begun)
        self.world.begun.add(command_id)
        self._handling[command_id] = handled
        try:
            await handle_command(self.desk, queued.body)
        except TryAgain:
            self.link.post(partial(queue.nak, queued, delivery, TRY_AGAIN_S))
        except AssertionError as defect:
            self.world.wrong.append(f"a decision broke an invariant: {defect!r}")
            self.link.post(partial(queue.nak, queued, delivery, TRY_AGAIN_S))
        else:
            handled.is_accepted = command_id in accepted
            self.world.handled.append(handled)
            self.link.post(partial(queue.ack, queued, delivery))

    async def _reply(self, inbox: str, answer: bytes) -> None:
        command_id = inbox.rsplit(".", 1)[1]
        if command_id in self._handling:
            self._handling[command_id].answer = ANSWERS.validate_json(answer).kind
        await self.client.publish(inbox, answer)


class World:
    """Everything outside of the controllers, and the view of somebody who sees it all."""

    def __init__(self, rng: Random, clock: Clock) -> None:
        self.rng = rng
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.observer = Observer()
        self.server = SimServer(rng, self.counts)
        self.sent: dict[str, Command] = {}
        self.handled: list[Handled] = []
        self.controllers: list[SimController] = []
        self.expected_failures: tuple[type[BaseException], ...] = ()
        self.wrong: list[str] = []
        self.truth: dict[str, Known] = {}
        """Every aggregate folded at its head, by subject."""
        self.segments = SimSegments(clock)
        self.referee = Referee(self.segments.known, self.sent)
        self.segments.on_performed.append(self.referee.performed)
        self.server.respond = self.segments.respond
        self.server.on_stored.append(self._on_stored)
        self.server.queue.on_put.append(self._on_put)
        self.begun: set[str] = set()
        """Ids of the commands that some controller has taken."""
        self.queued: set[str] = set()
        """Ids of the commands that the queue has taken."""
        nothing, ids = InMemoryEventStore(), SeededIds(0)
        self._scopes = Repository(nothing, SCOPE, ids)
        self._streams = Repository(nothing, STREAM, ids)
        self._groups = Repository(nothing, GROUP, ids)
        self._numbers = 0

    def new_controller(self, group: asyncio.TaskGroup) -> SimController:
        """One more, started."""
        self._numbers += 1
        controller = SimController(self, self._numbers)
        self.controllers.append(controller)
        controller.start(group)
        return controller

    def kill(self, controller: SimController) -> None:
        """As SIGKILL does."""
        self.counts[KILLED] += 1
        self.controllers.remove(controller)
        controller.kill()

    def on_failure(self, controller: SimController, failure: BaseException) -> None:
        """A controller ended by itself."""
        if not isinstance(failure, self.expected_failures):
            self.wrong.append(f"controller {controller.number} failed: {failure!r}")
        if controller in self.controllers:
            self.controllers.remove(controller)

    # --- the truth ------------------------------------------------------------------------------

    def _on_put(self, body: bytes) -> None:
        self.queued.add(COMMANDS.validate_json(body).command_id)

    def _on_stored(self, _shard: int, sequence: int, stored: Stored) -> None:
        subject, kind = stored.subject, stored.subject.split(".")[3]
        message = decode_message(subject, sequence, stored.headers, stored.body)
        try:
            if kind == "scope":
                scope = cast(Loaded[Scope], self.truth.get(subject) or Loaded(subject, Scope()))
                self.truth[subject] = self._scopes.fold(scope, message)
                if message.kind == KIND_EVENTS:
                    for event in SCOPE.events.validate_json(message.body):
                        self.referee.scope_event(subject.split(".")[4], event)
            elif kind == "stream":
                stream = cast(Loaded[Stream], self.truth.get(subject) or Loaded(subject, Stream()))
                self.truth[subject] = self._streams.fold(stream, message)
                if message.kind == KIND_EVENTS:
                    for change in STREAM.events.validate_json(message.body):
                        self.referee.stream_event(subject, change)
                self._compare_running(subject)
            elif kind == "rg":
                group = self.truth.get(subject) or Loaded(subject, ReaderGroup())
                self.truth[subject] = self._groups.fold(cast(Loaded[ReaderGroup], group), message)
                if message.kind == KIND_EVENTS:
                    for happened in GROUP.events.validate_json(message.body):
                        self.referee.groups.event(subject, happened)
                self._compare_running(subject)
        except (AssertionError, Corrupt) as error:
            self.wrong.append(f"{subject} has been broken by its message {sequence}: {error!r}")

    def _compare_running(self, subject: str) -> None:
        operations = self.truth[subject].state.operations
        running = {o.operation for o in operations if o.state is OperationState.RUNNING}
        if running != self.referee.running(subject):
            self.wrong.append(f"{subject}: {running} run, not {self.referee.running(subject)}")

    def stream(self, subject: str) -> Stream:
        """The stream as it is stored now."""
        found = self.truth.get(subject)
        return cast(Stream, found.state) if found is not None else Stream()

    def is_at_rest(self) -> bool:
        """Nothing waits, and nothing is left to do."""
        return self.server.queue.is_empty and not any(
            _has_work(loaded.state) for loaded in self.truth.values()
        )

    def is_seen(self) -> bool:
        """Every controller that runs has folded all that is stored."""
        return all(
            controller.mirror.reached()[shard] >= len(self.server.logs[shard])
            for controller in self.controllers
            for shard in range(SHARD_COUNT)
        )

    async def wait_until(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        """Whether it came true in that (virtual) time."""
        deadline = self.clock.monotonic() + seconds_max
        while not condition():
            if self.wrong or self.referee.wrong or self.clock.monotonic() > deadline:
                return condition()
            await self.clock.sleep(0.5)
        return True

    # --- judging --------------------------------------------------------------------------------

    def judge(self) -> None:
        """Everything that must hold once all is at rest. Raises AssertionError."""
        assert not self.referee.wrong, self.referee.wrong
        assert not self.wrong, self.wrong
        self.referee.at_rest()
        self._judge_commands()
        for controller in self.controllers:
            self._judge_mirror(controller)
        assert not self.wrong, self.wrong
        assert not self.referee.wrong, self.referee.wrong

    def _judge_commands(self) -> None:
        operations = {
            operation.operation: operation.state
            for loaded in self.truth.values()
            for operation in loaded.state.operations
        }
        answered = {handled.command_id for handled in self.handled}
        for command_id in sorted(self.queued):
            accepted = command_id in self.referee.accepted
            if command_id not in answered and not accepted:
                self.wrong.append(f"{command_id} was lost")
            if accepted and operations.get(command_id) in (None, OperationState.RUNNING):
                self.wrong.append(f"{command_id} was accepted and has not ended")
        for handled in self.handled:
            accepted = handled.command_id in self.referee.accepted
            if handled.answer == "accepted" and not accepted:
                self.wrong.append(f"{handled.command_id} is accepted by word alone")
            by_itself = handled.is_first and handled.is_accepted
            if handled.answer == "rejected" and (handled.was_accepted_before or by_itself):
                self.wrong.append(f"{handled.command_id} is rejected, and was accepted")
            if handled.answer == "rejected" and accepted:
                self.counts[REJECTED_FIRST] += 1

    def _judge_mirror(self, controller: SimController) -> None:
        mirror, who = controller.mirror, f"the mirror of controller {controller.number}"
        if mirror.damaged():
            self.wrong.append(f"{who} has {mirror.damaged()}")
        for shard in range(SHARD_COUNT):
            if mirror._reached[shard] < len(self.server.logs[shard]):
                self.wrong.append(f"{who} has not reached the head of shard {shard}")
        for subject, loaded in self.truth.items():
            assert shard_of_subject(subject) < SHARD_COUNT
            if mirror.aggregate(subject) != loaded:
                self.wrong.append(f"{who} is wrong about {subject}")


def first_of(failure: BaseException) -> BaseException:
    """What failed first in a group of failures, however deep."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _has_work(state: Scope | Stream | ReaderGroup) -> bool:
    match state:
        case Scope():
            return scope_next_step(state) is not None
        case Stream():
            return stream_next_step(state) is not None
        case ReaderGroup():
            return group_next_step(state) is not None
