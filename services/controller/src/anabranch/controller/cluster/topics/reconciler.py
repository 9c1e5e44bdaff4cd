"""The loop that all controllers of objects share: wait for a change, look at everything, act.

    a change of an input ─┐
    the reconcile timer ──┼─► wait until the burst is over ─► step, while this controller leads
    a failed step ────────┘        (after a pause)

A controller compares states and never reacts to single events. Changes that come while a step runs
are one more step afterwards. A step that fails is repeated after a pause, which grows up to
`PAUSE_S_MAX`; a defect is contained, so that no controller stops another one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment

PAUSE_S = 0.2
PAUSE_S_MAX = 10.0

_log = structlog.get_logger(__name__)


class Lead(Protocol):
    """Whether this controller may act."""

    @property
    def leading(self) -> bool: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


class Reconciler:
    """Runs `step` after changes, and every `reconcile_s`, while this controller leads.

    `step(full)` returns whether it must run again at once, because it acted on a state that its own
    action has changed. `full`: look at every object, and not only at those that have changed.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[bool], Awaitable[bool]],
        lead: Lead,
        clock: Clock,
        *,
        reconcile_s: float,
        containment: Containment,
    ) -> None:
        self._name = name
        self._step = step
        self._lead = lead
        self._clock = clock
        self._reconcile_s = reconcile_s
        self._containment = containment
        self._changed = asyncio.Event()
        self._full_at_s = 0.0
        self._led = False
        self.steps = 0
        """Steps performed since the start."""
        lead.on_change(self.wake)

    def wake(self) -> None:
        """An input has changed."""
        self._changed.set()

    async def serve(self) -> None:
        """Look and act until cancelled."""
        pause_s = PAUSE_S
        while True:
            self._changed.clear()
            outcome = await self._attempt()
            if outcome is None:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            pause_s = PAUSE_S
            if not outcome:
                await self._wait()

    async def _attempt(self) -> bool | None:
        """Whether another step is due at once; None: this one failed."""
        if not self._lead.leading:
            self._led = False
            return False
        now_s = self._clock.monotonic()
        full = not self._led or now_s >= self._full_at_s
        again: bool | None = None
        try:
            with self._containment.contained(JOB, self._name, park_at=0):
                again = await self._step(full)
        except AnabranchError as error:
            _log.warning(
                "a step of a controller failed, retrying", job=self._name, error=str(error)
            )
        self.steps += 1
        if again is None:
            self._led = False  # The next step looks at everything.
        elif full:
            self._led, self._full_at_s = True, now_s + self._reconcile_s
        return again

    async def _wait(self) -> None:
        left_s = max(0.05, self._full_at_s - self._clock.monotonic())
        try:
            async with asyncio.timeout(left_s if self._led else self._reconcile_s):
                await self._changed.wait()
        except TimeoutError:
            return
