"""One bad among good: a defect in the work on one stream, every time, and what it costs the others.

Each seed draws how many controllers and streams there are, and what is broken for one of the
streams: a step of its workflows, the fold of its events, in the mirror or in the aggregate itself,
or the job that aborts its transactions. The same life is lived twice, without the defect and with
it. The other streams must do everything in at most twice the time that it usually takes them. The
broken one must refuse changes by name and go on answering, and once the defect is mended and its
work redriven, everything that was accepted for it ends.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from anabranch.common.contracts import commands, queries
from anabranch.common.contracts.commands import Accepted, OperationState, Rejected
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.stream import fixed
from anabranch.common.workflow.containment import aggregate_name
from anabranch.controller.domain.kinds import STREAMS
from anabranch.controller.domain.stream.state import StreamStep
from anabranch.controller.domain.transaction import decide as transaction_decide
from anabranch.controller.handlers.desk.parked import resume
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.workflows.steps import STEPS
from kit.control_callers import Caller
from kit.control_scenario import REST_S, come_to_rest
from kit.control_world import World
from kit.fake_timers import InMemoryTimers
from kit.rng import seeded
from kit.sim_controller import SimController, first_of
from kit.simbus import simulated_readers
from kit.virtual_time import VirtualClock, run_virtual

SCOPE = ScopeName("s")
LEASE_MS = 2_000
PARKING_S = 90.0
"""Ten tries, and the pauses between them."""
EXPIRY_PAUSES_S = 40.0
SLACK_S = 1.0
"""What a single pause of a step that waits may make of twice nearly nothing."""
DEFECTS = "defects contained"


class Planted(Exception):
    """What nobody expected."""


@dataclass(slots=True)
class Defect:
    """Raised for the stream `ref` while `is_active`."""

    ref: StreamRef
    is_active: bool = False
    raised: int = 0

    def strike(self, subject: str) -> None:
        """Raise, if it is about that stream."""
        if self.is_active and subject == stream_events(self.ref):
            self.raised += 1
            raise Planted(subject)


@contextmanager
def broken_step(defect: Defect) -> Iterator[None]:
    """A step of its scale."""
    step = StreamStep.MAKE_SUCCESSORS
    real = STEPS[STREAMS.name][step]

    async def perform(context: Any, loaded: Loaded[Any]) -> Any:
        defect.strike(loaded.subject)
        return await real(context, loaded)

    with patch.dict(STEPS[STREAMS.name], {step: perform}):
        yield


@contextmanager
def broken_index(defect: Defect) -> Iterator[None]:
    """What the mirror makes of its events."""
    real = Mirror._index

    def index(self: Mirror, kind: Any, change: Any, fold: Fold) -> Any:
        found = real(self, kind, change, fold)
        defect.strike(fold.subject)
        return found

    with patch.object(Mirror, "_index", index):
        yield


@contextmanager
def broken_evolve(defect: Defect) -> Iterator[None]:
    """Its events do not fit its state, wherever it is folded; the world sees the truth."""
    real_state, real_fold = Repository._state_after, Aggregate.fold

    def state_after(self: Repository[Any, Any], loaded: Loaded[Any], message: EventMessage) -> Any:
        if isinstance(self._store, InMemoryEventStore):
            return real_state(self, loaded, message)

        def fold(aggregate: Aggregate[Any, Any], state: Any, found: EventMessage) -> Any:
            defect.strike(found.subject)
            return real_fold(aggregate, state, found)

        with patch.object(Aggregate, "fold", fold):
            return real_state(self, loaded, message)

    with patch.object(Repository, "_state_after", state_after):
        yield


@contextmanager
def broken_expiry(defect: Defect) -> Iterator[None]:
    """The end of its transactions."""
    real = transaction_decide.expire

    def expire(txn: Any, now_ms: int) -> Any:
        if txn.ref is not None:  # else its messages were purged
            defect.strike(stream_events(txn.ref))
        return real(txn, now_ms)

    with patch.object(transaction_decide, "expire", expire):
        yield


KINDS: Mapping[str, Callable[[Defect], Any]] = {
    "step": broken_step,
    "index": broken_index,
    "evolve": broken_evolve,
    "expiry": broken_expiry,
}


def random_defect(seed: int) -> Mapping[str, int]:
    """Both lives of this seed; what was counted. Raises AssertionError if others suffer."""
    kind = seeded(seed).choice(sorted(KINDS))
    with simulated_readers():
        usual, found = (_lived(Life(seed, kind, is_broken=broken)) for broken in (False, True))
    for stream, took_s in usual.took_s.items():
        broken_s = found.took_s[stream]
        assert broken_s <= 2 * took_s + SLACK_S, (
            f"{stream} took {broken_s:.1f} s beside a broken {kind}, and {took_s:.1f} s without"
        )
    return {f"{DEFECTS} ({kind})": found.counts[DEFECTS]}


def _lived(life: "Life") -> "Lived":
    try:
        return run_virtual(life.live())
    except BaseExceptionGroup as failures:
        raise first_of(failures) from failures


@dataclass(slots=True)
class Lived:
    """By good stream, the (virtual) seconds that all it was asked to do took."""

    took_s: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


class Life:
    """One life of a control plane. Everybody asks for the same, with a defect and without."""

    def __init__(self, seed: int, kind: str, *, is_broken: bool) -> None:
        self._rng = seeded(seed)
        self._kind = kind
        self._is_broken = is_broken
        self._lived = Lived()
        names = [StreamName(f"x{number}") for number in range(self._rng.randrange(3, 7))]
        self._refs = [StreamRef(SCOPE, name) for name in names]
        self._controllers = self._rng.randrange(1, 4)
        self._defect = Defect(self._refs[0])
        self._numbers = 0

    async def live(self) -> Lived:
        clock = VirtualClock(asyncio.get_running_loop())
        self._world = world = World(self._rng, clock, timers=InMemoryTimers())
        world.expected_defects = (Planted,)
        with KINDS[self._kind](self._defect):
            async with asyncio.TaskGroup() as group:
                self._start(group)
                bad, *good = self._refs
                await self._ask(commands.CreateScope(command_id=self._id(), scope=SCOPE))
                for ref in self._refs:
                    await self._done(commands.CreateStream(**self._of(ref), config=fixed(2)))
                self._defect.is_active = self._is_broken
                async with asyncio.TaskGroup() as callers:
                    callers.create_task(self._trouble(bad))
                    for ref in good:
                        callers.create_task(self._work_on(ref))
                self._defect.is_active = False
                await self._redrive(bad)
                await come_to_rest(world)
        world.judge()
        if self._is_broken:
            assert self._defect.raised, "the defect was never met"
        self._lived.counts[DEFECTS] = self._defect.raised
        return self._lived

    def _start(self, group: asyncio.TaskGroup) -> None:
        """Some controllers; all own everything, or each its share."""
        shared = self._rng.random() < 0.5
        started = [self._world.new_controller(group) for _ in range(self._controllers)]
        if not shared:
            for number, controller in enumerate(started):
                shares = range(number, SHARD_COUNT, len(started))
                controller.own(frozenset(shares))
        self._started = started

    # --- what the good ones do ------------------------------------------------------------------

    async def _work_on(self, ref: StreamRef) -> None:
        """Scale, transactions that are left to expire, scale, seal, delete."""
        if self._kind == "expiry":
            # A job that the defect ended would be in a long pause by then.
            await self._world.clock.sleep(EXPIRY_PAUSES_S)
        began_s = self._world.clock.monotonic()
        await self._done(self._scale(ref))
        await self._expired(ref)
        await self._done(self._scale(ref))
        await self._done(commands.SealStream(**self._of(ref)))
        await self._done(commands.DeleteStream(**self._of(ref)))
        self._lived.took_s[str(ref)] = self._world.clock.monotonic() - began_s

    async def _expired(self, ref: StreamRef) -> None:
        await self._begin(ref)
        rested = await self._world.wait_until(lambda: not self._open(ref), REST_S)
        assert rested, f"a transaction of {ref} has not ended: {self._world.wrong}"

    async def _begin(self, ref: StreamRef) -> None:
        query = BeginTransaction(scope=ref.scope, stream=ref.stream, lease_ms=LEASE_MS, writer="w")
        answer = await self._query("begin_transaction", query, self._rng.choice(self._started))
        assert answer["ok"], answer

    def _open(self, ref: StreamRef) -> bool:
        return any(
            not loaded.state.has_ended
            for loaded in self._world.transactions.values()
            if loaded.state.ref == ref
        )

    # --- what befalls the bad one ---------------------------------------------------------------

    async def _trouble(self, ref: StreamRef) -> None:
        if self._kind == "expiry":
            await self._begin(ref)
        scale = self._scale(ref)
        answer = await self._ask(scale)
        if not self._is_broken:
            return
        await self._world.clock.sleep(PARKING_S)
        if self._kind == "expiry":
            assert self._open(ref), "what could not be aborted was aborted"
            return
        assert isinstance(answer, Accepted), answer
        # Asked again, it is accepted as it was; what is new is refused.
        if self._kind != "evolve":
            again = await self._ask(scale)
            assert isinstance(again, Accepted), again
        subject = stream_events(ref)
        refusing = [one for one in self._started if one._owns(subject)]
        for controller in refusing:
            parked = [one for one in controller.containment.all() if one.parked]
            assert [one.subject for one in parked] == [subject], parked
        if len(refusing) < len(self._started) and self._kind == "step":
            return  # the simulated queue gives commands to any controller, not to the owner
        refusal = await self._ask(commands.SealStream(**self._of(ref)))
        assert isinstance(refusal, Rejected), refusal
        assert refusal.error.code == "parked", refusal
        assert f"operation redrive stream:{ref}" in refusal.error.remedy, refusal
        expected = "ok" if self._kind == "step" else "corrupt-event"
        for controller in self._started:
            query = queries.DescribeStream(scope=ref.scope, stream=ref.stream)
            told = await self._query("describe_stream", query, controller)
            assert expected == ("ok" if told["ok"] else told["error"]["code"]), told

    async def _redrive(self, ref: StreamRef) -> None:
        """As `operation redrive` does, at each controller."""
        for controller in self._started:
            found = {one.subject for one in controller.containment.all()}
            parked = {subject for subject in found if aggregate_name(subject) != subject}
            for subject in sorted(parked):
                await resume(
                    controller.containment, controller.mirror, controller.runners.wake, subject
                )

    # --- asking ---------------------------------------------------------------------------------

    async def _done(self, command: commands.Command) -> None:
        """Asked for, and at its end."""
        assert isinstance(await self._ask(command), Accepted), command
        ended = await self._world.wait_until(lambda: self._has_ended(command), REST_S)
        assert ended, f"{command} has not ended"

    def _has_ended(self, command: commands.Command) -> bool:
        return any(
            operation.operation == command.command_id
            and operation.state is not OperationState.RUNNING
            for loaded in self._world.truth.values()
            for operation in loaded.state.operations
        )

    async def _ask(self, command: commands.Command) -> commands.Answer | None:
        caller = Caller(self._world, f"c{self._id()}", self._refs, 0.0)
        return await caller.send(command)

    async def _query(
        self, name: str, query: queries.Query, controller: SimController
    ) -> dict[str, Any]:
        body = query.model_dump_json().encode()
        found: dict[str, Any] = json.loads(
            await answer_query(controller.query_desk, name, Envelope(body))
        )
        return found

    def _scale(self, ref: StreamRef) -> commands.Command:
        stream = self._world.stream(stream_events(ref))
        chosen = stream.segments[0]
        middle = (chosen.keys.start + chosen.keys.end) / 2
        bounds = (chosen.keys.start, middle, chosen.keys.end)
        ranges = tuple(
            commands.NewRange(key_start=low, key_end=high)
            for low, high in itertools.pairwise(bounds)
        )
        return commands.ScaleStream(**self._of(ref), seal=(chosen.segment_id,), new_ranges=ranges)

    def _of(self, ref: StreamRef) -> dict[str, Any]:
        return {"command_id": self._id(), "scope": ref.scope, "stream": ref.stream}

    def _id(self) -> str:
        self._numbers += 1
        return f"command-{self._numbers}"
