"""The life of a container on its store, as two tables that the code executes.

One opening (`PHASES`, performed by `Container`). A missing pair is a programming error::

    OPENING ──serve──► SERVING ──leave──► CLOSING
       │                  │                  │
       └──────fail────────┴───────fail───────┴──► ENDED, for good

The consequence of an opening's end (`AFTER_FAILURE`, performed by the container's keeper): the
first row with a matching error decides. The container is opened again after a pause, up to
`restarts_max` times in a row. Then it stays closed in the row's state, until an operator or a new
start of the process opens it.

If the log is replicated, and the store's copy of it is missing or damaged, other stores have whole
copies. The store then asks for the election of another leader, up to `RESTARTS_MAX` failures in a
row over all stores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    CorruptJournal,
    LogNotHere,
    LogNotSynced,
    NoRoom,
    OutcomeUnknown,
    TierTwoNotHere,
    Unavailable,
)
from anabranch.common.model.cluster import PlacementState

RESTARTS_MAX = 5
SERVED_WELL_S = 60.0
"""After serving this long, a container's failures are counted from 1 again."""

SERVED_S_MIN = 1.0
"""The shortest time for which a container served."""
DISTURBED_MAX = 4
"""Pauses before a shared log is opened again grow up to two to four seconds."""


class Phase(Enum):
    """The phase of one opening of a container."""

    OPENING = auto()
    """The log is replayed; requests are refused."""
    SERVING = auto()
    CLOSING = auto()
    """Requests are refused; accepted operations still go to the journal and to tier 2."""
    ENDED = auto()
    """Nothing more is acknowledged."""


class Step(Enum):
    """An action that moves an opening to its next phase."""

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
    # the log may fail during the replay, or while the container leaves
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
    """Stay closed: DISABLED or OFFLINE until an operator or a new start of the process, ELECTING
    until a controller has found another leader."""

    restarts: int
    state: PlacementState


@dataclass(frozen=True, slots=True)
class Rule:
    """`errors` let a container be opened again `restarts_max` times in a row (None: for ever)."""

    errors: tuple[type[AnabranchError], ...]
    restarts_max: int | None
    then: PlacementState


AFTER_FAILURE = (
    # another opening would find the same damage, or miss the same log or tier 2
    Rule((Corrupt, LogNotHere, TierTwoNotHere), 0, PlacementState.OFFLINE),
    # a service without an answer, such as tier 2, or a full disk may recover by itself, and
    # a server of a log that cannot be checked may only be away
    Rule((Unavailable, OutcomeUnknown, NoRoom, LogNotSynced), None, PlacementState.DISABLED),
    Rule((AnabranchError,), RESTARTS_MAX, PlacementState.DISABLED),
)
BAD_COPY = (LogNotHere, CorruptJournal)
"""The errors that another copy of the log may not have."""


def after_failure(
    error: AnabranchError, restarts: int, served_s: float, *, replicated: bool = False
) -> Restart | Stay:
    """The next move for a container that ended after `restarts` earlier failures in a row.

    `replicated`: whether stores replicate its log, so that others may have a whole copy.
    """
    rule = next(rule for rule in AFTER_FAILURE if isinstance(error, rule.errors))
    failures = 1 if served_s >= SERVED_WELL_S else restarts + 1
    if replicated and isinstance(error, BAD_COPY) and failures <= RESTARTS_MAX:
        return Stay(failures, PlacementState.ELECTING)
    if rule.restarts_max is not None and failures > rule.restarts_max:
        return Stay(restarts, rule.then)
    return Restart(failures)


def shared_log_pauses(error: AnabranchError, restarts: int, served_s: float) -> int:
    """The number of failures by which the pause of a container with a shared log grows.

    Such a log fails whenever its servers are disturbed, and they are soon back. A container that
    served is opened again at once, however often this happened, and one that could not be opened
    is tried every few seconds.
    """
    if not isinstance(error, Unavailable | OutcomeUnknown):
        return restarts
    return 1 if served_s >= SERVED_S_MIN else min(restarts, DISTURBED_MAX)


def stopped(container: int, reason: AnabranchError) -> Unavailable:
    """The answer to all requests that wait when their container fails for this reason."""
    return Unavailable(
        "the container stopped before it confirmed that the request is durable",
        remedy="locate the segment again and repeat the request; repeating is safe",
        container=container, reason=reason.code,
    )  # fmt: skip
