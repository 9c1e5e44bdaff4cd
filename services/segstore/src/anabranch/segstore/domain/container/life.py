"""The life of a container on its store, as two tables that the code executes.

One opening (`PHASES`, performed by `Container`). A pair that is missing is a programmer's error::

    OPENING ──serve──► SERVING ──leave──► CLOSING
       │                  │                  │
       └──────fail────────┴───────fail───────┴──► ENDED, for good

What follows the end of an opening (`AFTER_FAILURE`, performed by the container's keeper): the first
row whose errors fit decides. The container is opened again after a pause, up to `restarts_max`
times in a row; then it stays closed in the row's state, until an operator or a new start of the
process opens it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    LogNotHere,
    NoRoom,
    OutcomeUnknown,
    TierTwoNotHere,
    Unavailable,
)
from anabranch.common.model.cluster import PlacementState

RESTARTS_MAX = 5
SERVED_WELL_S = 60.0
"""A container that served this long starts counting its failures anew."""


class Phase(Enum):
    """Where one opening of a container is."""

    OPENING = auto()
    """The log is replayed; requests are refused."""
    SERVING = auto()
    CLOSING = auto()
    """Requests are refused; what was accepted goes on to the journal and to tier 2."""
    ENDED = auto()
    """Nothing more is acknowledged."""


class Step(Enum):
    """What moves an opening from one phase to the next."""

    SERVE = auto()
    LEAVE = auto()
    FAIL = auto()


PHASES: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.OPENING, Step.SERVE): Phase.SERVING,
    (Phase.SERVING, Step.LEAVE): Phase.CLOSING,
    (Phase.CLOSING, Step.LEAVE): Phase.CLOSING,
    (Phase.OPENING, Step.FAIL): Phase.ENDED,
    (Phase.SERVING, Step.FAIL): Phase.ENDED,
    (Phase.CLOSING, Step.FAIL): Phase.ENDED,
    # the log may fail while it is replayed, or while the container leaves
    (Phase.ENDED, Step.SERVE): Phase.ENDED,
    (Phase.ENDED, Step.LEAVE): Phase.ENDED,
    (Phase.ENDED, Step.FAIL): Phase.ENDED,
}


def next_phase(phase: Phase, step: Step) -> Phase:
    """The phase after the step; asserts that the step is possible."""
    assert (phase, step) in PHASES, f"{step.name} is not possible while {phase.name}"
    return PHASES[phase, step]


@dataclass(frozen=True, slots=True)
class Restart:
    """Open again after a pause; `restarts` failures in a row so far."""

    restarts: int


@dataclass(frozen=True, slots=True)
class Stay:
    """Stay closed, DISABLED or OFFLINE, until an operator or a new start of the process."""

    restarts: int
    state: PlacementState


@dataclass(frozen=True, slots=True)
class Rule:
    """`errors` let a container be opened again `restarts_max` times in a row (None: for ever)."""

    errors: tuple[type[AnabranchError], ...]
    restarts_max: int | None
    then: PlacementState


AFTER_FAILURE = (
    # opening again would find the same damage, or the same lack
    Rule((Corrupt, LogNotHere, TierTwoNotHere), 0, PlacementState.OFFLINE),
    # what does not answer, such as tier 2, and a full disk: opening later may cure them
    Rule((Unavailable, OutcomeUnknown, NoRoom), None, PlacementState.DISABLED),
    Rule((AnabranchError,), RESTARTS_MAX, PlacementState.DISABLED),
)


def after_failure(error: AnabranchError, restarts: int, served_s: float) -> Restart | Stay:
    """What follows the end of a container that had failed `restarts` times in a row before."""
    rule = next(rule for rule in AFTER_FAILURE if isinstance(error, rule.errors))
    failures = 1 if served_s >= SERVED_WELL_S else restarts + 1
    if rule.restarts_max is not None and failures > rule.restarts_max:
        return Stay(restarts, rule.then)
    return Restart(failures)
