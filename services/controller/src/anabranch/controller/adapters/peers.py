"""Sends a query to every other controller, on the subject of each."""

from collections.abc import Callable, Iterable

import structlog
from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.subjects import direct_query
from anabranch.common.errors import Unavailable
from anabranch.common.workflow.bounded import for_each

PEERS_AT_ONCE_MAX = 16

_log = structlog.get_logger(__name__)


class Peers:
    """`live` names the live controllers; the query is not sent to the one called `me`."""

    def __init__(self, client: Client, live: Callable[[], Iterable[str]], me: str) -> None:
        self._client = client
        self._live = live
        self._me = me

    async def ask_peers(
        self, name: str, payload: bytes, timeout_s: float
    ) -> list[tuple[str, bytes]]:
        """(controller id, encoded answer) of every controller that answered in time, by id.

        A controller that does not answer is omitted: it may have ended a moment ago.
        """
        answers: dict[str, bytes] = {}

        async def ask(peer: str) -> None:
            try:
                with as_unavailable("ask a controller", controller=peer):
                    reply = await self._client.request(
                        direct_query(peer, name), payload, timeout=timeout_s
                    )
            except Unavailable as error:
                _log.info(
                    "a controller did not answer", controller=peer, query=name, why=str(error)
                )
                return
            answers[peer] = reply.data

        await for_each(sorted(set(self._live()) - {self._me}), PEERS_AT_ONCE_MAX, ask)
        return sorted(answers.items())
