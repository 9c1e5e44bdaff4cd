"""Reports the store's load to the controllers, once per period.

    count ──period over──► report ──► published, or counted as a failure
      ▲                      │
      └──────next period─────┘

A period is over after `busy_s` if anything was written in it, so that auto-scaling sees a load that
rises within seconds, and otherwise after `period_s`. A store in which very many segments are
written to keeps the long period: its reports are large, and each controller reads all of them.

At the end of each period the busiest segments of the store are chosen; their keys are sampled in
the next one.

No request waits for a report, and no report is kept: if one cannot be sent it is lost, and the gap
in the sequence numbers shows this to the receivers.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.domain.load.report import (
    ContainerTraffic,
    Period,
    encoded,
    load_report,
)
from anabranch.segstore.domain.load.sketch import planned
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.node.store import Store

PUBLISH_S_MAX = 1.0
BUSY_SEGMENTS_MAX = 1000
"""With more of them in a short period, the period goes on."""

Publish = Callable[[bytes], Awaitable[None]]
"""Publishes a report to all subscribers. Raises Unavailable."""

_log = structlog.get_logger(__name__)


class LoadReporter:
    """One process's reports. `session` is drawn anew for each process."""

    def __init__(
        self,
        store: Store,
        publish: Publish,
        *,
        node_id: str,
        session: str,
        period_s: float,
        busy_s: float,
        clock: Clock,
        metrics: StoreMetrics,
    ) -> None:
        self._store = store
        self._publish = publish
        self._node_id = node_id
        self._session = session
        self._period_s = period_s
        self._busy_s = min(busy_s, period_s)
        self._clock = clock
        self._metrics = metrics
        self._sequence = 0
        self._failing = False

    async def run(self) -> None:
        """Report until cancelled. A period ends where the next one begins."""
        clock = self._clock
        began_s, start_ms = clock.monotonic(), clock.now_ms()
        while True:
            await self._period_over(began_s)
            ended_s, ended_ms = clock.monotonic(), clock.now_ms()
            report = self._report(start_ms, max(1, round((ended_s - began_s) * 1000)))
            began_s, start_ms = ended_s, ended_ms
            await self._send(report)

    async def _period_over(self, began_s: float) -> None:
        """Wait for the end of the period: look every `busy_s` whether it has come."""
        end_s, look_s = began_s + self._period_s, began_s
        while look_s < end_s:
            look_s = min(look_s + self._busy_s, end_s)
            await self._clock.sleep(max(0.0, look_s - self._clock.monotonic()))
            if self._is_busy():
                return

    def _is_busy(self) -> bool:
        open_containers = self._store.open_containers()
        count = sum(found.container.notices.traffic.segment_count for found in open_containers)
        return 0 < count <= BUSY_SEGMENTS_MAX

    def _report(self, start_ms: int, length_ms: int) -> bytes:
        self._sequence += 1
        due_ms = round(self._period_s * 1000)
        period = Period(self._node_id, self._session, self._sequence, start_ms, length_ms, due_ms)
        containers = [found.container for found in self._store.open_containers()]
        flows = [found.notices.traffic.flows(length_ms / 1000) for found in containers]
        traffic = [
            ContainerTraffic(found.container, found.container_epoch, found.notices.traffic.take())
            for found in containers
        ]
        for found, plans in zip(containers, planned(flows, length_ms / 1000), strict=True):
            found.notices.traffic.sketch(plans)
        return encoded(load_report(period, traffic))

    async def _send(self, report: bytes) -> None:
        try:
            async with asyncio.timeout(PUBLISH_S_MAX):
                await self._publish(report)
        except (AnabranchError, TimeoutError) as error:
            self._metrics.load_report_failures += 1
            self._tell(error)
        else:
            self._metrics.load_reports += 1
            self._failing = False

    def _tell(self, error: AnabranchError | TimeoutError) -> None:
        """Log a failure, once per run of failures."""
        if not self._failing:
            self._failing = True
            found = error if isinstance(error, AnabranchError) else Unavailable("no answer in time")
            _log.warning("cannot send a load report", code=found.code, error=str(found))
