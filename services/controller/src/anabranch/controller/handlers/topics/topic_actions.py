"""Actions on topics: create, delete, add partitions, update, rebalance.

An action writes the topic object by compare-and-set; the leader's topic controller does the rest.
"""

from dataclasses import replace

from anabranch.common.contracts import topics as contracts
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import (
    Conflict,
    InvalidTopic,
    ObjectExists,
    TopicExists,
    TopicNotFound,
    TopicNotProvisioned,
)
from anabranch.common.model.objects import (
    Compression,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.model.topics import INCARNATION_LENGTH, backing_stream, topic_name
from anabranch.controller.domain.cluster.objects.topic_checks import grown, require_valid
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.topics.descriptions import count_online, described_topic
from anabranch.controller.handlers.topics.explaining import obstacle
from anabranch.controller.handlers.topics.queries import describe, no_topic

DELETED_WITHIN_S = 5.0
"""How long a deletion waits until the name is free. It goes on by itself after that."""
FREED_WITHIN_S = 5.0
"""How long a creation waits for a deletion of the same name that is under way."""


async def create_topic(desk: TopicDesk, query: contracts.CreateTopic) -> Contract:
    """Create a topic: the name, whether it exists, the spec; a dry run ends here; then store it.

    Raises InvalidName, TopicExists, InvalidTopic, TopicNotProvisioned, Unavailable, OutcomeUnknown.
    """
    name = topic_name(query.topic)
    found = await _in_the_way(desk, name)
    if found is not None:
        if query.dry_run or not query.incarnation or found.incarnation != query.incarnation:
            raise _exists(name)
        return await _created(desk, found, query.wait_s)  # by an earlier copy of this request
    require_valid(name, query.spec)
    topic = Topic(name, query.spec, TopicStatus())
    if query.dry_run:
        return contracts.TopicCreated(topic=described_topic(topic, 0))
    incarnation = query.incarnation or desk.ids.new_id()[:INCARNATION_LENGTH]
    if desk.stream(backing_stream(name, incarnation)) is not None:
        raise TopicNotFound("the topic was deleted after this request had created it", topic=name)
    try:
        stored = await desk.topics.create(replace(topic, incarnation=incarnation))
    except ObjectExists as error:
        raise _exists(name) from error
    return await _created(desk, stored, query.wait_s)


async def _created(desk: TopicDesk, topic: Topic, wait_s: float) -> Contract:
    await _provisioned(desk, topic, wait_s)
    return contracts.TopicCreated(topic=describe(desk, _newest(desk, topic)))


async def _in_the_way(desk: TopicDesk, name: str) -> Topic | None:
    """The topic of this name, after a deletion that is under way has had time to end."""
    found = await desk.topics.read(name)
    if found is not None and found.deleting:
        old = found
        await desk.wait_until(lambda: _is_gone(desk, old), FREED_WITHIN_S)
        found = await desk.topics.read(name)
    return found


def _exists(name: str) -> TopicExists:
    return TopicExists(f"Topic '{name}' already exists", topic=name)


def _is_gone(desk: TopicDesk, topic: Topic) -> bool:
    found = desk.topics.known.objects.get(topic.key)
    return found is None or found.incarnation != topic.incarnation


async def _provisioned(desk: TopicDesk, topic: Topic, wait_s: float) -> None:
    """Wait until every partition is online. Raises TopicNotProvisioned; 0 s: do not wait."""
    if not wait_s:
        return

    def is_decided() -> bool:
        newest = _newest(desk, topic)
        invalid = newest.status.resolution is TopicResolution.INVALID_CONFIG
        return invalid or _online(desk, topic) == _wanted(topic)

    await desk.wait_until(is_decided, wait_s)
    online, wanted, newest = _online(desk, topic), _wanted(topic), _newest(desk, topic)
    if online < wanted:
        raise TopicNotProvisioned(
            f"only {online} out of {wanted} provisioned",
            topic=topic.key,
            provisioned=online,
            partitions=wanted,
            why=obstacle(desk, newest),
        )


def _wanted(topic: Topic) -> int:
    return contracts.replica_counts(topic.spec)[0]


def _online(desk: TopicDesk, topic: Topic) -> int:
    return count_online(topic, desk.partitions.known.objects)


def _newest(desk: TopicDesk, topic: Topic) -> Topic:
    """The topic as last seen, or as it was stored if the watch lags."""
    found = desk.topics.known.objects.get(topic.key)
    is_newer = found is not None and found.incarnation == topic.incarnation
    return found if found is not None and is_newer and found.revision > topic.revision else topic


async def delete_topic(desk: TopicDesk, query: contracts.DeleteTopic) -> Contract:
    """Mark the topic, and wait a moment until it is gone. Raises InvalidName, TopicNotFound,
    Conflict (a system topic), Unavailable, OutcomeUnknown."""
    name = topic_name(query.topic)

    def decide(found: Topic | None) -> Topic:
        if found is None:
            raise no_topic(name)
        if found.spec.system and not query.force:
            raise Conflict(
                f"system topic '{name}' can only be deleted forcibly",
                remedy="the system needs this topic; delete it with `force` if you must",
                topic=name,
            )
        return replace(found, deleting=True)

    topic = await desk.topics.change(name, decide)
    await desk.wait_until(lambda: _is_gone(desk, topic), DELETED_WITHIN_S)
    return contracts.TopicDeleted(topic=topic.key, incarnation=topic.incarnation)


async def add_partitions(desk: TopicDesk, query: contracts.AddPartitions) -> Contract:
    """Ask for more partitions. Raises InvalidName, TopicNotFound, InvalidTopic,
    TopicNotProvisioned, Unavailable, OutcomeUnknown."""
    name = topic_name(query.topic)

    def decide(found: Topic | None) -> Topic:
        if found is None or found.deleting:
            raise no_topic(name)
        before = contracts.replica_counts(found.spec)[0]
        if query.expected is not None and before == query.expected + query.count:
            return found  # an earlier copy of this request has added them
        if query.expected not in (None, before):
            why = f"the topic has {before} partitions, and not {query.expected}"
            raise InvalidTopic(why, topic=name, why=why)
        return replace(found, spec=grown(name, found.spec, query.count))

    topic = await desk.topics.change(name, decide)
    await _provisioned(desk, topic, query.wait_s)
    return contracts.TopicDescribed(topic=describe(desk, _newest(desk, topic)))


async def update_topic(desk: TopicDesk, query: contracts.UpdateTopic) -> Contract:
    """Change retention, sizes, compression or deduplication. Raises InvalidName, TopicNotFound,
    InvalidTopic, Unavailable, OutcomeUnknown."""
    name = topic_name(query.topic)

    def decide(found: Topic | None) -> Topic:
        topic = _changeable(found, name)
        spec = _updated(topic.spec, query)
        require_valid(name, spec)
        return replace(topic, spec=spec)

    topic = await desk.topics.change(name, decide)
    return contracts.TopicDescribed(topic=describe(desk, topic))


def _changeable(found: Topic | None, name: str) -> Topic:
    """Raises TopicNotFound (also while it is deleted), InvalidTopic (a system topic)."""
    if found is None or found.deleting:
        raise no_topic(name)
    if found.spec.system:
        why = "a system topic cannot be changed"
        raise InvalidTopic(why, topic=name, why=why)
    return found


def _updated(spec: TopicSpec, query: contracts.UpdateTopic) -> TopicSpec:
    """Raises InvalidTopic."""
    fields = ("retention_s", "segment_size_bytes", "partition_size_max_bytes", "deduplication")
    given = {name: getattr(query, name) for name in fields}
    changed = replace(spec, **{name: found for name, found in given.items() if found is not None})
    if query.compression is None:
        return changed
    try:
        return replace(changed, compression=Compression(query.compression))
    except ValueError as error:
        why = f"invalid compression type: {query.compression}"
        raise InvalidTopic(why, topic=query.topic, why=why) from error


async def rebalance_topics(desk: TopicDesk, query: contracts.Rebalance) -> Contract:
    """Plan, or begin, or tell the progress of a rebalancing. Raises Unavailable."""
    return await desk.rebalances.perform(dry_run=query.dry_run)
