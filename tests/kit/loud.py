"""Containment for tests of something else: a defect fails the test."""

from anabranch.common.errors import Defect
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.workflow.containment import Contained, Containment
from kit.rng import seeded


def loud(clock: Clock | None = None) -> Containment:
    """One that raises every defect where it is contained."""
    return Containment(clock or SystemClock(), seeded(0), _raise)


def _raise(_found: Contained, error: BaseException) -> None:
    if isinstance(error, Defect):
        raise error.__cause__ or error
