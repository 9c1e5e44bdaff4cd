"""Load reports over NATS: every controller receives all of them."""

from collections.abc import Callable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.load import LOAD_REPORT_SIZE_BYTES_MAX, LoadReport
from anabranch.common.contracts.subjects import load_report
from anabranch.controller.metrics import ControllerMetrics

WAITING_MAX = 64
"""Reports; the NATS client drops further ones, which receivers notice by the sequence."""

_log = structlog.get_logger(__name__)


class LoadReportListener:
    """Passes every valid report to `learn`."""

    def __init__(
        self, client: Client, learn: Callable[[LoadReport], None], metrics: ControllerMetrics
    ) -> None:
        self._client = client
        self._learn = learn
        self._metrics = metrics

    async def serve(self) -> None:
        """Listen until cancelled, or until the connection is closed. Raises Unavailable."""
        with as_unavailable("subscribe to load reports"):
            subscription = await self._client.subscribe(
                load_report("*"), pending_msgs_limit=WAITING_MAX
            )
        async for message in subscription.messages:
            self._receive(message)

    def _receive(self, message: Msg) -> None:
        try:
            report = _parsed(message)
        except ValueError as error:  # pydantic's are of this kind
            self._metrics.load_reports["unreadable",] += 1
            _log.debug("a load report is malformed", subject=message.subject, error=str(error))
            return
        self._metrics.load_reports["learned",] += 1
        self._learn(report)


def _parsed(message: Msg) -> LoadReport:
    """Raises ValueError."""
    if len(message.data) > LOAD_REPORT_SIZE_BYTES_MAX:
        raise ValueError("the report is too large")
    report = LoadReport.model_validate_json(message.data)
    if message.subject != load_report(report.node_id):
        raise ValueError("the report's node differs from its subject")
    return report
