"""The rate at which the demo writes: quiet, a rush, quiet again. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

TARGET_RATE = 2_000
"""Events per second that one segment should carry."""


class Phase(NamedTuple):
    """`rate` events per second for `seconds`."""

    seconds: float
    rate: float


PHASES = (Phase(8.0, 600.0), Phase(24.0, 12_000.0), Phase(float("inf"), 400.0))
"""The rush is six times what one segment should carry; the last phase takes the remaining rows."""


def rows_due(phases: Sequence[Phase], elapsed_s: float) -> int:
    """The number of rows to have written after so many seconds."""
    due = 0.0
    for phase in phases:
        spent_s = min(max(elapsed_s, 0.0), phase.seconds)
        due += spent_s * phase.rate
        elapsed_s -= spent_s
    return int(due)


def crossing_s(phases: Sequence[Phase], target: float) -> float | None:
    """After how many seconds the rate exceeds `target`; None if it never does."""
    at_s = 0.0
    for phase in phases:
        if phase.rate > target:
            return at_s
        at_s += phase.seconds
    return None


def finish_s(phases: Sequence[Phase], rows: int) -> float:
    """After how many seconds so many rows are due; infinite if they never are."""
    at_s = 0.0
    for phase in phases:
        needed_s = rows / phase.rate
        if needed_s <= phase.seconds:
            return at_s + needed_s
        at_s += phase.seconds
        rows -= int(phase.seconds * phase.rate)
    return float("inf")
