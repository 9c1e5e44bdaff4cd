"""Produces the records of requests through open producers."""

from collections.abc import Sequence
from functools import partial

from anabranch.client import TopicProducer
from anabranch.client.topics.records import RecordMetadata
from anabranch.common.errors import AnabranchError
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import naming_defects, tell_defect
from anabranch.gateway.bounds.changes import Change, Changes, Idempotency, Outcome
from anabranch.gateway.topics.bodies import NewRecord
from anabranch.gateway.topics.producers import OpenProducers

RECORD_COST_BYTES = 256
"""The estimated overhead of a record beside its bytes: each waits for its place."""
SENT_AT_ONCE = 4096

Places = list[RecordMetadata]


class Produces:
    """See the module."""

    def __init__(self, producers: OpenProducers, changes: Changes) -> None:
        self._producers = producers
        self._changes = changes

    async def produce(
        self, topic: str, records: Sequence[NewRecord], idempotency: Idempotency | None = None
    ) -> Places:
        """Return the places of the records, in their order, when every one is durable.

        Raises the producer's errors, and as `Changes.perform`.
        """
        size_bytes = sum(len(one.value) for one in records) + RECORD_COST_BYTES * len(records)
        store = partial(self._store, topic, records)
        change = Change("records", "topic", topic, size_bytes, store)
        return await self._changes.perform(change, idempotency)

    async def _store(self, topic: str, records: Sequence[NewRecord]) -> Outcome[Places]:
        begun = False
        try:
            with naming_defects("producing records"):
                async with self._producers.lease(topic) as producer:
                    begun = True
                    places = await _sent(producer, records)
        except AnabranchError as error:
            tell_defect(error)
            return Outcome(error, begun)
        return Outcome(None, begun, places)


async def _sent(producer: TopicProducer, records: Sequence[NewRecord]) -> Places:
    """Sends begin in the order of the records, so those of one key keep their order."""
    places: dict[int, RecordMetadata] = {}

    async def send(number: int) -> None:
        one = records[number]
        places[number] = await producer.send(
            one.value, one.key, one.timestamp_ms, partition=one.partition
        )

    await for_each(range(len(records)), SENT_AT_ONCE, send)
    return [places[number] for number in range(len(records))]
