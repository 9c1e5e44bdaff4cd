"""The loop that returns a container's space in tier 2: it deletes garbage and rewrites objects.

It calls `TierTwo.collect` for batch after batch while garbage is due. When none is left, it calls
`TierTwo.rewrite`, and asks for a flush if that made copies: the flush replaces the originals, which
are garbage from then on. In between it rests. Garbage goes first, because a rewrite needs space.

A failure is retried later, because an object that stays costs only space. If the owner is deposed,
a page of the catalog is damaged, or a sync of tier 2 failed, the loop does nothing more and the
container ends, as after a flush.
"""

from collections.abc import Callable

import structlog

from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    Deposed,
    DiskFailed,
    OutcomeUnknown,
    SyncFailed,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.container import Container

REST_S = 10.0
REST_AFTER_COPIES_S = 1.0
REST_AFTER_FAILURE_S = 60.0

_log = structlog.get_logger(__name__)


class Collector:
    """The collection loop of one open container."""

    def __init__(
        self, container: Container, tier_two: TierTwo, clock: Clock, hurry: Callable[[], None]
    ) -> None:
        """`hurry` asks for a flush."""
        self._container = container
        self._tier_two = tier_two
        self._clock = clock
        self._hurry = hurry

    async def run(self) -> None:
        """Collect and rewrite until the container ends, or until cancelled."""
        failing = False
        while self._container.failure is None:
            rest_s = REST_S
            try:
                rest_s = await self._step()
                failing = False
            except (Deposed, Corrupt, SyncFailed) as ended:
                self._container.fail(ended)
                return
            except (DiskFailed, Unavailable, OutcomeUnknown, OSError) as error:
                if not failing:
                    self._report(error)
                failing = True
                rest_s = REST_AFTER_FAILURE_S
            await self._clock.sleep(rest_s)

    async def _step(self) -> float:
        """Delete some garbage, or else rewrite some objects; returns the seconds to rest then."""
        if await self._tier_two.collect():
            return 0.0
        if self._container.serving and await self._tier_two.rewrite():
            self._hurry()
            return REST_AFTER_COPIES_S
        return REST_S

    def _report(self, error: AnabranchError | OSError) -> None:
        _log.warning(
            "garbage collection in tier 2 failed, retrying",
            container=self._container.container,
            error=str(error),
            remedy=getattr(error, "remedy", "check the permission to delete objects of tier 2"),
        )
