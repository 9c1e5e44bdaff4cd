"""The names of the consumers that commit offsets of a topic.

The offsets are attributes of the partitions' segments; only the names are objects, so that they can
be listed. A name belongs to an incarnation of the topic and is forgotten with it.
"""

import re
from contextlib import suppress

from anabranch.common.contracts import topics as contracts
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.objects import NamedConsumer, record_from
from anabranch.common.errors import InvalidName, ObjectExists, RevisionConflict
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import Topic
from anabranch.controller.handlers.desk.pages import page_of
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.topics.queries import found_topic

_CONSUMER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


async def name_consumer(desk: TopicDesk, query: contracts.NameConsumer) -> Contract:
    """Note the name. Raises InvalidName, TopicNotFound, Unavailable, OutcomeUnknown."""
    topic = await found_topic(desk, query.topic)
    key = _key(topic, query.consumer)
    named = NamedConsumer(
        topic=topic.key,
        incarnation=topic.incarnation,
        consumer=query.consumer,
        created_ms=desk.clock.now_ms(),
    )
    if await desk.consumers.get(key) is None:
        with suppress(ObjectExists):  # another client of the consumer was faster
            await desk.consumers.create(key, named.to_bytes())
    return contracts.ConsumerNamed(incarnation=topic.incarnation)


async def forget_consumer(desk: TopicDesk, query: contracts.ForgetConsumer) -> Contract:
    """Forget the name, if it is noted. Raises InvalidName, TopicNotFound, Unavailable,
    OutcomeUnknown."""
    topic = await found_topic(desk, query.topic)
    found = await desk.consumers.get(_key(topic, query.consumer))
    if found is not None:
        with suppress(RevisionConflict):  # another client forgot it
            await desk.consumers.delete(found.key, found.revision)
    return contracts.ConsumerNamed(incarnation=topic.incarnation)


async def list_consumers(desk: TopicDesk, query: contracts.ListConsumers) -> Contract:
    """The named consumers of the topics that exist, sorted. Raises InvalidName, TopicNotFound,
    Unavailable, Corrupt."""
    topics = desk.topics.objects
    wanted = (await found_topic(desk, query.topic)).incarnation if query.topic else ""
    of_live = {topic.incarnation for topic in topics.values()} | {wanted}
    found = [
        record_from(NamedConsumer, one)
        for one in await desk.consumers.list()
        if _incarnation(one) in ({wanted} if wanted else of_live)
    ]
    after = query.page_token
    ordered = sorted(found, key=_place)
    described = (
        contracts.ConsumerDescription(
            topic=one.topic,
            incarnation=one.incarnation,
            consumer=one.consumer,
            created_ms=one.created_ms,
        )
        for one in ordered
        if not after or "/".join(_place(one)) > after
    )
    page, more = page_of(described, query.page_size)
    following = f"{page[-1].topic}/{page[-1].consumer}" if more else ""
    return contracts.ConsumerList(consumers=page, next_page_token=following)


def _place(named: NamedConsumer) -> tuple[str, str]:
    return named.topic, named.consumer


def _incarnation(stored: StoredObject) -> str:
    return stored.key.partition(".")[0]


def _key(topic: Topic, consumer: str) -> str:
    """Raises InvalidName."""
    if _CONSUMER.fullmatch(consumer) is None:
        raise InvalidName(
            f"{consumer[:100]!r} is not a consumer's name",
            remedy="use 1 to 64 letters, digits, hyphens and underscores",
            name=consumer[:100],
        )
    return f"{topic.incarnation}.{consumer}"
