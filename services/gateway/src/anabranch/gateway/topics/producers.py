"""The open producers: one per recently used topic, up to a maximum."""

from anabranch.client import Client, TopicProducer
from anabranch.gateway.bounds.leases import Leases


class OpenProducers(Leases[TopicProducer]):
    """The open producers, by topic."""

    def forget(self, topic: str) -> None:
        """Close the producer of the topic, because it is deleted."""
        self.forget_where(lambda name: name == topic)


async def open_producer(client: Client, topic: str) -> TopicProducer:
    """An open producer. Raises TopicNotFound, TopicNotProvisioned, Unavailable."""
    return await client.topics.producer(topic).__aenter__()
