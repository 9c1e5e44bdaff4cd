"""The loop of auto-scaling: when it looks, what becomes of decisions, and what it leaves alone."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from anabranch.common.contracts.commands import ScaleStream
from anabranch.common.contracts.load import ContainerLoad, LoadReport, SegmentLoad
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    InvalidRanges,
    OutcomeUnknown,
    ScaleRefused,
    StreamSealed,
    Unavailable,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, SegmentId, StreamName, StreamRef, segment_name
from anabranch.common.model.stream import StreamConfig, StreamState
from anabranch.common.runtime.metrics import silent_metrics
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.load import ServedSegment
from anabranch.controller.domain.policies.autoscale import Action, Decision
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.policies.verdicts import Verdict
from anabranch.controller.domain.stream.causes import AUTO_SPLIT
from anabranch.controller.domain.stream.export import ShapedStream
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.job import repeat
from anabranch.controller.periodic.scale_streams import (
    ACCEPTED,
    SWEEP_S,
    UNKNOWN,
    VOID,
    Seen,
    StreamScaler,
    command_of,
)
from anabranch.controller.projections.load_reports import LoadReports
from anabranch.controller.projections.scaling import ScalingStates
from kit.loaded_stream import by_events, created, performed
from kit.loud import loud
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

TARGET = 1000
REF = StreamRef(ScopeName("s"), StreamName("x"))
SUBJECT = stream_events(REF)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(*args: Any, **more: Any) -> None:
        run_virtual(test(*args, **more))

    run.__name__ = test.__name__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


@dataclass
class World:
    """Streams in one container of one store, and a controller that owns `owned` of them."""

    streams: dict[str, Stream] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    rates: dict[str, float] = field(default_factory=dict)
    """Events per second of each stream, evenly over its keys."""
    commands: list[ScaleStream] = field(default_factory=list)
    error: Exception | None = None
    oldest_ms: int = 0
    hears: bool = True

    def __post_init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.metrics = ControllerMetrics(silent_metrics(), self.clock)
        self.reports = LoadReports(self.clock)
        self.containment = loud(self.clock)
        self.sequence = 0
        self.began_again()
        self.add(REF)

    def began_again(self) -> None:
        """Another controller, which remembers nothing."""
        self.states = ScalingStates(FAST, self.clock)
        self.scaler = StreamScaler(
            Seen(self, self.owned.__contains__, self.heard, lambda _stream: self.oldest_ms),
            self.scale,
            self.states,
            FAST,
            clock=self.clock,
            metrics=self.metrics,
            containment=self.containment,
        )

    def add(self, ref: StreamRef, *, min_segments: int = 1) -> str:
        subject = stream_events(ref)
        stream = created(by_events(TARGET, min_segments=min_segments), min_segments)
        self.streams[subject] = replace(stream, ref=ref)
        self.owned.add(subject)
        return subject

    def known(self, subject: str) -> Loaded[Stream] | None:
        found = self.streams.get(subject)
        return None if found is None else Loaded(subject, found)

    def shaped_streams(self) -> Iterable[ShapedStream]:
        return [ShapedStream(stream, 1) for stream in self.streams.values()]

    def heard(self, segment: str) -> Heard | None:
        if not self.hears:
            return None
        return Heard("n", self.reports.periods("n"), ServedSegment(segment, 0, 1))

    async def scale(self, command: ScaleStream) -> None:
        self.commands.append(command)
        if self.error is not None:
            raise self.error
        subject = stream_events(StreamRef(ScopeName(command.scope), StreamName(command.stream)))
        ref = self.streams[subject].ref
        self.streams[subject] = replace(performed(self.streams[subject], command), ref=ref)
        self.scaler.reshaped(subject)

    def report(self, length_s: float = 2.0) -> None:
        """The store tells the rates of now."""
        self.sequence += 1
        segments = []
        for subject, rate in self.rates.items():
            stream = self.streams[subject]
            assert stream.ref is not None
            for one in stream.segments:
                count = round(rate * (one.keys.end - one.keys.start) * length_s)
                name = segment_name(stream.ref, one.segment_id)
                segments.append(SegmentLoad(segment=name, events=count, size=count))
        container = ContainerLoad(container=0, container_epoch=1, segments=tuple(segments))
        report = LoadReport(
            node_id="n", session="s", sequence=self.sequence, start_ms=0,
            length_ms=int(length_s * 1000), containers=(container,), others_idle=True,
            due_ms=10_000,
        )  # fmt: skip
        self.reports.learn(report)
        self.scaler.learn(report)

    async def run(self, seconds: float) -> None:
        """Reports every two seconds, each followed by a round."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until_s:
            await self.clock.sleep(2.0)
            self.report()
            await self.scaler.round()

    def stream(self, subject: str = SUBJECT) -> Stream:
        return self.streams[subject]

    def outcomes(self) -> dict[tuple[str, ...], int]:
        return dict(self.metrics.scaling)


@virtual
async def test_a_stream_that_is_written_too_fast_is_split_and_its_epoch_says_why() -> None:
    world = World(rates={SUBJECT: 3000.0})
    await world.run(12)
    stream = world.stream()
    assert len(stream.segments) == 4
    assert stream.epochs[-1].cause == (
        f"{AUTO_SPLIT}: segment 0 with 3000 events/s over 2 s exceed the target of 1000"
    )
    assert world.outcomes() == {("split", "accepted"): 1}
    looked = world.states.looked(SUBJECT)
    assert looked is not None
    assert looked.decided is not None
    assert (looked.decided.action, looked.decided.outcome) == (Action.SPLIT, ACCEPTED)
    assert looked.decided.stream_epoch == 0


@virtual
async def test_an_idle_stream_is_merged_down_to_its_minimum() -> None:
    world = World(rates={SUBJECT: 5000.0})
    await world.run(20)
    assert len(world.stream().segments) > 4
    world.rates = {SUBJECT: 1.0}
    await world.run(600)
    assert len(world.stream().segments) == 1
    assert world.stream().epochs[-1].cause.startswith("auto-merge: segments ")


REFUSALS: dict[str, tuple[AnabranchError, str]] = {
    "another epoch": (ScaleRefused("moved"), VOID),
    "busy": (Busy("something else"), VOID),
    "sealed": (StreamSealed("sealed"), VOID),
    "our mistake": (InvalidRanges("overlap"), VOID),
}


@pytest.mark.parametrize("why", REFUSALS)
@virtual
async def test_a_void_decision_is_no_failure_and_is_not_repeated_at_once(why: str) -> None:
    error, outcome = REFUSALS[why]
    world = World(rates={SUBJECT: 3000.0}, error=error)
    await world.run(12)
    assert len(world.commands) == 1
    assert world.outcomes() == {("split", outcome): 1}
    await world.run(FAST.mute_s)
    assert len(world.commands) == 2


@pytest.mark.parametrize("error", [Unavailable("away"), OutcomeUnknown("no answer")])
@virtual
async def test_after_an_unknown_outcome_the_same_command_is_repeated(error: AnabranchError) -> None:
    world = World(rates={SUBJECT: 3000.0}, error=error)
    with pytest.raises(type(error)):
        await world.run(20)
    looked = world.states.looked(SUBJECT)
    assert looked is not None
    assert looked.decided is not None
    assert looked.decided.outcome == UNKNOWN
    world.error = None
    await world.run(2)
    first, second = world.commands
    assert first.command_id == second.command_id
    assert len(world.stream().segments) > 1


@virtual
async def test_a_stream_that_cannot_be_scaled_keeps_no_other_one() -> None:
    """Neither a defect nor a store that does not answer does."""
    world = World()
    world.containment = Containment(world.clock, seeded(0))
    world.began_again()
    other = world.add(StreamRef(ScopeName("s"), StreamName("zz")))
    world.rates = {SUBJECT: 3000.0, other: 3000.0}
    real = world.scale

    async def scale(command: ScaleStream) -> None:
        if command.stream == "x":
            raise AssertionError("a defect")
        await real(command)

    world.scaler._scale = scale
    await world.run(12)
    assert len(world.stream(other).segments) > 1
    assert len(world.stream().segments) == 1
    assert world.containment.counts


@virtual
async def test_only_owned_active_streams_with_a_rate_policy_are_looked_at() -> None:
    world = World()
    names = ("owned", "others", "fixed", "sealed")
    subjects = {name: world.add(StreamRef(ScopeName("s"), StreamName(name))) for name in names}
    world.owned.discard(subjects["others"])
    fixed, sealed = (world.stream(subjects[name]) for name in ("fixed", "sealed"))
    world.streams[subjects["fixed"]] = replace(fixed, config=StreamConfig())
    world.streams[subjects["sealed"]] = replace(sealed, status=StreamState.SEALED)
    world.rates = dict.fromkeys(subjects.values(), 9000.0)
    await world.run(12)
    assert {command.stream for command in world.commands} == {"owned"}
    assert world.states.looked(subjects["owned"]) is not None
    assert [world.states.looked(subjects[name]) for name in names[1:]] == [None] * 3


@virtual
async def test_what_is_given_up_is_forgotten_and_a_new_owner_knows_no_rates() -> None:
    world = World(rates={SUBJECT: 300.0})
    await world.run(120)
    looked = world.states.looked(SUBJECT)
    assert looked is not None
    assert looked.evaluation.findings[0].verdict is Verdict.COLD
    world.owned.clear()
    await world.run(SWEEP_S + 2)
    assert world.states.looked(SUBJECT) is None
    world.began_again()
    world.owned.add(SUBJECT)
    await world.scaler.round()
    looked = world.states.looked(SUBJECT)
    assert looked is not None
    assert looked.evaluation.findings[0].verdict is Verdict.UNKNOWN


@virtual
async def test_nothing_is_decided_while_a_scale_is_under_way() -> None:
    world = World(rates={SUBJECT: 3000.0})
    stored: list[Stream] = []

    async def accepts_only(command: ScaleStream) -> None:
        world.commands.append(command)
        stored.append(world.stream())

    world.scaler._scale = accepts_only
    await world.run(10)
    assert len(world.commands) == 1
    looked = world.states.looked(SUBJECT)
    assert looked is not None
    assert looked.evaluation.findings[0].muted_s > 0


@virtual
async def test_a_long_open_transaction_keeps_cold_segments_apart() -> None:
    world = World()
    subject = world.add(StreamRef(ScopeName("s"), StreamName("wide")), min_segments=4)
    config = StreamConfig(by_events(TARGET, min_segments=1))
    world.streams[subject] = replace(world.streams[subject], config=config)
    world.oldest_ms = world.clock.now_ms()
    await world.run(300)
    assert len(world.stream(subject).segments) == 4
    world.oldest_ms = 0
    await world.run(SWEEP_S + 2)
    assert len(world.stream(subject).segments) == 1


@virtual
async def test_reports_wake_the_job_and_otherwise_it_sweeps() -> None:
    world = World()
    rounds: list[float] = []
    real = world.scaler.round

    async def counted() -> None:
        rounds.append(world.clock.monotonic() - began_s)
        await real()

    world.scaler.round = counted  # type: ignore[method-assign]
    began_s = world.clock.monotonic()
    async with asyncio.TaskGroup() as group:
        job = group.create_task(
            repeat(
                world.scaler.job(), world.clock, seeded(1),
                measure=lambda _name, _late_s, _took_s: None, report=lambda _reason: None,
            )
        )  # fmt: skip
        await world.clock.sleep(3.0)
        world.rates = {SUBJECT: 3000.0}
        world.report()
        await world.clock.sleep(22.0)
        job.cancel()
    assert rounds == pytest.approx([0.0, 3.0, 13.0, 23.0])


def test_the_command_is_the_same_for_every_owner_and_another_one_at_another_epoch() -> None:
    stream = replace(created(by_events(TARGET), 1), ref=REF)
    looked = _decision()
    one, same = (command_of(stream, looked) for _ in range(2))
    assert one == same
    assert one.expected_epoch == 0
    later = replace(performed(stream, one), ref=REF)
    life = replace(stream, incarnation=2)
    ids = {command_of(each, looked).command_id for each in (stream, later, life)}
    assert len(ids) == 3


def _decision() -> Decision:
    halves = (KeyRange(0.0, 0.5), KeyRange(0.5, 1.0))
    return Decision(Action.SPLIT, "why", (SegmentId(0),), halves)
