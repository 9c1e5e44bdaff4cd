"""Reports over NATS: each is published once, to all subscribers."""

from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.errors import Unavailable


class ReportPublisher:
    """Publishes on one subject, and only while connected, because a late report is useless."""

    def __init__(self, client: Client, subject: str) -> None:
        self._client = client
        self._subject = subject

    async def __call__(self, report: bytes) -> None:
        """Raises Unavailable."""
        if not self._client.is_connected:
            raise Unavailable("the connection to NATS is lost")
        with as_unavailable("publish a report"):
            await self._client.publish(self._subject, report)
