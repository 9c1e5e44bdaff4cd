"""Reads a JetStream stream in order, without end, through ephemeral pull consumers.

The server sends stored messages and then new ones, in batches that the reader requests, so it never
floods a slow reader. The reader drops a consumer if its numbering jumps (messages were lost), if
the connection was re-established (messages may have been lost), if it is silent beyond its
heartbeats, or if the server ends it. A new consumer then starts after the last delivered message.
So the reader delivers every message once and in order.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from anabranch.common.adapters.nats_connection import as_unavailable, keeping_cancellation
from anabranch.common.errors import StreamRewound, Unavailable
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng, system_rng

BATCH_COUNT = 1024
BATCH_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The size of one request, so that large messages do not pile up before a slow reader."""
PULL_EXPIRES_S = 30.0
HEARTBEAT_S = 1.0
LISTEN_S = 0.5
"""How long a re-established connection can go unnoticed."""
SILENCE_COUNT_MAX = 6
"""Waits of `LISTEN_S` without even a heartbeat before the reader drops the consumer.

A consumer is on one server. If that dies, its readers get no news for so long, and a fail-over may
wait for them."""
CONSUMER_IDLE_S = 60.0
READ_FAILURES_MAX = 5
"""The consecutive consumers that a finite read may lose."""
RETRIES = Backoff(first_s=0.2, longest_s=2.0)
_HEARTBEAT_STATUS = "100"


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A stored message.

    `remaining`: the number of messages that followed in the consumer when it was sent. `stored_ms`:
    the time at which the server stored it, by the server's clock.
    """

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes
    remaining: int
    stored_ms: int = 0


class _ConsumerLost(Exception):
    """The consumer may have failed to deliver a message."""


class StreamReader:
    """Reads one stream, or one subject filter of it.

    `missing_is_empty`: a missing stream counts as empty, so that a reader of its messages detects
    the loss; otherwise the reader waits for it.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        stream: str,
        subject_filter: str,
        *,
        missing_is_empty: bool = False,
        rng: Rng | None = None,
    ) -> None:
        self._client = client
        self._js = client.jetstream()
        self._clock = clock
        self._rng = rng or system_rng()
        self._stream = stream
        self._filter = subject_filter
        self._missing_is_empty = missing_is_empty

    async def last_sequence(self) -> int:
        """Read the sequence of the stream's newest message from its leader; 0 without messages."""
        with as_unavailable("describe the stream", stream=self._stream):
            try:
                info = await self._js.stream_info(self._stream)
            except nats.js.errors.NotFoundError:
                if self._missing_is_empty:
                    return 0
                raise
        return int(info.state.last_seq)

    async def follow(self, after_sequence: int) -> AsyncIterator[StreamMessage]:
        """Yield every message after `after_sequence`, in order, without end.

        Raises StreamRewound.
        """
        reached = after_sequence
        failures = 0
        while True:
            try:
                async for message in self._consume(reached):
                    reached = message.sequence
                    failures = 0
                    yield message
            except (_ConsumerLost, Unavailable):
                failures += 1
                await self._clock.sleep(RETRIES.delay_s(failures, self._rng.random()))

    async def read(self, first: int, last: int) -> AsyncIterator[StreamMessage]:
        """Yield every message from sequence `first` to `last`, in order. Raises Unavailable."""
        at, failures = first, 0
        while at <= last:
            present = self._present(at)
            try:
                async for message in present:
                    if message.sequence > last:
                        return
                    at, failures = message.sequence + 1, 0
                    yield message
                return
            except (_ConsumerLost, Unavailable) as error:
                failures += 1
                if failures > READ_FAILURES_MAX:
                    raise Unavailable("reading was interrupted", stream=self._stream) from error
                await self._clock.sleep(RETRIES.delay_s(failures, self._rng.random()))
            finally:
                await present.aclose()

    async def _present(self, first: int) -> AsyncGenerator[StreamMessage, None]:
        """Yield the stored messages from `first` on; delete the consumer at the end.

        A process may make many reads per second, and a server holds a limited number of consumers.
        """
        config = self._config(DeliverPolicy.BY_START_SEQUENCE, first)
        with as_unavailable("open a consumer", stream=self._stream):
            info = await self._js.add_consumer(self._stream, config)
        messages = _Consumer(self._client, self._stream, info.name).messages()
        try:
            if info.num_pending:
                async for message in messages:
                    yield message
                    if message.remaining == 0:
                        return
        finally:
            await messages.aclose()
            await self._drop(info.name)

    async def _drop(self, consumer: str) -> None:
        # The server drops a remaining consumer after some time without use.
        with suppress(nats.errors.Error, OSError, TimeoutError), keeping_cancellation():
            await self._js.delete_consumer(self._stream, consumer)

    async def _consume(self, after_sequence: int) -> AsyncIterator[StreamMessage]:
        newest = await self.last_sequence()
        if newest < after_sequence:
            raise StreamRewound(
                "the stream ends before the last message that was read",
                stream=self._stream,
                read=after_sequence,
                newest=newest,
            )
        config = self._config(DeliverPolicy.BY_START_SEQUENCE, after_sequence + 1)
        with as_unavailable("open a consumer", stream=self._stream):
            info = await self._js.add_consumer(self._stream, config)
        messages = _Consumer(self._client, self._stream, info.name).messages()
        try:
            async for message in messages:
                yield message
        finally:
            await messages.aclose()

    def _config(self, policy: DeliverPolicy, start: int | None) -> ConsumerConfig:
        return ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._filter,
            inactive_threshold=CONSUMER_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        )


class _Consumer:
    """One ephemeral consumer and the requests that pull from it.

    The client's own way to await a message starts two tasks for each; messages that have arrived
    together are taken from `_received` without.
    """

    def __init__(self, client: Client, stream: str, name: str) -> None:
        self._client = client
        self._reconnects = client.stats["reconnects"]
        self._request_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._inbox = client.new_inbox()
        self._received: deque[Msg] = deque()
        """Bounded by the size of a request."""
        self._arrived = asyncio.Event()

    async def messages(self) -> AsyncGenerator[StreamMessage, None]:
        """Yield messages as they arrive. Raises _ConsumerLost."""
        subscription = await self._subscribe()
        numbered = 0
        try:
            while True:
                await self._pull()
                asked = BATCH_COUNT
                while asked:
                    received = await self._next()
                    if received.headers and "Status" in received.headers and not received.reply:
                        if received.headers["Status"] == _HEARTBEAT_STATUS:
                            continue
                        break
                    numbered += 1
                    asked -= 1
                    yield _checked(received, numbered)
        finally:
            await self._unsubscribe(subscription)

    async def _subscribe(self) -> Subscription:
        with as_unavailable("subscribe"):
            return await self._client.subscribe(self._inbox, cb=self._receive)

    async def _receive(self, message: Msg) -> None:
        self._received.append(message)
        self._arrived.set()

    async def _unsubscribe(self, subscription: Subscription) -> None:
        try:
            await subscription.unsubscribe()
        except nats.errors.Error:
            return  # The subscription ended with the connection.

    async def _pull(self) -> None:
        request = {
            "batch": BATCH_COUNT,
            "max_bytes": BATCH_SIZE_BYTES_MAX,
            "expires": int(PULL_EXPIRES_S * 1e9),
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
        }
        with as_unavailable("pull from a consumer"):
            await self._client.publish(
                self._request_subject, json.dumps(request).encode(), reply=self._inbox
            )

    async def _next(self) -> Msg:
        for _ in range(SILENCE_COUNT_MAX):
            if not self._received:
                self._arrived.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LISTEN_S):
                        await self._arrived.wait()
            if self._client.is_closed or self._client.stats["reconnects"] != self._reconnects:
                raise _ConsumerLost
            if self._received:
                return self._received.popleft()
        raise _ConsumerLost


def _checked(received: Msg, numbered: int) -> StreamMessage:
    """Check that a received message is the consumer's number `numbered`, and return it."""
    metadata = received.metadata
    if metadata.sequence.consumer != numbered:
        raise _ConsumerLost
    return StreamMessage(
        subject=received.subject,
        sequence=metadata.sequence.stream,
        headers=received.headers or {},
        data=received.data,
        remaining=metadata.num_pending,
        stored_ms=int(metadata.timestamp.timestamp() * 1000),
    )
