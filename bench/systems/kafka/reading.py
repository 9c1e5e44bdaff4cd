"""Reads topics by the Python client of Kafka. A thread of its own calls each consumer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.common.errors import Unavailable
from bench.systems.kafka.topics import QUIET, Topic

SILENCE_SECONDS_MAX = 30.0
TAIL_WAIT_SECONDS = 0.05
_READ_COUNT = 10_000
_TAIL_COUNT = 1_000
_MIB = 2**20


@asynccontextmanager
async def threads(count: int) -> AsyncIterator[ThreadPoolExecutor]:
    """Threads that have ended when the block does."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        await asyncio.to_thread(pool.shutdown)


async def read_until(topic: Topic, ends: Sequence[int]) -> AsyncIterator[Sequence[bytes]]:
    """The committed events from the head to at least these ends of the partitions.

    Raises Unavailable if the brokers fall silent.
    """
    left = {number for number, end in enumerate(ends) if end > 0}
    async with _consumer(topic, [0] * len(ends)) as (consumer, pool):
        loop = asyncio.get_running_loop()
        fetch = partial(_fetch, consumer, _READ_COUNT, SILENCE_SECONDS_MAX)
        while left:
            found = await loop.run_in_executor(pool, fetch)
            if not found:
                raise Unavailable("the brokers send no events", topic=topic.name)
            left -= {number for number, at in ended(found) if at >= ends[number]}
            yield _payloads(found)


@asynccontextmanager
async def tailing(
    topic: Topic, starts: Sequence[int]
) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
    """Inside the block, the events from these offsets of the partitions on, as they come."""
    async with _consumer(topic, starts) as (consumer, pool):
        yield _as_they_come(consumer, pool)


@asynccontextmanager
async def _consumer(
    topic: Topic, starts: Sequence[int]
) -> AsyncIterator[tuple[Any, ThreadPoolExecutor]]:
    consumer = Consumer(
        {
            "bootstrap.servers": topic.servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.min.messages": 1_000_000,
            "fetch.max.bytes": 64 * _MIB,
            "max.partition.fetch.bytes": 8 * _MIB,
            "receive.message.max.bytes": 128 * _MIB,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic.name, number, at) for number, at in enumerate(starts)])
    try:
        async with threads(1) as pool:
            yield consumer, pool
    finally:
        await asyncio.to_thread(consumer.close)


async def _as_they_come(consumer: Any, pool: ThreadPoolExecutor) -> AsyncIterator[Sequence[bytes]]:
    loop = asyncio.get_running_loop()
    fetch = partial(_fetch, consumer, _TAIL_COUNT, TAIL_WAIT_SECONDS)
    while True:
        found = await loop.run_in_executor(pool, fetch)
        ended(found)
        if events := _payloads(found):
            yield events


def _fetch(consumer: Any, count: int, seconds: float) -> list[Any]:
    """Wait for a message; return it with those that are there already."""
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(count, timeout=0)]


def _payloads(messages: Sequence[Any]) -> list[bytes]:
    return [cast(bytes, each.value()) for each in messages if each.error() is None]


def ended(messages: Sequence[Any]) -> list[tuple[int, int]]:
    """The partitions whose end was reached, and the end. Raises KafkaException for an error."""
    found = []
    for each in messages:
        error = each.error()
        if error is None:
            continue
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public name
            raise KafkaException(error)
        found.append((each.partition(), each.offset()))
    return found
