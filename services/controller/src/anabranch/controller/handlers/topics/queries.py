"""Queries about topics, partitions, SPUs and SPU groups, answered from the local stores.

A topic that the local store does not have is looked up in the object store before the answer is
negative. Lists are answered from memory: a page token is the last key of a page.
"""

from bisect import bisect_right
from collections.abc import Iterator

from anabranch.common.contracts import spus as spu_contracts
from anabranch.common.contracts import topics as contracts
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import InvalidRequest, TopicNotFound
from anabranch.common.model.objects import Topic
from anabranch.common.model.topics import (
    TopicName,
    backing_stream,
    parse_partition_key,
    partition_key,
    topic_name,
)
from anabranch.controller.handlers.desk.pages import number_in, page_of
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.topics.descriptions import (
    count_online,
    described_group,
    described_partition,
    described_spus,
    described_topic,
    partition_segments,
)
from anabranch.controller.handlers.topics.explaining import obstacle


def describe(desk: TopicDesk, topic: Topic) -> contracts.TopicDescription:
    """The topic, with the number of its partitions that are online as far as known."""
    return described_topic(topic, count_online(topic, desk.partitions.known.objects))


async def found_topic(desk: TopicDesk, name: str) -> Topic:
    """The topic. Raises InvalidName, TopicNotFound, Unavailable, Corrupt."""
    found = await desk.topics.find(topic_name(name))
    if found is None:
        raise no_topic(name)
    return found


def no_topic(name: str) -> TopicNotFound:
    """The error for a topic that does not exist."""
    return TopicNotFound("Topic not found", topic=name)


async def describe_topic(desk: TopicDesk, query: contracts.DescribeTopic) -> Contract:
    """One topic, and why it is not online. Raises InvalidName, TopicNotFound, Unavailable."""
    topic = await found_topic(desk, query.topic)
    described = describe(desk, topic).model_copy(update={"reason": obstacle(desk, topic)})
    return contracts.TopicDescribed(topic=described)


async def list_topics(desk: TopicDesk, query: contracts.ListTopics) -> Contract:
    """The topics, sorted by name. Raises Unavailable."""
    topics = desk.topics.objects
    names = _after(sorted(topics), query.page_token)
    matching = (
        topics[name]
        for name in names
        if query.matching in name and (query.system or not topics[name].spec.system)
    )
    page, more = page_of((describe(desk, topic) for topic in matching), query.page_size)
    return contracts.TopicList(topics=page, next_page_token=page[-1].topic if more else "")


async def list_partitions(desk: TopicDesk, query: contracts.ListPartitions) -> Contract:
    """The partitions of one topic or of all, sorted by topic and index.

    Raises InvalidName, InvalidRequest (the page token), TopicNotFound, Unavailable.
    """
    topics = desk.topics.objects
    if query.topic:
        topic = await found_topic(desk, query.topic)
        chosen = [topic]
    else:
        chosen = [topics[name] for name in sorted(topics)]
        chosen = [topic for topic in chosen if query.system or not topic.spec.system]
    page, more = page_of(_partitions(desk, chosen, query.page_token), query.page_size)
    following = partition_key(page[-1].topic, page[-1].partition) if more else ""
    return contracts.PartitionList(partitions=page, next_page_token=following)


def _partitions(
    desk: TopicDesk, topics: list[Topic], page_token: str
) -> Iterator[contracts.PartitionDescription]:
    last_topic, last_index = parse_partition_key(page_token) if page_token else ("", -1)
    known = desk.partitions.objects
    for topic in topics:
        if topic.key < last_topic:
            continue
        first = last_index + 1 if topic.key == last_topic else 0
        loaded = desk.stream(backing_stream(TopicName(topic.key), topic.incarnation))
        segments = partition_segments(None if loaded is None else loaded.state)
        for index in range(first, contracts.replica_counts(topic.spec)[0]):
            partition = known.get(partition_key(topic.key, index))
            if partition is not None and partition.incarnation == topic.incarnation:
                segment = segments.get(index, "")
                live = desk.live.of(partition.spec.container, segment)
                yield described_partition(topic.key, index, partition, segment, live)


async def list_spus(desk: TopicDesk, query: spu_contracts.ListSpus) -> Contract:
    """The SPUs by id, then the refused stores. Raises InvalidRequest, Unavailable."""
    at = number_in(query.page_token) or 0
    described = described_spus(desk.spus.objects.values(), desk.refused(), custom_only=query.custom)
    page, more = page_of(described[at:], query.page_size)
    return spu_contracts.SpuList(spus=page, next_page_token=str(at + len(page)) if more else "")


async def list_spu_groups(desk: TopicDesk, query: spu_contracts.ListSpuGroups) -> Contract:
    """The SPU groups, sorted by name. Raises Unavailable."""
    groups = desk.groups.objects
    names = _after(sorted(groups), query.page_token)
    page, more = page_of((described_group(groups[name]) for name in names), query.page_size)
    return spu_contracts.SpuGroupList(groups=page, next_page_token=page[-1].name if more else "")


def _after(names: list[str], page_token: str) -> list[str]:
    """The sorted names behind the last name of a page."""
    if len(page_token) > 255:
        raise InvalidRequest("not a page token of this query", page_token=page_token[:64])
    return names[bisect_right(names, page_token) :] if page_token else names
