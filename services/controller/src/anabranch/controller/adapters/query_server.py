"""Queries over NATS: bounded, several concurrently, one answer each.

Queries that wait for other services (`slow`) have a queue of their own. A segment store that does
not answer therefore delays no query that the controller can answer by itself. If the queue is full,
the query is answered with `Overloaded` at once. Controllers share the subjects by a queue group;
each controller also has subjects of its own for peers and clients. An answer carries such a subject
as its reply subject, so that the caller can send further queries to the same controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.contracts.subjects import QUERY_GROUP, direct_query, query
from anabranch.common.errors import Overloaded

CONCURRENT_MAX = 128
"""Per queue; nearly all queries that need no other service are answered without waiting."""
WAITING_MAX = 1024

_Waiting = asyncio.Queue[tuple[str, Msg]]

_log = structlog.get_logger(__name__)


class QueryServer:
    """Answers the named queries with `answer(name, request)`; `slow` is a subset of the names.

    Peers and clients address this controller by `controller_id`.
    """

    def __init__(
        self,
        client: Client,
        names: Iterable[str],
        answer: Callable[[str, Envelope], Awaitable[bytes]],
        controller_id: str,
        slow: Collection[str] = (),
    ) -> None:
        self._client = client
        self._names = tuple(names)
        self._answer = answer
        self._controller_id = controller_id
        self._slow = frozenset(slow)
        self._waiting: _Waiting = asyncio.Queue(WAITING_MAX)
        self._waiting_slow: _Waiting = asyncio.Queue(WAITING_MAX)

    async def serve(self) -> None:
        """Answer until cancelled; queries that were received by then stay unanswered."""
        subscriptions = []
        try:
            for name in self._names:
                subjects = ((query(name), QUERY_GROUP), (self._direct(name), ""))
                for subject, group_name in subjects:
                    with as_unavailable("subscribe to queries", query=name):
                        subscriptions.append(
                            await self._client.subscribe(
                                subject, queue=group_name, cb=self._receiver(name)
                            )
                        )
            async with asyncio.TaskGroup() as group:
                for _ in range(CONCURRENT_MAX):
                    group.create_task(self._work(self._waiting))
                    group.create_task(self._work(self._waiting_slow))
        finally:
            for subscription in subscriptions:
                await _unsubscribe(subscription.unsubscribe)

    def _direct(self, name: str) -> str:
        return direct_query(self._controller_id, name)

    def _receiver(self, name: str) -> Callable[[Msg], Awaitable[None]]:
        waiting = self._waiting_slow if name in self._slow else self._waiting

        async def receive(message: Msg) -> None:
            try:
                waiting.put_nowait((name, message))
            except asyncio.QueueFull:
                full = Overloaded("too many queries wait", waiting=WAITING_MAX)
                refusal = QueryFailed(error=ErrorBody.of(full))
                await self._respond(name, message, refusal.model_dump_json().encode())

        return receive

    async def _work(self, waiting: _Waiting) -> None:
        while True:
            name, message = await waiting.get()
            request = Envelope.received(message.data, message.headers)
            answer = await self._answer(name, request)
            await self._respond(name, message, answer)

    async def _respond(self, name: str, message: Msg, answer: bytes) -> None:
        if not message.reply:
            return
        try:
            await self._client.publish(message.reply, answer, reply=self._direct(name))
        except nats.errors.Error as error:
            _log.warning("cannot send an answer", error=repr(error))


async def _unsubscribe(unsubscribe: Callable[[], Awaitable[None]]) -> None:
    try:
        await unsubscribe()
    except nats.errors.Error:
        return  # the closed connection has ended the subscription
