"""Controllers, segment stores and a NATS server in virtual time.

A `SimController` is what the controller's wiring builds: its repositories, its mirror, its command
desk, its runners with the steps of its workflows, on the real adapters; only the connection is
simulated (`simbus`). It can be killed at any await, stand still, and be replaced. The `World` sees
everything that is stored anywhere and tells it to a `Referee`. In a world with `timers` there are
transactions: controllers answer what is asked about them, and end those that nobody does.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from anabranch.common.contracts.commands import (
    COMMANDS,
    Command,
    OperationState,
)
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import Corrupt
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.message import KIND_EVENTS, decode_message, is_void
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, SeededIds
from anabranch.common.workflow.containment import Contained
from anabranch.controller.domain.application import APPLICATION
from anabranch.controller.domain.kinds import (
    APPLICATIONS,
    GROUPS,
    SCOPES,
    STREAMS,
    TABLES,
    TRANSACTIONS,
    Kind,
    kind_of,
    nothing_seen,
)
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.ports import SegmentStores
from anabranch.controller.projections.mirror import Known
from anabranch.controller.projections.watermark_log import WatermarkLog
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.repositories import Repositories
from kit.control_referee import Referee
from kit.fake_timers import InMemoryTimers
from kit.fake_writer_times import InMemoryWriterTimes, SeenTimes
from kit.rng import Random
from kit.sim_controller import CONTAINER_COUNT, Handled, SimController
from kit.sim_segments import SimSegments
from kit.simbus import SimServer, Stored

Clocks = Callable[[], Clock]
Timers = InMemoryTimers
KILLED = "controllers killed"
PAUSED = "controllers that stood still"
REJECTED_FIRST = "commands rejected, and accepted at a later delivery"


class World:
    """Everything outside of the controllers, and the view of somebody who sees it all."""

    def __init__(
        self, rng: Random, clock: Clock, clocks: Clocks | None = None, timers: Timers | None = None
    ) -> None:
        self.rng = rng
        self.clock = clock
        self.timers = timers
        self.trims = False
        """Whether controllers delete events that two snapshots have made superfluous."""
        self.retention_period_s: float | None = None
        """How often controllers apply retention policies; None: never."""
        self.watermark_period_s = 5.0
        self.writer_times: InMemoryWriterTimes | None = None
        """What writers note, of which controllers make watermarks; None: nothing."""
        self.watermark_log: Callable[[SegmentStores, IdSource, SeenTimes], WatermarkLog] = (
            lambda stores, ids, _seen: WatermarkLog(stores, ids)
        )
        self.a_clock: Clocks = clocks if clocks is not None else lambda: clock
        """What a controller goes by."""
        self.counts: Counter[str] = Counter()
        self.observer = Observer()
        self.server = SimServer(rng, self.counts)
        self.sent: dict[str, Command] = {}
        self.handled: list[Handled] = []
        self.controllers: list[SimController] = []
        self.expected_failures: tuple[type[BaseException], ...] = ()
        self.expected_defects: tuple[type[BaseException], ...] = ()
        self.wrong: list[str] = []
        self.truth: dict[str, Known] = {}
        """Every aggregate folded at its head, by subject."""
        self.transactions: dict[str, Loaded[Transaction]] = {}
        """The same of transactions."""
        self.segments = SimSegments(clock, CONTAINER_COUNT)
        self.referee = Referee(self.segments, self.sent, clock)
        self.segments.on_performed.append(self.referee.performed)
        self.server.respond = self.segments.respond
        self.server.on_stored.append(self._on_stored)
        self.server.queue.on_put.append(self._on_put)
        self.ended: dict[str, dict[str, int]] = {}
        """Operations that have ended → the revisions of all aggregates when they did."""
        self.begun: dict[str, list[Handled]] = {}
        """The deliveries that some controller has taken, by the command's id."""
        self.queued: set[str] = set()
        """Ids of the commands that the queue has taken."""
        self._repositories = Repositories(InMemoryEventStore(), SeededIds(0))
        self._judged: Mapping[str, Callable[[str, Any], None]] = {
            SCOPES.name: self.referee.scope_event,
            STREAMS.name: self.referee.stream_event,
            GROUPS.name: self.referee.groups.event,
            TABLES.name: self.referee.tables.event,
        }
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

    def on_defect(self, found: Contained, error: BaseException) -> None:
        """A controller contained a defect; none is expected but those that were planted."""
        while error.__cause__ is not None:
            error = error.__cause__
        if not isinstance(error, self.expected_defects):
            self.wrong.append(f"a defect in the {found.part} of {found.subject}: {found.error}")

    # --- the truth ------------------------------------------------------------------------------

    def _on_put(self, body: bytes) -> None:
        self.queued.add(COMMANDS.validate_json(body).command_id)

    def _on_stored(self, _shard: int, sequence: int, stored: Stored) -> None:
        subject = stored.subject
        message, kind = (
            decode_message(subject, sequence, stored.headers, stored.body),
            kind_of(subject),
        )
        try:
            if kind is TRANSACTIONS or kind is APPLICATIONS:
                self._on_transaction(message)
            elif kind is not None:
                self._on_aggregate(kind, message)
            self._note_ends(subject)
        except (AssertionError, Corrupt) as error:
            self.wrong.append(f"{subject} has been broken by its message {sequence}: {error!r}")

    def _on_aggregate(self, kind: Kind[Any, Any], message: EventMessage) -> None:
        subject, aggregate = message.subject, kind.aggregate
        known = self.truth.get(subject) or Loaded(subject, aggregate.initial)
        self.truth[subject] = self._repositories[kind].fold(known, message)
        if message.kind == KIND_EVENTS and not is_void(message, known.revision):
            for event in aggregate.events.validate_json(message.body):
                self._judged[kind.name](subject, event)
        if kind is not SCOPES:
            self._compare_running(subject)

    def _on_transaction(self, message: EventMessage) -> None:
        subject, referee = message.subject, self.referee.transactions
        is_change = message.kind == KIND_EVENTS
        if subject.split(".")[3] == "txn":
            known = self.transactions.get(subject) or Loaded(subject, Transaction())
            self.transactions[subject] = self._repositories[TRANSACTIONS].fold(known, message)
            is_change = is_change and not is_void(message, known.revision)
            for event in TRANSACTION.events.validate_json(message.body) if is_change else ():
                referee.stored(subject, message.sequence, event)
            return
        for claimed in APPLICATION.events.validate_json(message.body) if is_change else ():
            referee.claimed(subject, message.sequence, claimed)

    def _note_ends(self, subject: str) -> None:
        known = self.truth.get(subject)
        ended = {
            operation.operation
            for operation in (known.state.operations if known is not None else ())
            if operation.state is not OperationState.RUNNING
        }
        for operation in ended - self.ended.keys():
            self.ended[operation] = {name: loaded.revision for name, loaded in self.truth.items()}

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
        return (
            self.server.queue.is_empty
            and not any(map(_has_work, self.truth.values()))
            and all(seen.has_ended for seen in self.referee.transactions.seen.values())
            and not any(any(one.mirror.transactions.all()) for one in self.controllers)
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
            was_accepted = handled.was_accepted_before or handled.has_accepted
            if handled.answer == "rejected" and was_accepted:
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
            if mirror.known(subject) != loaded:
                self.wrong.append(f"{who} is wrong about {subject}")


def _has_work(loaded: Known) -> bool:
    kind = kind_of(loaded.subject)
    return kind is not None and kind.next_step(loaded.state, nothing_seen) is not None
