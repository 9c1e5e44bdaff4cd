"""Steps of the start are repeated while NATS cannot answer them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.common.errors import AnabranchError, InvalidSetting, OutcomeUnknown, Unavailable
from anabranch.controller.wiring.patience import PAUSE_S, patiently
from kit.virtual_time import VirtualClock, run_virtual


def step_that_meets(*errors: AnabranchError) -> Callable[[], Awaitable[str]]:
    """A step that raises these errors, one in each attempt, and then succeeds."""
    waiting = list(errors)

    async def step() -> str:
        if waiting:
            raise waiting.pop(0)
        return "done"

    return step


async def took(step: Callable[[], Awaitable[str]], budget_s: float) -> float:
    """How long the step took. Raises its error."""
    clock = VirtualClock(asyncio.get_running_loop())
    began_s = clock.monotonic()
    assert await patiently(step, clock, budget_s=budget_s) == "done"
    return clock.monotonic() - began_s


def test_a_step_is_repeated_until_nats_answers_it() -> None:
    step = step_that_meets(Unavailable("no leader"), OutcomeUnknown("no reply"))
    assert run_virtual(took(step, 60.0)) == pytest.approx(2 * PAUSE_S)


def test_the_last_error_is_raised_when_the_time_is_up() -> None:
    step = step_that_meets(*(Unavailable(f"attempt {number}") for number in range(100)))
    with pytest.raises(Unavailable, match="attempt 4"):
        run_virtual(took(step, 4 * PAUSE_S))


def test_an_error_that_would_come_again_is_raised_at_once() -> None:
    with pytest.raises(InvalidSetting):
        run_virtual(took(step_that_meets(InvalidSetting("another cluster")), 60.0))
