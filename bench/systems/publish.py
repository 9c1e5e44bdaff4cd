"""Bare `publish` to a stream on the servers of a cluster: what JetStream alone takes.

The stream is as the log of a container: on file storage, with a number of replicas. Messages carry
no expected place, no chain and no checksum, and there is no store between the publisher and NATS.
"""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import PubAck, StorageType, StreamConfig, StreamInfo

from anabranch.common.adapters.nats_monitor import ask_monitor
from anabranch.common.contracts.subjects import log_stream
from anabranch.common.errors import Unavailable

STREAM = "BARE"
SUBJECT = "bare.messages"
TIMEOUT_S = 60.0
GROWTH_S = 0.3
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


async def are_current(monitor_urls: Sequence[str]) -> bool:
    """Whether the NATS servers with these monitoring ports have caught up in all their streams."""
    try:
        health = [await ask_monitor(url, "healthz") for url in monitor_urls]
    except Unavailable:  # also an answer other than 200
        return False
    return all(found.get("status") == "ok" for found in health)


async def leader_of_growing_log(client: Client, seconds: float = GROWTH_S) -> str:
    """The name of the server that leads the log to which most messages come meanwhile."""
    before = await _logs(client)
    await asyncio.sleep(seconds)
    after = await _logs(client)
    grown = {name: info.state.last_seq - before[name].state.last_seq
             for name, info in after.items() if name in before}  # fmt: skip
    cluster = after[max(grown, key=grown.__getitem__)].cluster
    assert cluster is not None, "the log is on one server"
    assert cluster.leader is not None, "the log has no leader"
    return cluster.leader


async def _logs(client: Client) -> dict[str, StreamInfo]:
    found = await client.jetstream(timeout=TIMEOUT_S).streams_info()
    return {
        info.config.name: info
        for info in found
        if info.config.name is not None and info.config.name.startswith(LOGS)
    }


async def stored_in_logs(client: Client) -> tuple[int, int]:
    """The messages, and their bytes, in all logs of the cluster. Purged ones do not count."""
    logs = (await _logs(client)).values()
    return sum(log.state.messages for log in logs), sum(log.state.bytes for log in logs)
