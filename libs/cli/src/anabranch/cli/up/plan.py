"""What the supervisor does next: a pure decision over the states of its parts.

           start                 probe answers
    IDLE ─────────▶ RUNNING ◀──────────────────▶ RUNNING (ready)
     ▲                 │ process ended
     │ stop asked      ▼
    DOWN ◀──────── BACKING_OFF ── time over ──▶ start again
     ▲                                (give up: never ready FAILURE_COUNT_MAX times
     │                                 in a row, or irreplaceable)
     └── ended ── STOPPING (asked to end; killed when the deadline is over)

Parts start in the order given, each when those it needs are ready, and stop in reverse order,
one after the other. A part that has been ready once is left alone when its probe fails: only the
end of its process, or never becoming ready, is a reason to replace it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

BACK_OFF_SECONDS_MIN = 0.1
BACK_OFF_SECONDS_MAX = 5.0
START_SECONDS_MAX = 60.0
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
    """One part. `since` is the monotonic second at which the phase began.

    `failures` counts ends in a row without having been ready; `restarts` counts all ends that
    nobody asked for.
    """

    phase: Phase = Phase.IDLE
    since: float = 0.0
    ready: bool = False
    was_ready: bool = False
    killed: bool = False
    failures: int = 0
    restarts: int = 0
    reason: str = ""


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
    """The part has no process and will not get one: it is down."""

    part: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The part cannot be kept alive: stop the cluster and say why."""

    part: str


Action = Start | Stop | Kill | Forget | GiveUp


def back_off_seconds(failures: int) -> float:
    """The pause before the next start: doubles with each failure in a row, up to the maximum."""
    return min(BACK_OFF_SECONDS_MAX, BACK_OFF_SECONDS_MIN * 2.0 ** min(failures, 16))


def next_actions(
    needs: Mapping[str, Sequence[str]],
    states: Mapping[str, PartState],
    *,
    stopping: bool,
    now: float,
    irreplaceable: Collection[str] = (),
) -> list[Action]:
    """What to do now. `needs` names the parts in start order, each with those it waits for; what
    an `irreplaceable` one knew ends with its process."""
    if stopping:
        return _next_stop(list(needs), states, now)
    actions: list[Action] = []
    for part, needed in needs.items():
        open_way = all(states[other].ready for other in needed)
        action = _next_for_part(part, states[part], open_way, now)
        if part in irreplaceable and states[part].phase is Phase.BACKING_OFF:
            action = GiveUp(part)
        if action is not None:
            actions.append(action)
    return actions


def is_cluster_ready(states: Mapping[str, PartState]) -> bool:
    return bool(states) and all(state.ready for state in states.values())


def is_cluster_down(states: Mapping[str, PartState]) -> bool:
    return all(state.phase is Phase.DOWN for state in states.values())


def started(state: PartState, now: float) -> PartState:
    return replace(
        state, phase=Phase.RUNNING, since=now, ready=False, was_ready=False, killed=False, reason=""
    )


def probed(state: PartState, ready: bool, reason: str) -> PartState:
    """The state after a probe; readiness forgives earlier failures."""
    if state.phase is not Phase.RUNNING:
        return state
    return replace(
        state,
        ready=ready,
        was_ready=state.was_ready or ready,
        failures=0 if ready else state.failures,
        reason="" if ready else reason,
    )


def ended(state: PartState, now: float, how: str) -> PartState:
    """The state after the process ended, asked for (STOPPING) or not."""
    if state.phase is Phase.STOPPING:
        return replace(state, phase=Phase.DOWN, since=now, ready=False, reason=how)
    return replace(
        state,
        phase=Phase.BACKING_OFF,
        since=now,
        ready=False,
        failures=state.failures + (0 if state.was_ready else 1),
        restarts=state.restarts + 1,
        reason=how,
    )


def asked_to_stop(state: PartState, now: float) -> PartState:
    return replace(state, phase=Phase.STOPPING, since=now, ready=False, killed=False)


def being_killed(state: PartState, reason: str) -> PartState:
    return replace(state, killed=True, ready=False, reason=reason)


def forgotten(state: PartState, now: float) -> PartState:
    return replace(state, phase=Phase.DOWN, since=now, ready=False)


def _next_for_part(part: str, state: PartState, open_way: bool, now: float) -> Action | None:
    match state.phase:
        case Phase.IDLE:
            return Start(part) if open_way else None
        case Phase.RUNNING:
            late = not state.was_ready and now - state.since >= START_SECONDS_MAX
            return Kill(part, "not ready in time") if late and not state.killed else None
        case Phase.BACKING_OFF:
            if state.failures >= FAILURE_COUNT_MAX:
                return GiveUp(part)
            rested = now - state.since >= back_off_seconds(state.failures)
            return Start(part) if rested and open_way else None
        case Phase.STOPPING | Phase.DOWN:
            return None
    assert_never(state.phase)


def _next_stop(order: Sequence[str], states: Mapping[str, PartState], now: float) -> list[Action]:
    """The last part that is not down gets the next step; the ones before it wait."""
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
