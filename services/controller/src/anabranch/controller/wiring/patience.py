"""Repeats a step of the start while the NATS servers cannot answer it.

The servers of a cluster elect a leader for each stream, which takes seconds. Meanwhile they answer
for one stream and not for another, so every step of the start may meet this.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger

BUDGET_S = 60.0
"""Longer than an election of a leader, and than a server takes to start."""
PAUSE_S = 0.5

_log = get_logger(__name__)

T = TypeVar("T")


async def patiently(
    step: Callable[[], Awaitable[T]], clock: Clock, *, budget_s: float = BUDGET_S
) -> T:
    """The result of an idempotent step, which is repeated until `budget_s` is used up.

    Raises the last Unavailable or OutcomeUnknown, and at once any other error of the step.
    """
    deadline = clock.monotonic() + budget_s
    while True:
        try:
            return await step()
        except (OutcomeUnknown, Unavailable) as error:
            if clock.monotonic() >= deadline:
                raise
            _log.info("NATS cannot answer a step of the start yet", error=str(error))
        await clock.sleep(PAUSE_S)
