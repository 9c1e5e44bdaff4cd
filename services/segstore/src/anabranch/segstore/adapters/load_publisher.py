"""Load reports over NATS: each is published once, to all subscribers."""

from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable


class LoadPublisher:
    """Publishes for one node, and only while connected, because a late report is useless."""

    def __init__(self, client: Client, node_id: str) -> None:
        self._client = client
        self._subject = subjects.load_report(node_id)

    async def __call__(self, report: bytes) -> None:
        """Raises Unavailable."""
        if not self._client.is_connected:
            raise Unavailable("the connection to NATS is lost")
        with as_unavailable("publish a load report"):
            await self._client.publish(self._subject, report)
