"""The loop that deletes a container's garbage from tier 2.

It calls `TierTwo.collect` for batch after batch while garbage is due, and rests in between. A
failure is retried later, because an object that stays costs only space. If the owner is deposed or
a page of the catalog is damaged, the loop deletes nothing more and the container ends, as after a
flush.
"""

import structlog

from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    Deposed,
    DiskFailed,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.container import Container

REST_S = 10.0
REST_AFTER_FAILURE_S = 60.0

_log = structlog.get_logger(__name__)


class Collector:
    """The collection loop of one open container."""

    def __init__(self, container: Container, tier_two: TierTwo, clock: Clock) -> None:
        self._container = container
        self._tier_two = tier_two
        self._clock = clock

    async def run(self) -> None:
        """Collect until the container ends, or until cancelled."""
        failing = False
        while self._container.failure is None:
            rest_s = REST_S
            try:
                more = await self._tier_two.collect()
                rest_s = 0.0 if more else REST_S
                failing = False
            except (Deposed, Corrupt) as ended:
                self._container.fail(ended)
                return
            except (DiskFailed, Unavailable, OutcomeUnknown, OSError) as error:
                if not failing:
                    self._report(error)
                failing = True
                rest_s = REST_AFTER_FAILURE_S
            await self._clock.sleep(rest_s)

    def _report(self, error: AnabranchError | OSError) -> None:
        _log.warning(
            "garbage collection in tier 2 failed, retrying",
            container=self._container.container,
            error=str(error),
            remedy=getattr(error, "remedy", "check the permission to delete objects of tier 2"),
        )
