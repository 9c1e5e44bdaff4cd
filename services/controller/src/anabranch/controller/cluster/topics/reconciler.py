"""The loop that all controllers of objects share: wait for a change, look at everything, act.

    a change of an input ─┐
    the reconcile timer ──┼─► step, while this controller leads ─► wait
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
BURST_S = 0.01
BURST_S_MAX = 0.2
IDLE_SHARE = 3.0
"""The pause after a change, as a multiple of the duration of the last step, at most `BURST_S_MAX`:
while thousands of changes come one by one, they are looked at together."""

_log = structlog.get_logger(__name__)


class Lead(Protocol):
    """Whether this controller may act."""

    @property
    def leading(self) -> bool: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


Step = Callable[[bool], Awaitable[float | None]]


class Reconciler:
    """Runs `step` after changes, and every `reconcile_s`, while this controller leads.

    `step(full)` returns after how many seconds it must run again although no input has changed
    (0: at once, because it has changed the state that it looked at), or None. `full`: look at every
    object, and not only at those that have changed.
    """

    def __init__(
        self,
        name: str,
        step: Step,
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
        self._took_s = 0.0
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
            if not self._lead.leading:
                self._led = False
                await self._wait(self._reconcile_s)
            elif (again_s := await self._attempt()) is None:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                pause_s = PAUSE_S
                await self._wait(again_s)

    async def _attempt(self) -> float | None:
        """After how many seconds another step is due; None: this one failed."""
        now_s = self._clock.monotonic()
        full = not self._led or now_s >= self._full_at_s
        self._led = False
        self.steps += 1
        try:
            with self._containment.contained(JOB, self._name, park_at=0):
                again_s = await self._step(full)
                self._led = True
        except AnabranchError as error:
            _log.warning("a controller failed, retrying", job=self._name, error=str(error))
        self._took_s = self._clock.monotonic() - now_s
        if not self._led:
            return None  # and the next step looks at everything
        if full:
            self._full_at_s = now_s + self._reconcile_s
        left_s = max(0.0, self._full_at_s - self._clock.monotonic())
        return left_s if again_s is None else min(again_s, left_s)

    async def _wait(self, within_s: float) -> None:
        """Wait for a change, and then for those that come with it."""
        if within_s <= 0:
            return
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
        await self._clock.sleep(min(max(BURST_S, IDLE_SHARE * self._took_s), BURST_S_MAX))
