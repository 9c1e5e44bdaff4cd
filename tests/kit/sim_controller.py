"""A controller in a simulated world: the real parts, on a simulated connection.

It can be killed at any await, stand still, and be replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from nats.aio.client import Client

from anabranch.common.contracts.commands import (
    ANSWERS,
    COMMANDS,
    Rejected,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import DeadlinePassed, StreamRewound, Unavailable
from anabranch.common.eventsourcing.beats import BEAT_S
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import Containment
from anabranch.controller.adapters.command_queue import TRY_AGAIN_S
from anabranch.controller.adapters.command_sender import NatsCommandSender
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.domain.kinds import APPLICATIONS, STREAMS, TRANSACTIONS
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.desk.transactions import TransactionDesk
from anabranch.controller.periodic.advance_watermarks import Sources, WatermarkAdvancer
from anabranch.controller.periodic.expire_transactions import Known as Transactions
from anabranch.controller.periodic.expire_transactions import TransactionExpirer
from anabranch.controller.periodic.job import Job, repeat
from anabranch.controller.periodic.purge_transactions import TransactionPurger
from anabranch.controller.periodic.retain_streams import StreamRetainer
from anabranch.controller.ports import TryAgain
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.projections.tail_cut import TailCuts
from anabranch.controller.wiring.runners import build_runners
from anabranch.controller.wiring.serving import CATCH_UP_PAUSE_S, SWEEP_S
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.repositories import Repositories
from kit.desks import DAY_MS, query_desk
from kit.fake_writer_times import SeenTimes
from kit.simbus import SimClient, sim_event_store
from kit.simlink import Link
from kit.simqueue import Queued, SimQueue, server_ms

CONTAINER_COUNT = 4
PULLERS = 4
BEAT_WAY_S = 0.02
TRIM_PERIOD_S = 3.0
CLOCK_ERROR_MS = 100
"""More than beats leave in doubt."""
if TYPE_CHECKING:
    from kit.control_world import World


@dataclass(slots=True)
class Handled:
    """How one delivery of a command was answered, if it was.

    `was_accepted_before`: an earlier delivery's decision is stored.
    """

    command_id: str
    was_accepted_before: bool
    until_ms: int = 0
    """Until when somebody waits for it, by the server's clock; 0: for ever."""
    is_late: bool = False
    """The controller could know, when it began, that nobody waits any more."""
    answer: str = ""
    is_accepted: bool = False
    has_accepted: bool = False
    """It was accepted before any other delivery began."""


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
        self._handling: dict[asyncio.Task[Any], Handled] = {}
        """By the task that handles it: two deliveries of a command may be handled side by side."""
        client, observer = cast(Client, self.client), world.observer
        self.clock = clock = world.a_clock()
        self.store_clock = StoreClock()
        self.store = sim_event_store(self.client, clock)
        self.containment = Containment(clock, world.rng, world.on_defect)
        ids = SeededIds(world.rng.getrandbits(64))
        repositories = Repositories(self.store, ids, lambda subject: self.mirror.known(subject))  # noqa: PLW0108
        self.listener = FoldListener(lambda subject: self.runners.wake(subject))  # noqa: PLW0108
        self.mirror = Mirror(
            self.store, repositories, on_fold=self.listener, containment=self.containment
        )
        histories = Histories(chunks := HistoryChunks(self.store, ids))
        context = WorkContext(
            stores=NatsSegmentStores(client, CONTAINER_COUNT),
            repositories=repositories,
            streams=self.mirror,
            groups=self.mirror,
            listing=self.mirror,
            histories=histories,
            outcomes=OutcomeHistory(chunks),
            gates=Gates(self.store, ids),
            commands=NatsCommandSender(client),
            clock=clock,
            writer_times=world.writer_times,
            outcomes_kept_ms=DAY_MS,
        )
        self.desk = CommandDesk(
            repositories=repositories,
            histories=histories,
            require_not_parked=self.containment.require_not_parked,
            clock=clock,
            store_clock=self.store_clock,
            reply=self._reply,
            observer=observer,
        )
        self.query_desk = self._query_desk(context, ids)
        self._build_jobs(repositories[TRANSACTIONS])
        self.retainer = self._retainer(context)
        self.advancer = self._advancer(context, ids)
        self.runners = build_runners(
            context, observer, rng=world.rng, owns=self._owns, containment=self.containment
        )

    def _build_jobs(self, transactions: Repository[Transaction, TransactionEvent]) -> None:
        known = self.mirror.transactions
        self.expirer = TransactionExpirer(
            Transactions(known, self.mirror, lambda: self.owned),
            transactions,
            self.world.timers,
            clock=self.clock,
            on_expired=lambda _late_s: None,
            containment=self.containment,
        )
        self.purger = TransactionPurger(
            known.slots,
            self.mirror.reached,
            self.store.purge,
            lambda b: b in self.owned,
            self.clock,
            move=Gates(self.store, SeededIds(self.world.rng.getrandbits(64))).move,
            containment=self.containment,
        )

    def _retainer(self, context: WorkContext) -> StreamRetainer:
        return StreamRetainer(
            self.mirror.retained_streams,
            TailCuts(self.mirror, context.stores.segment_lengths).of,
            context.histories,
            context.repositories[STREAMS],
            self._owns,
            now_ms=lambda: self.store_clock.store_ms(self.clock.now_ms()),
            clock=self.clock,
            period_s=self.world.retention_period_s or 0.0,
            containment=self.containment,
        )

    def _advancer(self, context: WorkContext, ids: SeededIds) -> WatermarkAdvancer | None:
        if self.world.writer_times is None:
            return None
        seen = SeenTimes(self.world.writer_times, self.clock)
        return WatermarkAdvancer(
            Sources(seen, self.mirror, context.histories, lambda: self.owned, SHARD_COUNT),
            self.world.watermark_log(context.stores, ids, seen),
            clock=self.clock,
            period_s=self.world.watermark_period_s,
            containment=self.containment,
        )

    def _query_desk(self, context: WorkContext, ids: SeededIds) -> QueryDesk:
        transactions = TransactionDesk(
            transactions=context.repositories[TRANSACTIONS],
            applications=context.repositories[APPLICATIONS],
            store=self.store,
            gates=context.gates,
            stores=context.stores,
            outcomes=context.outcomes,
            clock=self.clock,
            ids=ids,
        )
        return query_desk(
            self.mirror,
            observer=self.world.observer,
            segment_lengths=context.stores.segment_lengths,
            history=context.histories.of,
            transactions=transactions,
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run in the group until killed."""
        self._task = group.create_task(self._live())

    def own(self, buckets: frozenset[int]) -> None:
        """From now on it works on these, as when leases were given and lost."""
        self.owned = buckets
        self.runners.let_go()
        self.expirer.sweep_soon()
        self._wake_all()

    def kill(self) -> None:
        """End it wherever it is; nothing more leaves it."""
        self.link.cut()
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:

                def keep(job: str, serve: Callable[[], Awaitable[None]]) -> None:
                    group.create_task(self.containment.keep(job, serve, StreamRewound))

                keep("mirror", self.mirror.serve)
                for job, work in self.runners.jobs():
                    keep(job, work)
                await self._catch_up()
                self.listener.go_live()
                self.is_caught_up = True
                group.create_task(self._compare_clocks())
                group.create_task(self._sweep())
                if self.world.timers is not None:
                    for periodic in (self.expirer.job(), self.purger.job()):
                        keep(periodic.name, partial(self._repeat, periodic))
                    if self.world.trims:
                        group.create_task(self._trim())
                if self.world.retention_period_s is not None:
                    retains = self.retainer.job()
                    keep(retains.name, partial(self._repeat, retains))
                if self.advancer is not None:
                    advances = self.advancer.job()
                    keep(advances.name, partial(self._repeat, advances))
                for _ in range(PULLERS):
                    group.create_task(self._pull())
        except BaseExceptionGroup as failures:
            self.link.cut()
            self.failure = first_of(failures)
            self.world.on_failure(self, self.failure)

    async def _trim(self) -> None:
        """As the trimming of events does, but soon."""
        while True:
            await self.world.clock.sleep(TRIM_PERIOD_S)
            for loaded in list(self.mirror.folded()):
                below = loaded.earlier_snapshot_sequence
                if below and self._owns(loaded.subject):
                    with suppress(Unavailable):
                        await self.store.purge(loaded.subject, below)

    async def _repeat(self, job: Job) -> None:
        await repeat(
            job, self.clock, self.world.rng,
            measure=lambda _job, _late_s, _took_s: None, report=lambda _reason: None,
        )  # fmt: skip

    async def _catch_up(self) -> None:
        while True:
            try:
                await self.mirror.reach_heads()
                return
            except Unavailable:
                await self.world.clock.sleep(CATCH_UP_PAUSE_S)

    async def _compare_clocks(self) -> None:
        """As its beats do: each is stored some time after it was sent, and read back later."""
        while True:
            sent_ms = self.clock.now_ms()
            await self.world.clock.sleep(BEAT_WAY_S)
            stored_ms = server_ms()
            await self.world.clock.sleep(BEAT_WAY_S)
            self.store_clock.learn(sent_ms, stored_ms, self.clock.now_ms())
            await self.world.clock.sleep(BEAT_S)

    async def _sweep(self) -> None:
        while True:
            self._wake_all()
            await self.world.clock.sleep(SWEEP_S)

    def _wake_all(self) -> None:
        for subject in self.mirror.with_work():
            self.runners.wake(subject)

    def _owns(self, subject: str) -> bool:
        return shard_of_subject(subject) in self.owned

    async def _pull(self) -> None:
        """Take commands one after another, as `command_broker` does."""
        queue = self.world.server.queue
        while True:
            await self._handle(queue, *await queue.take(lambda: not self.link.is_paused))

    async def _handle(self, queue: SimQueue, queued: Queued, delivery: int) -> None:
        command = COMMANDS.validate_json(queued.body)
        command_id, accepted = command.command_id, self.world.referee.accepted
        deliveries = self.world.begun.setdefault(command_id, [])
        handled = Handled(command_id, command_id in accepted)
        if command.wait_ms:
            handled.until_ms = queued.stored_ms + command.wait_ms
            knows = self.store_clock.here_ms(queued.stored_ms) is not None
            handled.is_late = knows and server_ms() > handled.until_ms + CLOCK_ERROR_MS
        if len(deliveries) == 1:
            deliveries[0].has_accepted = handled.was_accepted_before
        deliveries.append(handled)
        self._handling[_this_task()] = handled
        try:
            await handle_command(self.desk, Envelope(queued.body), stored_ms=queued.stored_ms)
        except TryAgain:
            self.link.post(partial(queue.nak, queued, delivery, TRY_AGAIN_S))
        except AssertionError as defect:
            self.world.wrong.append(f"a decision broke an invariant: {defect!r}")
            self.link.post(partial(queue.nak, queued, delivery, TRY_AGAIN_S))
        else:
            handled.is_accepted = command_id in accepted
            handled.has_accepted |= handled.is_accepted and len(deliveries) == 1
            # An earlier delivery, in time, may be what was accepted meanwhile.
            is_new = handled.is_accepted and not handled.was_accepted_before
            if is_new and all(delivery.is_late for delivery in deliveries):
                self.world.wrong.append(f"{command_id} is accepted, and nobody waits for it")
            self.world.handled.append(handled)
            self.link.post(partial(queue.ack, queued, delivery))

    async def _reply(self, inbox: str, answer: bytes) -> None:
        handled = self._handling[_this_task()]
        told = ANSWERS.validate_json(answer)
        handled.answer = told.kind
        is_refused = isinstance(told, Rejected) and told.error.code == DeadlinePassed.code
        if is_refused and server_ms() < handled.until_ms - CLOCK_ERROR_MS:
            command_id = handled.command_id
            self.world.wrong.append(f"{command_id} is refused, and somebody waits for it")
        await self.client.publish(inbox, answer)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def first_of(failure: BaseException) -> BaseException:
    """What failed first in a group of failures, however deep."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
