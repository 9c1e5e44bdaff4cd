"""One bad among good: what a defect in the work on one stream costs the others."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest

from anabranch.common.contracts.base import ReadToken
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.workflow import runner
from anabranch.common.workflow.containment import Containment
from anabranch.controller.projections.quarantine import Fold, Quarantine
from kit.defect_scenario import random_defect
from kit.thorough import some_of

SEEDS = range(8)


@pytest.mark.parametrize("seed", some_of(SEEDS, 3))
def test_a_defect_in_the_work_on_one_stream_costs_the_others_next_to_nothing(seed: int) -> None:
    random_defect(seed)


@contextmanager
def steps_uncontained() -> Iterator[None]:
    """A step's defect leaves the runner, and ends the work of all."""

    @contextmanager
    def nothing(_what: str, *_expected: type[Exception]) -> Iterator[None]:
        yield

    with patch.object(runner, "naming_defects", nothing):
        yield


def folds_uncontained() -> AbstractContextManager[object]:
    """A fold's defect ends the follower of its shard."""

    def fold(self: Quarantine, message: EventMessage, point: ReadToken) -> Fold:
        return self._fold(message, point)

    return patch.object(Quarantine, "fold", fold)


def jobs_uncontained() -> AbstractContextManager[object]:
    """A defect about one thing ends the round of the job, for all."""

    async def attempt(
        _self: Containment, _part: str, _subject: str, action: Callable[[], Awaitable[None]]
    ) -> None:
        await action()

    return patch.object(Containment, "attempt", attempt)


def never_parked() -> AbstractContextManager[object]:
    """What a defect stopped takes changes as if nothing were."""
    return patch.object(Containment, "is_parked", lambda *_: False)


@pytest.mark.parametrize(
    "plant", [steps_uncontained, folds_uncontained, jobs_uncontained, never_parked]
)
def test_a_controller_that_contains_less_is_found(
    plant: Callable[[], AbstractContextManager[object]],
) -> None:
    for seed in SEEDS:
        try:
            with plant():
                random_defect(seed)
        except AssertionError:
            return
    pytest.fail("it was not found")
