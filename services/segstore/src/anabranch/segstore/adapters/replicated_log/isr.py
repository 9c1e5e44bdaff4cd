"""The ISR of one open log, and the task that changes it on the placement.

`Progress` decides which changes are due; this writes them to the register, one at a time, and
repeats a change without an answer until one is confirmed. Waiting tasks (the opening, a feeder that
needs a removal) are woken whenever anything changed.

State owned: the progress of the copies.
"""

import asyncio
from collections.abc import Callable

from anabranch.common.errors import (
    AnabranchError,
    Deposed,
    NotEnoughReplicas,
    OutcomeUnknown,
    Unavailable,
    WrongHost,
)
from anabranch.common.model.cluster import LogCopy
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.adapters.replicated_log.led import Led
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.replica.progress import Change, Progress
from anabranch.segstore.ports_replica import Replicas

_log = get_logger(__name__)


class Isr:
    """The members of one log's ISR.

    `opening`: the position of the owner's opening. `on_advance` is called when more messages may be
    committed; `on_replicas` when a confirmed change returned the replicas.
    """

    def __init__(
        self,
        led: Led,
        replicas: Replicas,
        opening: Position,
        *,
        on_advance: Callable[[], None],
        on_replicas: Callable[[Replicas], None],
    ) -> None:
        self._led = led
        self._opening = opening
        self._isr_min = replicas.isr_min
        self._progress = Progress(led.own, replicas.isr, replicas.isr_min, opening)
        self._on_advance = on_advance
        self._on_replicas = on_replicas
        self._due = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = False

    # --- facts --------------------------------------------------------------------------------

    @property
    def committed(self) -> Position:
        """The last message that may be acknowledged."""
        return self._progress.committed

    @property
    def alone(self) -> bool:
        """Whether only the owner's copy is required."""
        return self._progress.alone

    @property
    def confirmed(self) -> frozenset[LogCopy]:
        """The members that the placement is known to name, or fewer."""
        return self._progress.confirmed

    @property
    def isr_min(self) -> int:
        """The fewest members with which anything is acknowledged."""
        return self._isr_min

    @property
    def refusal(self) -> AnabranchError | None:
        """The reason for which appends would not be acknowledged; None if there are enough
        members."""
        if self._progress.enough:
            return None
        return NotEnoughReplicas(
            "too few copies of the container's log are in sync",
            container=self._led.container,
            in_sync=len(self._progress.confirmed),
            needed=self._isr_min,
        )

    def is_required(self, copy: LogCopy) -> bool:
        """Whether a message is acknowledged only after this copy has synced it."""
        return copy in self._progress.required

    def required_of(self, node_id: str) -> list[LogCopy]:
        """The required copies of a store: none, one, or more while a change is open."""
        return [copy for copy in self._progress.required if copy.node_id == node_id]

    def reached(self, copy: LogCopy) -> Position:
        """The last message that a copy has synced."""
        return self._progress.reached(copy)

    # --- news ---------------------------------------------------------------------------------

    def synced(self, copy: LogCopy, through: Position) -> None:
        """A copy has synced everything up to a message of this history."""
        before = self._progress.committed
        self._progress.synced(copy, through)
        if copy not in self._progress.confirmed:
            self._due.set()
        self._changed.set()
        if self._progress.committed != before:
            self._on_advance()

    def failed(self, copy: LogCopy) -> None:
        """A copy is lost, or has held up a message for too long."""
        self._progress.failed(copy)
        self._due.set()

    def failed_store(self, node_id: str) -> None:
        """A store is not fed at the moment: all copies of it fail."""
        self._progress.failed_store(node_id)
        self._due.set()

    def need(self, isr_min: int) -> None:
        """The placement asks for this many members. If it asks for fewer than before, messages
        that waited for more members may be committed."""
        before = self._progress.committed
        self._isr_min = isr_min
        self._progress.need(isr_min)
        if self._progress.committed != before:
            self._on_advance()

    def close(self) -> None:
        """The view ended: nothing is waited for any more."""
        self._closed = True
        self._changed.set()

    def leave(self, nodes: frozenset[str]) -> None:
        """The copies of these stores shall not be members, because they are replicas no more."""
        self._progress.leave(nodes)
        self._due.set()

    # --- waiting ------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds, or the view ended. It is checked whenever a copy synced or a
        change was confirmed."""
        while not self._closed and not holds():
            self._changed.clear()
            await self._changed.wait()

    async def removed(self, copy: LogCopy) -> None:
        """Wait until a copy that failed is certainly no member."""
        await self.until(lambda: not self.is_required(copy))

    async def opened(self) -> None:
        """Wait until every required copy has synced the opening."""
        progress = self._progress
        await self.until(
            lambda: all(progress.reached(copy) >= self._opening for copy in progress.required)
        )

    # --- changes ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write the changes that are due, until cancelled. Raises Deposed."""
        failures = 0
        while True:
            change = self._progress.due()
            if change is None:
                failures = 0
                self._due.clear()
                await self._due.wait()
                continue
            error = await self._write(change)
            self._changed.set()
            if error is not None:
                failures += 1
                _log.warning(
                    "the in-sync replicas of a log cannot be changed yet",
                    container=self._led.container, failures=failures, error=str(error),
                )  # fmt: skip
                await self._led.around.clock.sleep(self._led.around.back_off_s(failures))

    async def _write(self, change: Change) -> AnabranchError | None:
        """Write one change; returns the error after which its outcome is unknown."""
        led, around = self._led, self._led.around
        self._progress.proposed(change)
        try:
            async with asyncio.timeout(around.pace.register_s):
                replicas = await around.register.change(
                    led.container, led.container_epoch, change.isr
                )
        except (Deposed, WrongHost) as error:
            raise led.deposed(error) from error
        except (Unavailable, OutcomeUnknown) as error:
            return self._unknown(error)
        except TimeoutError:
            return self._unknown(Unavailable("the placement was not changed in time"))
        _log.info(
            "the in-sync replicas of a log changed",
            container=led.container, container_epoch=led.container_epoch,
            isr=[copy.node_id for copy in change.isr],
        )  # fmt: skip
        self._progress.settled(confirmed=True)
        self._on_replicas(replicas)
        self._on_advance()
        return None

    def _unknown(self, error: AnabranchError) -> AnabranchError:
        self._progress.settled(confirmed=False)
        self._on_advance()
        return error
