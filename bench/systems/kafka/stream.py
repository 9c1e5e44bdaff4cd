"""A topic as a stream of the benchmark, by the Python client `confluent-kafka`.

Events are acknowledged by all replicas that are in sync (`acks=all`) and are not compressed.

bulk          `produce_batch`, which takes one dict per event; batches of 1 MiB, linger 5 ms
one by one    `produce` with linger 0. The caller itself polls for the acknowledgement, which is
              faster than a thread that polls and wakes it
open loop     `produce_batch` with linger 0, and a thread that polls
transactions  one producer and one thread for each caller

One by one and in an open loop one request is in flight. A broker answers the requests of a
connection one after the other, so others only wait there. Events that wait in the client instead
become one batch.

Only the last event of an open loop's batch has a delivery report, and in bulk no event has one:
reports cost more than the events. A lost event is found when everything is read back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from threading import Event
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from anabranch.common.errors import Unavailable
from bench.systems.kafka.batches import Message, queue_all
from bench.systems.kafka.reading import read_until, tailing, threads
from bench.systems.kafka.topics import QUIET, REQUEST_SECONDS_MAX, Topic, ends

FLUSH_SECONDS_MAX = 600.0
ACKNOWLEDGE_SECONDS_MAX = 60.0
BULK_LINGER_MS = 5
NOTHING_MORE: Mapping[str, object] = {}
_POLL_SECONDS = 0.05
_MIB = 2**20


class KafkaStream:
    """A topic, empty at first. `close` it."""

    sends_in_flight_max = 256

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._stack = AsyncExitStack()
        self._bulk: Any = None
        self._prompt: Any = None
        self._is_polled = False

    async def close(self) -> None:
        """Stop the threads. Nothing is under way any more."""
        await self._stack.aclose()
        self._bulk = self._prompt = None

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        await asyncio.to_thread(self._write_all, batches, None)

    async def write_all_keyed(
        self, batches: Iterable[Sequence[bytes]], keys: Sequence[str]
    ) -> None:
        await asyncio.to_thread(self._write_all, batches, keys)

    def _write_all(self, batches: Iterable[Sequence[bytes]], keys: Sequence[str] | None) -> None:
        self._bulk = self._bulk or _producer(self._topic, linger_ms=BULK_LINGER_MS)
        known: Sequence[bytes] | None = None
        messages: list[Message] = []
        for batch in batches:
            if batch is not known:  # the pool comes again and again
                known, messages = batch, _messages(batch, keys)
            queue_all(self._bulk, self._topic.name, messages)
            self._bulk.poll(0)
        if self._bulk.flush(FLUSH_SECONDS_MAX):
            raise Unavailable("the brokers did not acknowledge all events", topic=self._topic.name)

    async def append(self, event: bytes) -> None:
        reports: list[KafkaError | None] = []
        producer = self._prompt_producer()
        producer.produce(
            self._topic.name, event, on_delivery=lambda error, _: reports.append(error)
        )
        await asyncio.sleep(0)  # events of other tasks travel with this one
        while not reports:
            producer.poll(_POLL_SECONDS)
        _raise_for(reports[0])

    async def send(self, events: Sequence[bytes]) -> None:
        producer = self._prompt_producer()
        await self._ensure_polled(producer)
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[KafkaError | None] = loop.create_future()

        def report(error: KafkaError | None, _: object) -> None:
            loop.call_soon_threadsafe(_settle, acknowledged, error)

        messages = _messages(events, None)
        messages[-1]["callback"] = report
        queue_all(producer, self._topic.name, messages)
        async with asyncio.timeout(ACKNOWLEDGE_SECONDS_MAX):
            _raise_for(await acknowledged)

    def _prompt_producer(self) -> Any:
        one_at_once = {"max.in.flight.requests.per.connection": 1}
        self._prompt = self._prompt or _producer(self._topic, linger_ms=0, more=one_at_once)
        return self._prompt

    async def _ensure_polled(self, producer: Any) -> None:
        if self._is_polled:
            return
        self._is_polled = True
        stopping = Event()

        def poll() -> None:
            while not stopping.is_set():
                producer.poll(_POLL_SECONDS)

        pool = await self._stack.enter_async_context(threads(1))
        self._stack.callback(stopping.set)
        pool.submit(poll)

    @asynccontextmanager
    async def transactors(
        self, count: int
    ) -> AsyncIterator[Sequence[Callable[[Sequence[bytes]], Awaitable[None]]]]:
        loop, topic = asyncio.get_running_loop(), self._topic
        producers = [
            _producer(topic, linger_ms=0, more={"transactional.id": f"{topic.name}-{number}"})
            for number in range(count)
        ]
        async with threads(count) as pool:
            begun = [
                loop.run_in_executor(pool, each.init_transactions, REQUEST_SECONDS_MAX)
                for each in producers
            ]
            for each in begun:
                await each

            async def transact(producer: Any, events: Sequence[bytes]) -> None:
                await loop.run_in_executor(pool, _transact, producer, topic.name, events)

            yield [partial(transact, producer) for producer in producers]

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        async for events in read_until(self._topic, await ends(self._topic)):
            yield events

    @asynccontextmanager
    async def tail(self) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        async with tailing(self._topic, await ends(self._topic)) as events:
            yield events


def _producer(topic: Topic, *, linger_ms: int, more: Mapping[str, object] = NOTHING_MORE) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": topic.servers,
            "acks": "all",
            "linger.ms": linger_ms,
            "compression.type": "none",
            "batch.size": _MIB,
            "batch.num.messages": 100_000,
            "message.max.bytes": 2 * _MIB,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            **QUIET,
            **more,
        }
    )
    producer.list_topics(topic.name, timeout=REQUEST_SECONDS_MAX)  # connected and known
    return producer


def _messages(events: Sequence[bytes], keys: Sequence[str] | None) -> list[Message]:
    if keys is None:
        return [{"value": event} for event in events]
    return [{"value": event, "key": key} for event, key in zip(events, keys, strict=True)]


def _transact(producer: Any, topic: str, events: Sequence[bytes]) -> None:
    producer.begin_transaction()
    queue_all(producer, topic, _messages(events, None))
    producer.commit_transaction(REQUEST_SECONDS_MAX)


def _settle(future: "asyncio.Future[KafkaError | None]", error: KafkaError | None) -> None:
    if not future.done():
        future.set_result(error)


def _raise_for(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)
