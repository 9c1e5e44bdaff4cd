"""A stream under a load that is a function of time, its scaling policy, and virtual time.

One store serves all segments and reports period by period; each report is followed by one look of
the policy at the stream. What the policy decides is performed by the stream's own decisions, a
while later, so that every scale meets the rules of a stream.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.contracts.commands import NewRange, ScaleStream
from anabranch.common.contracts.load import KeySketch
from anabranch.common.errors import AnabranchError
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import SegmentId, segment_id, segment_name, stream_ref
from anabranch.common.model.stream import (
    ScalingPolicy,
    ScalingType,
    SegmentRange,
    StreamConfig,
)
from anabranch.controller.domain.load import ContainerPeriod, Merged, ServedSegment, StorePeriod
from anabranch.controller.domain.policies.autoscale import Action, Decision, Evaluation, evaluate
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import FAST, Profile
from anabranch.controller.domain.policies.verdicts import Subject
from anabranch.controller.domain.policies.watch import StreamWatch
from anabranch.controller.domain.stream import events, invariants
from anabranch.controller.domain.stream.decide import Circumstances, decide
from anabranch.controller.domain.stream.evolve import evolve
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from kit.rng import Random
from kit.sketched import sampled

EVENT_SIZE_BYTES = 1024
REF = stream_ref("s/x")


class Load(NamedTuple):
    """Events per second: `uniform` over all keys, and of single keys by their positions."""

    uniform: float = 0.0
    keys: tuple[tuple[float, float], ...] = ()

    def of(self, segment: SegmentRange) -> float:
        """What of it the segment gets."""
        width = segment.keys.end - segment.keys.start
        return self.uniform * width + sum(rate for at, rate in self.keys if at in segment.keys)


class Scaled(NamedTuple):
    """One scale: when it was decided, and how many segments there were after it."""

    at_s: float
    action: Action
    segments: int


def by_events(target: int, scale_factor: int = 8, min_segments: int = 1) -> ScalingPolicy:
    """A policy by events per second."""
    return ScalingPolicy(ScalingType.EVENT_RATE, target, scale_factor, min_segments)


@dataclass
class LoadedStream:
    """`load(t)` at `t` seconds; `is_lost(t)`: whether the report of that moment is lost."""

    load: Callable[[float], Load]
    policy: ScalingPolicy
    profile: Profile = FAST
    period_s: float = 2.0
    scale_s: float = 0.5
    segment_count: int = 0
    is_lost: Callable[[float], bool] = lambda _t: False
    uncounted_s: float = 0.0
    due_ms: int = 0
    merged: Mapping[str, Merged] = field(default_factory=dict)
    scaled: list[Scaled] = field(default_factory=list)
    seen: list[Evaluation] = field(default_factory=list)
    keep_seen: bool = False
    chance: Random | None = None
    """With it, the store tells where the keys of hot segments lie."""

    def __post_init__(self) -> None:
        self.now_s = 0.0
        self.watch: StreamWatch | None = None
        self.periods: deque[StorePeriod] = deque(maxlen=40)
        self.sequence = 0
        self.stream = created(self.policy, self.segment_count or self.policy.min_segments)
        self._pending: tuple[float, ScaleStream, Decision] | None = None

    @property
    def segments(self) -> tuple[SegmentRange, ...]:
        return self.stream.segments

    @property
    def loads(self) -> list[float]:
        """What each segment gets at this moment."""
        return [self.load(self.now_s).of(segment) for segment in self.segments]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.step()

    def step(self) -> Evaluation:
        """One period, its report, and a look."""
        self.now_s += self.period_s
        self._perform()
        self._report()
        found = evaluate(self.watch, self._subject(), self._heard(), self.profile, now_s=self.now_s)
        self.watch = found.watch
        if self.keep_seen:
            self.seen.append(found)
        if found.decision.action is not Action.NOTHING:
            self._order(found.decision)
        return found

    def _report(self) -> None:
        load = self.load(self.now_s)
        counts = {
            self._name(one.segment_id): round(load.of(one) * self.period_s) for one in self.segments
        }
        self.sequence += 1
        container = ContainerPeriod(
            1,
            {name: (count, count * EVENT_SIZE_BYTES) for name, count in counts.items() if count},
            self.merged,
        )
        length_ms = int(self.period_s * 1000)
        report = StorePeriod(
            "session", self.sequence, length_ms, True, self.now_s, {0: container}, self.due_ms
        )
        if not self.is_lost(self.now_s):
            self.periods.append(report)

    def _subject(self) -> Subject:
        return Subject(
            self.stream.incarnation,
            self.stream.stream_epoch,
            self.segments,
            self.policy,
            "a scale is pending" if self._pending else "",
            self.uncounted_s,
        )

    def _heard(self) -> dict[SegmentId, Heard]:
        periods = tuple(self.periods)
        return {
            one.segment_id: Heard(
                "node", periods, ServedSegment(self._name(one.segment_id), 0, 1), self._sketch(one)
            )
            for one in self.segments
        }

    def _sketch(self, segment: SegmentRange) -> KeySketch | None:
        """Of a segment above the target; the policy asks for no other one."""
        load = self.load(self.now_s)
        if self.chance is None or load.of(segment) <= self.policy.target_rate:
            return None
        uniform = load.uniform * (segment.keys.end - segment.keys.start)
        return sampled(segment.keys, uniform, load.keys, self.chance)

    def _order(self, decision: Decision) -> None:
        command = commanded(self.stream, decision)
        assert self.watch is not None
        self.watch = self.watch.muted(decision.sealed, self.now_s + self.profile.mute_s)
        self._pending = (self.now_s + self.scale_s, command, decision)

    def _perform(self) -> None:
        if self._pending is None or self._pending[0] > self.now_s:
            return
        ordered_s, command, decision = self._pending
        self._pending = None
        self.stream = performed(self.stream, command)
        self.scaled.append(
            Scaled(ordered_s - self.scale_s, decision.action, len(self.stream.segments))
        )

    @staticmethod
    def _name(segment: SegmentId) -> str:
        return segment_name(REF, segment)


def created(policy: ScalingPolicy, segment_count: int) -> Stream:
    """A stream that was created with so many segments."""
    planned = tuple(
        events.PlannedSegment(
            segment_id=segment_id(0, number), key_start=keys.start, key_end=keys.end
        )
        for number, keys in enumerate(even_ranges(segment_count))
    )
    creating = events.StreamCreating(
        command_id="c", revision=1, scope="s", stream="x", incarnation=1, scope_incarnation=1,
        segments=planned, config=StreamConfig(policy), at_ms=0,
    )  # fmt: skip
    stream = Stream()
    for event in (creating, events.StreamJoinedScope(), events.StreamCreated()):
        stream = evolve(stream, event)
    return stream


def commanded(stream: Stream, decision: Decision) -> ScaleStream:
    """The command that carries the decision out."""
    return ScaleStream(
        command_id=f"auto-{stream.stream_epoch}",
        scope="s",
        stream="x",
        expected_epoch=stream.stream_epoch,
        seal=decision.sealed,
        new_ranges=tuple(
            NewRange(key_start=keys.start, key_end=keys.end) for keys in decision.ranges
        ),
    )


def performed(stream: Stream, command: ScaleStream) -> Stream:
    """The stream after the scale. Raises what refuses it."""
    found: Sequence[events.StreamEvent] = (
        *decide(stream, command, _at(stream)),
        events.StreamSuccessorsMade(),
        events.StreamScaled(sizes=(0,) * len(command.seal)),
    )
    for event in found:
        after = evolve(stream, event)
        invariants.check(stream, after)
        stream = after
    return stream


def refused(stream: Stream, command: ScaleStream) -> AnabranchError | None:
    """Why the stream does not take the command, if it does not."""
    try:
        decide(stream, command, _at(stream))
    except AnabranchError as error:
        return error
    return None


def _at(stream: Stream) -> Circumstances:
    return Circumstances(
        revision=2,
        open_scope_incarnation=1,
        now_ms=stream.epochs[-1].created_ms + 1,
        history=_no_history,
    )


def _no_history() -> History:
    raise AssertionError("a scale needs no old epochs")
