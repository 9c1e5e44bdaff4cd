"""Live reports over NATS: every controller receives all of them."""

from collections.abc import Callable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.live import LIVE_REPORT_SIZE_BYTES_MAX, LiveReport
from anabranch.common.contracts.subjects import live_report

WAITING_MAX = 768
"""Reports; the NATS client drops further ones. The next full report repairs the loss."""

_log = structlog.get_logger(__name__)


class LiveReportListener:
    """Passes every valid report to `learn`."""

    def __init__(self, client: Client, learn: Callable[[LiveReport], None]) -> None:
        self._client = client
        self._learn = learn

    async def serve(self) -> None:
        """Listen until cancelled, or until the connection is closed. Raises Unavailable."""
        with as_unavailable("subscribe to live reports"):
            subscription = await self._client.subscribe(
                live_report("*"), pending_msgs_limit=WAITING_MAX
            )
        async for message in subscription.messages:
            self._receive(message)

    def _receive(self, message: Msg) -> None:
        try:
            report = _parsed(message)
        except ValueError as error:  # pydantic's are of this kind
            _log.debug("a live report is malformed", subject=message.subject, error=str(error))
            return
        self._learn(report)


def _parsed(message: Msg) -> LiveReport:
    """Raises ValueError."""
    if len(message.data) > LIVE_REPORT_SIZE_BYTES_MAX:
        raise ValueError("the report is too large")
    report = LiveReport.model_validate_json(message.data)
    if message.subject != live_report(report.node_id):
        raise ValueError("the report's node differs from its subject")
    return report
