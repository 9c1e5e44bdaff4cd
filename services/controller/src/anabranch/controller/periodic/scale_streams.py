"""Scales streams by their load: looks at every stream that this controller owns and that has a rate
policy, and carries out the decisions of the policy.

    a report lists segments of the stream ─┐
    the stream has another shape           ├─▶ look: fold reports, judge, decide ──▶ ScaleStream
    a sweep, every ten seconds            ─┘                                          │
                                              accepted · void: left alone for a while ◀┘
                                              unknown: the same command at the next look

The load of a stream that is written to is therefore seen with each report, and an idle stream costs
one look per sweep. A decision becomes a command with an expected epoch, which the stream's own
rules decide at once, on the state that is appended to: if the segments have changed, the command is
void, and that is no failure. Its id follows from the stream's life and epoch, so that two owners of
a bucket, or a repetition after an unknown outcome, scale once.

A defect, or a store that does not answer, keeps no other stream from being looked at.

Owns: which streams are to be looked at next. The findings are in `ScalingStates`.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from anabranch.common.contracts.commands import NewRange, ScaleStream
from anabranch.common.contracts.load import LoadReport
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import AnabranchError, Invalid, Unavailable, Unknown
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import segment_name
from anabranch.common.model.stream import ScalingType, StreamState
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.policies.autoscale import Action, Decision, evaluate
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.verdicts import Subject
from anabranch.controller.domain.stream import causes, intents
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.export import ShapedStream
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.job import Job
from anabranch.controller.projections.scaling import Decided, Looked, ScalingStates

SWEEP_S = 10.0
SEGMENTS_AT_A_TIME = 100
"""Looked at between two moments in which the process may do something else: a few milliseconds."""
RETRY = Backoff(first_s=1.0, longest_s=SWEEP_S)
SCALING = "auto-scaling"

ACCEPTED, VOID, UNKNOWN = "accepted", "void", "unknown"

_CAUSES = {Action.SPLIT: causes.AUTO_SPLIT, Action.MERGE: causes.AUTO_MERGE}
_PENDING = {
    IntentKind.SCALE: "a scale is under way",
    IntentKind.UPDATE: "an update of the configuration is under way",
    IntentKind.SEAL: "the stream is about to be sealed",
}

_log = structlog.get_logger(__name__)


Scale = Callable[[ScaleStream], Awaitable[object]]
"""Decides the command and stores its events. Raises the error that refuses it."""


class KnownStreams(Protocol):
    """Where streams are known: the mirror."""

    def known(self, subject: str) -> Loaded[Stream] | None: ...

    def shaped_streams(self) -> Iterable[ShapedStream]: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """Where streams, owners, loads and transactions are known.

    streams     all streams, as folded so far
    owns        whether the stream with this subject is this controller's
    heard       the latest reports of the store that serves a segment; None: no store serves it
    oldest_ms   when the oldest transaction of a stream began that is not merged; 0: there is none
    """

    streams: KnownStreams
    owns: Callable[[str], bool]
    heard: Callable[[str], Heard | None]
    oldest_ms: Callable[[Stream], int]


class StreamScaler:
    """See the module."""

    def __init__(
        self,
        seen: Seen,
        scale: Scale,
        states: ScalingStates,
        profile: Profile,
        *,
        clock: Clock,
        metrics: ControllerMetrics,
        containment: Containment,
    ) -> None:
        self._seen = seen
        self._scale = scale
        self._states = states
        self._profile = profile
        self._clock = clock
        self._metrics = metrics
        self._containment = containment
        self._sweep_at_s = clock.monotonic()
        self._watched: dict[str, str] = {}
        """Subjects by the streams' names, as segments have them."""
        self._due: set[str] = set()
        self._woken = asyncio.Event()

    # --- streams to look at -------------------------------------------------------------------

    def learn(self, report: LoadReport) -> None:
        """A report came: look at the streams that it tells of."""
        for container in report.containers:
            for one in container.segments:
                subject = self._watched.get(one.segment.rpartition("/")[0])
                if subject is not None:
                    self._due.add(subject)
        if self._due:
            self._woken.set()

    def reshaped(self, subject: str) -> None:
        """A stream has other segments: appends to the new ones count from now on."""
        self._due.add(subject)
        self._woken.set()

    def sweep_soon(self) -> None:
        """Buckets were taken: look at everything in the next round."""
        self._sweep_at_s = self._clock.monotonic()
        self._woken.set()

    def job(self) -> Job:
        """Looks again and again."""
        return Job(
            name="auto-scaling",
            period_s=SWEEP_S,
            jitter=0.0,
            round=self.round,
            failing="streams do not scale by their load",
            woken=self._woken,
            retry=RETRY,
        )

    async def round(self) -> None:
        """Look at every stream that is due. Raises the first Unavailable or Unknown."""
        due, self._due = self._due, set()
        if self._clock.monotonic() >= self._sweep_at_s:
            self._sweep_at_s = self._clock.monotonic() + SWEEP_S
            due = self._swept()
        failed: list[AnabranchError] = []
        seen_count = 0
        for subject in sorted(due):
            look = partial(self._look_apart, subject, failed)
            await self._containment.attempt(SCALING, subject, look)
            looked = self._states.looked(subject)
            seen_count += 1 if looked is None else len(looked.evaluation.findings)
            if seen_count >= SEGMENTS_AT_A_TIME:
                seen_count = 0
                await self._clock.sleep(0)
        if failed:
            raise failed[0]

    def _swept(self) -> set[str]:
        """All owned streams with a rate policy; the findings of others are forgotten."""
        refs = [
            shaped.stream.ref
            for shaped in self._seen.streams.shaped_streams()
            if shaped.stream.ref is not None and _follows_load(shaped.stream)
        ]
        subjects = {str(ref): stream_events(ref) for ref in refs}
        self._watched = {name: one for name, one in subjects.items() if self._seen.owns(one)}
        mine = set(self._watched.values())
        self._states.keep_only(mine)
        return mine

    # --- one look -----------------------------------------------------------------------------

    async def _look_apart(self, subject: str, failed: list[AnabranchError]) -> None:
        try:
            await self._look(subject)
        except (Unavailable, Unknown) as error:
            failed.append(error)

    async def _look(self, subject: str) -> None:
        loaded = self._seen.streams.known(subject)
        if loaded is None or not _follows_load(loaded.state) or not self._seen.owns(subject):
            self._states.forget(subject)
            return
        stream, now_s = loaded.state, self._clock.monotonic()
        ref = ref_of(stream)
        self._watched[str(ref)] = subject
        heard = {
            one.segment_id: found
            for one in stream.segments
            if (found := self._seen.heard(segment_name(ref, one.segment_id))) is not None
        }
        evaluation = evaluate(
            self._states.watch(subject), self._subject(stream), heard, self._profile, now_s=now_s
        )
        before = self._states.looked(subject)
        decided = None if before is None else before.decided
        looked = Looked(evaluation, now_s, decided)
        self._states.keep(subject, looked)
        if evaluation.decision.action is not Action.NOTHING:
            await self._carry_out(subject, stream, looked)

    def _subject(self, stream: Stream) -> Subject:
        oldest_ms = self._seen.oldest_ms(stream)
        pending = (_PENDING[kind] for kind in _PENDING if intents.find(stream.intents, kind))
        return Subject(
            stream.incarnation,
            stream.stream_epoch,
            stream.segments,
            stream.config.scaling,
            next(pending, ""),
            max(0.0, (self._clock.now_ms() - oldest_ms) / 1000) if oldest_ms else 0.0,
        )

    async def _carry_out(self, subject: str, stream: Stream, looked: Looked) -> None:
        """Raises Unavailable, Unknown; the next look repeats the same command then."""
        command = command_of(stream, looked.evaluation.decision)
        outcome, error = UNKNOWN, ""
        try:
            await self._scale(command)
            outcome = ACCEPTED
        except (Unavailable, Unknown) as failure:
            error = str(failure)
            raise
        except AnabranchError as refusal:
            outcome, error = VOID, str(refusal)
            tell = _log.warning if isinstance(refusal, Invalid) else _log.debug
            tell("a decision of auto-scaling is void", stream=subject, error=error)
        finally:
            self._note(subject, stream, looked, outcome, error)

    def _note(self, subject: str, stream: Stream, looked: Looked, outcome: str, error: str) -> None:
        evaluation, decision = looked.evaluation, looked.evaluation.decision
        if outcome is not UNKNOWN:
            until_s = self._clock.monotonic() + self._profile.mute_s
            watch = evaluation.watch.muted(decision.sealed, until_s)
            evaluation = replace(evaluation, watch=watch)
        decided = Decided(
            decision.action,
            decision.why,
            stream.stream_epoch,
            self._clock.now_ms(),
            outcome,
            error,
        )
        self._states.keep(subject, Looked(evaluation, looked.at_s, decided))
        waited_s = self._clock.monotonic() - _seen_since_s(looked) if outcome is ACCEPTED else None
        self._metrics.scaled(decision.action.value, outcome, waited_s)
        if outcome is ACCEPTED:
            _log.info(
                "auto-scaling scales a stream",
                stream=str(stream.ref), action=decision.action.value, why=decision.why,
                sealed=len(decision.sealed), created=len(decision.ranges),
            )  # fmt: skip


def command_of(stream: Stream, decision: Decision) -> ScaleStream:
    """The command of the decision: void at any other epoch, and the same for every owner."""
    ref = ref_of(stream)
    life = f"{ref}/{stream.incarnation}/{stream.stream_epoch}"
    return ScaleStream(
        command_id=f"auto-{hashlib.sha256(life.encode()).hexdigest()[:32]}",
        scope=ref.scope,
        stream=ref.stream,
        incarnation=stream.incarnation,
        expected_epoch=stream.stream_epoch,
        seal=decision.sealed,
        new_ranges=tuple(
            NewRange(key_start=keys.start, key_end=keys.end) for keys in decision.ranges
        ),
        cause=causes.detailed(_CAUSES[decision.action], decision.why),
    )


def _follows_load(stream: Stream) -> bool:
    return (
        stream.status is StreamState.ACTIVE and stream.config.scaling.type is not ScalingType.FIXED
    )


def _seen_since_s(looked: Looked) -> float:
    """Since when a segment that the decision names is hot, or cold."""
    watched = looked.evaluation.watch.segments
    named = [watched[name] for name in looked.evaluation.decision.sealed]
    since_s = [at_s for one in named for at_s in (one.hot_since_s, one.cold_since_s)]
    return min((at_s for at_s in since_s if at_s is not None), default=looked.at_s)
