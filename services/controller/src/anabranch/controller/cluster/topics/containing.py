"""Computes a plan over many objects, so that one broken object does not stop the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from anabranch.common.errors import AnabranchError
from anabranch.common.workflow.containment import JOB, Containment

P = TypeVar("P")
T = TypeVar("T")

_log = structlog.get_logger(__name__)


def reduced(
    containment: Containment,
    what: str,
    reduce: Callable[[Sequence[T]], P],
    groups: Mapping[str, Sequence[T]],
) -> list[P]:
    """The plan for all objects of `groups`, which are named by their keys.

    If no such plan can be made, one plan for each group: a group that breaks its own plan is
    reported, and has none.
    """
    whole = _attempt(containment, what, reduce, [one for group in groups.values() for one in group])
    if whole is not None:
        return [whole]
    plans = (
        _attempt(containment, f"{what} {name}", reduce, group) for name, group in groups.items()
    )
    return [plan for plan in plans if plan is not None]


def _attempt(
    containment: Containment, what: str, reduce: Callable[[Sequence[T]], P], objects: Sequence[T]
) -> P | None:
    try:
        with containment.contained(JOB, what, park_at=0):
            return reduce(objects)
    except AnabranchError as error:
        _log.error("a plan cannot be made", what=what, error=str(error))
    return None
