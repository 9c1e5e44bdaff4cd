"""Named consumers: list and delete them, with the offsets that they have committed."""

from collections.abc import AsyncIterator
from typing import NamedTuple


class ConsumerOffset(NamedTuple):
    """The offset that a named consumer has committed in a partition.

    `offset` is the number of the last record that it has seen, -1 if it has seen none;
    `last_seen_ms` is the Unix time of the commit.

    ::

        async for found in client.topics.consumers.list("orders"):
            print(found.consumer, found.topic, found.partition, found.offset, found.last_seen_ms)
    """

    consumer: str
    topic: str
    partition: int
    offset: int
    last_seen_ms: int


class Consumers:
    """The named consumers of a cluster; `client.topics.consumers`.

    ::

        async for found in client.topics.consumers.list():
            print(found.consumer, found.topic, found.partition, found.offset)
    """

    async def list(self, topic: str = "") -> AsyncIterator[ConsumerOffset]:
        """The committed offsets by topic, consumer and partition; `topic`: of this one only.

        Raises TopicNotFound, Unavailable.

        ::

            rows = [row async for row in client.topics.consumers.list("orders")]
        """
        raise NotImplementedError
        yield

    async def delete(self, consumer: str, topic: str, partition: int | None = None) -> None:
        """Delete the committed offsets of the consumer, or only that of one partition.

        Raises ConsumerNotFound, PartitionNotFound, TopicNotFound, Unavailable.

        ::

            await client.topics.consumers.delete("billing", "orders")
        """
        raise NotImplementedError
