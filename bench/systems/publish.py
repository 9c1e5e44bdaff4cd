"""Bare `publish` to a stream on the servers of a cluster: what JetStream alone takes.

The stream is as the log of a container: on file storage, with a number of replicas. Messages carry
no expected place, no chain and no checksum, and there is no store between the publisher and NATS.
"""

from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import PubAck, StorageType, StreamConfig

from anabranch.common.contracts.subjects import log_stream

STREAM = "BARE"
SUBJECT = "bare.messages"
TIMEOUT_S = 60.0
LOGS = log_stream("")
"""How the names of all logs' streams begin."""


class BareStream:
    """The stream `BARE`, fresh."""

    def __init__(self, context: JetStreamContext) -> None:
        self._context = context

    async def publish_all(self, message: bytes, count: int) -> None:
        """Publish so many messages with the context's window; return when all are acknowledged."""
        waiting: deque[Future[PubAck]] = deque()
        for _ in range(count):
            waiting.append(await self._context.publish_async(SUBJECT, message))
            while waiting and waiting[0].done():
                waiting.popleft().result()
        await self._context.publish_async_completed()
        for ack in waiting:
            ack.result()

    async def publish(self, message: bytes) -> None:
        """Publish a message and wait for its acknowledgement."""
        await self._context.publish(SUBJECT, message)


@asynccontextmanager
async def bare_stream(client: Client, replicas: int, window: int) -> AsyncIterator[BareStream]:
    """A fresh stream, deleted after the block. `window`: the most messages in flight."""
    context = client.jetstream(timeout=TIMEOUT_S, publish_async_max_pending=window)
    await context.add_stream(
        StreamConfig(
            name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE, num_replicas=replicas
        )
    )
    try:
        yield BareStream(context)
    finally:
        await context.delete_stream(STREAM)


async def stored_in_logs(client: Client) -> tuple[int, int]:
    """The messages, and their bytes, in all logs of the cluster. Purged ones do not count."""
    messages = size = 0
    for info in await client.jetstream(timeout=TIMEOUT_S).streams_info():
        if (info.config.name or "").startswith(LOGS):
            messages += info.state.messages
            size += info.state.bytes
    return messages, size
