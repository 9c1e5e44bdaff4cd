"""NATS JetStream: one stream on file storage, one replica, `publish_async` with its own window.

As installed it acknowledges what is in the page cache and syncs every two minutes (D1);
`sync_interval: always` syncs every message before the acknowledgement (D2).
"""

import json
from asyncio import Future, Queue
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy, KeyValueConfig, PubAck, StorageType, StreamConfig

from anabranch.cli.up.binaries import find_nats_server
from anabranch.cli.up.ports import LOOPBACK, choose_port
from anabranch.common.runtime.ids import SystemIds, system_rng
from bench.case import Case
from bench.systems.jetstream_table import BUCKET, JetStreamTable
from bench.systems.port import Durability, Label
from bench.systems.process import answers, server

STREAM = "BENCH"
SUBJECT = "bench.events"
PENDING_MAX = 4_000
_READ_EVENTS = 500
_UNREAD_COUNT_MAX = 10_000_000
_UNREAD_BYTES_MAX = 8 * 2**30


class JetStreamStream:
    """The stream `BENCH`, fresh."""

    sends_in_flight_max = 256

    def __init__(self, client: NatsClient, context: JetStreamContext) -> None:
        self._nats = client
        self._context = context
        self._ids = SystemIds()

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        publish = self._context.publish_async
        waiting: deque[Future[PubAck]] = deque()
        for batch in batches:
            for event in batch:
                waiting.append(await publish(SUBJECT, event))
            while waiting and waiting[0].done():
                waiting.popleft().result()
        await self._context.publish_async_completed()
        for ack in waiting:
            ack.result()

    async def append(self, event: bytes) -> None:
        await self._context.publish(SUBJECT, event)

    async def send(self, events: Sequence[bytes]) -> None:
        acks = [await self._context.publish_async(SUBJECT, event) for event in events]
        for ack in acks:
            await ack

    @asynccontextmanager
    async def transactors(
        self, count: int
    ) -> AsyncIterator[Sequence[Callable[[Sequence[bytes]], Awaitable[None]]]]:
        yield [self._store_batch] * count

    async def _store_batch(self, events: Sequence[bytes]) -> None:
        """As an atomic batch: all but the last are acknowledged by nothing."""
        batch = self._ids.new_id()
        for number, event in enumerate(events[:-1], start=1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._nats.publish(SUBJECT, event, headers=headers)
        last = {
            "Nats-Batch-Id": batch,
            "Nats-Batch-Sequence": str(len(events)),
            "Nats-Batch-Commit": "1",
        }
        await self._context.publish(SUBJECT, events[-1], headers=last)

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        held = (await self._context.stream_info(STREAM)).state.messages
        if held == 0:
            return
        async with self._ordered(DeliverPolicy.ALL) as messages:
            batch: list[bytes] = []
            for left in range(held - 1, -1, -1):
                batch.append(await messages.get())
                if len(batch) == _READ_EVENTS or left == 0:
                    yield batch
                    batch = []

    @asynccontextmanager
    async def tail(self) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        async with self._ordered(DeliverPolicy.NEW) as messages:
            yield _as_they_come(messages)

    @asynccontextmanager
    async def _ordered(self, policy: DeliverPolicy) -> AsyncIterator[Queue[bytes]]:
        messages: Queue[bytes] = Queue()

        async def keep(message: Msg) -> None:
            messages.put_nowait(message.data)

        subscription = await self._context.subscribe(
            SUBJECT,
            cb=keep,
            ordered_consumer=True,
            deliver_policy=policy,
            pending_msgs_limit=_UNREAD_COUNT_MAX,
            pending_bytes_limit=_UNREAD_BYTES_MAX,
        )
        try:
            yield messages
        finally:
            await subscription.unsubscribe()


class JetStream:
    """A NATS server of its own, from the same program that the embedded cluster runs."""

    def __init__(self, *, synced: bool) -> None:
        durability: Durability = "D2" if synced else "D1"
        self.label = Label("jetstream", "sync always" if synced else "default", durability)
        self._synced = synced
        self._client: NatsClient | None = None
        self._pid = 0

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        port = choose_port(0, system_rng())
        config = directory / "nats.conf"
        config.write_text(_config(port, directory / "store", synced=self._synced))
        command = (str(await find_nats_server()), "--config", str(config))
        address = f"nats://{LOOPBACK}:{port}"

        async def is_ready() -> bool:
            if not await answers(port):
                return False
            self._client = await nats.connect(address, allow_reconnect=False)
            return True

        async with server(command, directory / "log", is_ready) as self._pid:
            assert self._client is not None
            try:
                yield
            finally:
                await self._client.close()

    def pids(self) -> list[int]:
        return [self._pid]

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[JetStreamStream]:  # noqa: ARG002
        assert self._client is not None, "the server does not run"
        context = self._client.jetstream(timeout=60, publish_async_max_pending=PENDING_MAX)
        await context.add_stream(
            StreamConfig(
                name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE, allow_atomic=True
            )
        )
        try:
            yield JetStreamStream(self._client, context)
        finally:
            await context.delete_stream(STREAM)

    @asynccontextmanager
    async def table(self) -> AsyncIterator[JetStreamTable]:
        """A fresh bucket of the key-value store, deleted after the block."""
        assert self._client is not None, "the server does not run"
        context = self._client.jetstream(timeout=60, publish_async_max_pending=PENDING_MAX)
        config = KeyValueConfig(BUCKET, storage=StorageType.FILE, direct=True)
        bucket = await context.create_key_value(config)
        try:
            yield JetStreamTable(bucket, context)
        finally:
            await context.delete_key_value(BUCKET)


def _config(port: int, store: Path, *, synced: bool) -> str:
    sync = "sync_interval: always" if synced else ""
    return f"""
listen: {json.dumps(f"{LOOPBACK}:{port}")}
jetstream {{
  store_dir: {json.dumps(str(store))}
  {sync}
}}
"""


async def _as_they_come(messages: "Queue[bytes]") -> AsyncIterator[Sequence[bytes]]:
    while True:
        batch = [await messages.get()]
        while not messages.empty():
            batch.append(messages.get_nowait())
        yield batch
