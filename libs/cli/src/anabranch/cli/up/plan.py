"""The supervisor's next actions: a pure decision over the states of its parts.

           start                 probe answers
    IDLE ─────────▶ RUNNING ◀──────────────────▶ RUNNING (ready)
     ▲                 │ process ended
     │ stop asked      ▼
    DOWN ◀──────── BACKING_OFF ── time over ──▶ start again
     ▲                                (give up: never ready FAILURE_COUNT_MAX times
     │                                 in a row without an excuse, or irreplaceable)
     └── ended ── STOPPING (asked to end; killed when the deadline is over)

All parts start at once: each loads its program meanwhile, and waits itself for the parts that it
needs. A part needs most of the parts that it names: the only NATS server, or two of three. A part
that ended starts again when those are serving. Parts stop in reverse order, one after
the other. If the probe of a part fails after the part has been ready, the part is left alone. The
supervisor replaces a part only if its process ends, if it never becomes ready although the parts
that it needs have been ready for long, or if it is *stuck*: it keeps an error that only a restart
clears, such as a NATS server whose disk was full and has room again.

An end is *excused* if the part is not to blame and a restart can help: its disk failed or is full,
or a part that it needs is not ready. Excused ends never lead to giving up; the pauses between them
grow longer than others.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from anabranch.common.runtime.backoff import Backoff

BACK_OFF = Backoff(first_s=0.1, longest_s=5.0)
EXCUSED_BACK_OFF = Backoff(first_s=0.1, longest_s=15.0)
EXCUSED_FORGOTTEN_SECONDS = 60.0
"""After this time a part's pauses are short again."""
STUCK_SECONDS_MIN = 10.0
"""The minimum time for which a part runs before it is replaced because it is stuck."""
START_SECONDS_MAX = 60.0
"""The time in which a part must become ready, counted from its start and from the moment at which
the parts that it needs became ready."""
STOP_SECONDS_MAX = 25.0
FAILURE_COUNT_MAX = 5


class Phase(Enum):
    IDLE = "idle"
    RUNNING = "running"
    BACKING_OFF = "backing-off"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class PartState:
    """One part. `since` is the monotonic second at which the phase began, `ready_since` the one at
    which the part became ready the last time.

    `failures` counts consecutive ends without having been ready and without an excuse, `excused`
    consecutive ends with one; `restarts` counts all unrequested ends. `serving`: it answers, though
    it may not be ready. `stuck`: it answers, and needs a restart to become ready.
    """

    phase: Phase = Phase.IDLE
    since: float = 0.0
    ready: bool = False
    ready_since: float = 0.0
    serving: bool = False
    stuck: bool = False
    was_ready: bool = False
    killed: bool = False
    failures: int = 0
    excused: int = 0
    restarts: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A part's answer to its probe; see `PartState`."""

    ready: bool
    reason: str = ""
    serving: bool = False
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    part: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the part's process to end."""

    part: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the part's process at once."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Mark the part as down: it has no process and will not get one."""

    part: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the cluster and report the reason, because the part cannot be kept running."""

    part: str


Action = Start | Stop | Kill | Forget | GiveUp


def back_off_seconds(state: PartState) -> float:
    """The pause before the next start: doubles with each failure in a row, up to a maximum.

    One supervisor starts all parts, so the pauses need no jitter.
    """
    pauses = EXCUSED_BACK_OFF if state.excused else BACK_OFF
    return pauses.delay_s(max(state.failures, state.excused) + 1, 1.0)


def next_actions(
    needs: Mapping[str, Sequence[str]],
    states: Mapping[str, PartState],
    *,
    stopping: bool,
    now: float,
    irreplaceable: Collection[str] = (),
    expendable: Collection[str] = (),
    retired: Collection[str] = (),
) -> list[Action]:
    """The next actions.

    `needs` names the parts in start order, each with the parts without most of which it cannot
    become ready. The data of an `irreplaceable` part ends with its process. The cluster goes on
    without an `expendable` part, which is tried again for ever. A `retired` part stops for good.
    """
    if stopping:
        return _next_stop(list(needs), states, now)
    actions: list[Action] = []
    for part, needed in needs.items():
        if part in retired:
            actions += _next_stop([part], states, now)
            continue
        others = [states[other] for other in needed]
        action = _next_for_part(part, states[part], others, now)
        if part in irreplaceable and states[part].phase is Phase.BACKING_OFF:
            action = GiveUp(part)
        if isinstance(action, GiveUp) and part in expendable:
            rested = now - states[part].since >= back_off_seconds(states[part])
            action = Start(part) if rested else None
        if action is not None:
            actions.append(action)
    return actions


def is_held_up(needed: Sequence[str], states: Mapping[str, PartState]) -> bool:
    """Whether most of the parts that it needs are not ready."""
    return not are_most(states[other].ready for other in needed)


def are_most(truths: Iterable[bool]) -> bool:
    """Whether more than half are true; true of none."""
    known = list(truths)
    return not known or 2 * sum(known) > len(known)


def is_cluster_ready(states: Mapping[str, PartState]) -> bool:
    return bool(states) and all(state.ready for state in states.values())


def is_cluster_down(states: Mapping[str, PartState]) -> bool:
    return all(state.phase is Phase.DOWN for state in states.values())


def started(state: PartState, now: float) -> PartState:
    return replace(
        PartState(Phase.RUNNING, since=now),
        failures=state.failures,
        excused=state.excused,
        restarts=state.restarts,
    )


def probed(state: PartState, answer: Answer, now: float, *, process_since: float) -> PartState:
    """The state after a probe; readiness clears earlier failures.

    `process_since` is the start of the process that was asked: the answer of a part's former
    process says nothing about the present one.
    """
    if state.phase is not Phase.RUNNING or state.since != process_since:
        return state
    return replace(
        state,
        ready=answer.ready,
        ready_since=now if answer.ready and not state.ready else state.ready_since,
        serving=answer.ready or answer.serving,
        stuck=answer.stuck,
        was_ready=state.was_ready or answer.ready,
        failures=0 if answer.ready else state.failures,
        reason="" if answer.ready else answer.reason,
    )


def is_calm(state: PartState, now: float) -> bool:
    """Whether the part's next answer may wait: it is ready, or has not become so for long."""
    return state.ready or (state.serving and now - state.since >= STUCK_SECONDS_MIN)


def ended(state: PartState, now: float, how: str, excuse: str = "") -> PartState:
    """The state after the process ended, requested (STOPPING) or not.

    `excuse` is the reason why the part is not to blame; empty if none is known.
    """
    over = replace(state, since=now, ready=False, serving=False, stuck=False, reason=how)
    if state.phase is Phase.STOPPING:
        return replace(over, phase=Phase.DOWN)
    over = replace(over, phase=Phase.BACKING_OFF, restarts=state.restarts + 1)
    if not excuse:
        failures = state.failures + (0 if state.was_ready else 1)
        return replace(over, failures=failures, excused=0)
    lately = now - state.since < EXCUSED_FORGOTTEN_SECONDS
    over = replace(over, excused=(state.excused if lately else 0) + 1)
    pause = f"it starts again in {back_off_seconds(over):g} s"
    return replace(over, reason=f"{how}: {excuse}; {pause}")


def asked_to_stop(state: PartState, now: float) -> PartState:
    return replace(state, phase=Phase.STOPPING, since=now, ready=False, serving=False, killed=False)


def being_killed(state: PartState, reason: str) -> PartState:
    return replace(state, killed=True, ready=False, serving=False, reason=reason)


def forgotten(state: PartState, now: float) -> PartState:
    return replace(state, phase=Phase.DOWN, since=now, ready=False)


def _next_for_part(
    part: str, state: PartState, needed: Sequence[PartState], now: float
) -> Action | None:
    match state.phase:
        case Phase.IDLE:
            return Start(part)
        case Phase.RUNNING:
            return None if state.killed else _replaced(part, state, needed, now)
        case Phase.BACKING_OFF:
            if state.failures >= FAILURE_COUNT_MAX:
                return GiveUp(part)
            rested = now - state.since >= back_off_seconds(state)
            open_way = are_most(other.serving for other in needed)
            return Start(part) if rested and open_way else None
        case Phase.STOPPING | Phase.DOWN:
            return None
    assert_never(state.phase)


def _replaced(
    part: str, state: PartState, needed: Sequence[PartState], now: float
) -> Action | None:
    """Whether a running part must be restarted."""
    if state.stuck and now - state.since >= STUCK_SECONDS_MIN:
        return Kill(part, state.reason)
    if state.was_ready or state.serving or not are_most(other.ready for other in needed):
        return None
    times = sorted(other.ready_since for other in needed if other.ready)
    able_since = max(state.since, times[len(needed) // 2] if times else 0.0)
    return Kill(part, "not ready in time") if now - able_since >= START_SECONDS_MAX else None


def _next_stop(order: Sequence[str], states: Mapping[str, PartState], now: float) -> list[Action]:
    """The next step for the last part that is not down; the parts before it wait."""
    for part in reversed(order):
        state = states[part]
        match state.phase:
            case Phase.DOWN:
                continue
            case Phase.IDLE | Phase.BACKING_OFF:
                return [Forget(part)]
            case Phase.RUNNING:
                return [Stop(part)]
            case Phase.STOPPING:
                late = now - state.since >= STOP_SECONDS_MAX and not state.killed
                return [Kill(part, "did not stop in time")] if late else []
        assert_never(state.phase)
    return []
