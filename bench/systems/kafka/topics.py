"""Creates and deletes topics, and knows where they end, by the Python client of Kafka."""

import asyncio
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.systems.process import until

REQUEST_SECONDS_MAX = 30.0
QUIET = {"log_level": 2}
"""For every client: that a connection ends with its broker is no news."""


class Topic(NamedTuple):
    """One topic at its cluster's addresses."""

    servers: str
    name: str
    partitions: int


class Topics:
    """The topics of a cluster."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin: Any = AdminClient({"bootstrap.servers": servers, **QUIET})

    async def broker_count(self) -> int:
        """How many brokers there are; 0 without an answer."""
        try:
            found = await asyncio.to_thread(self._admin.list_topics, timeout=2.0)
        except KafkaException:
            return 0
        return len(found.brokers)

    async def create(
        self, name: str, partitions: int, replication: int, config: dict[str, str]
    ) -> Topic:
        """Return when every partition has a leader and all its replicas are in sync."""

        async def is_ready() -> bool:
            found = await asyncio.to_thread(self._admin.list_topics, name, REQUEST_SECONDS_MAX)
            known = found.topics[name].partitions.values()
            return len(known) == partitions and all(
                each.leader >= 0 and len(each.isrs) == replication for each in known
            )

        new = NewTopic(name, partitions, replication, config=config)
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await asyncio.wrap_future(self._admin.create_topics([new])[name])
        await until(is_ready, REQUEST_SECONDS_MAX)
        return Topic(self._servers, name, partitions)

    async def delete(self, name: str) -> None:
        """The brokers remove its files later."""
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await asyncio.wrap_future(self._admin.delete_topics([name])[name])


async def ends(topic: Topic) -> list[int]:
    """Where each partition ends, when no event waits for the end of its transaction any more."""
    admin = AdminClient({"bootstrap.servers": topic.servers, **QUIET})
    found: list[int] = []

    async def are_decided() -> bool:
        nonlocal found
        found = await _offsets(admin, topic, IsolationLevel.READ_UNCOMMITTED)
        return found == await _offsets(admin, topic, IsolationLevel.READ_COMMITTED)

    await until(are_decided, REQUEST_SECONDS_MAX)
    return found


async def _offsets(admin: Any, topic: Topic, isolation: Any) -> list[int]:
    asked = {
        TopicPartition(topic.name, number): OffsetSpec.latest()
        for number in range(topic.partitions)
    }
    answers = admin.list_offsets(
        asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS_MAX
    )
    found = {place.partition: await asyncio.wrap_future(each) for place, each in answers.items()}
    return [found[number].offset for number in range(topic.partitions)]
