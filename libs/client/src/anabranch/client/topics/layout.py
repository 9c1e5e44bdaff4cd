"""The partitions of a topic: the segments that hold them, and which have a leader.

The segments are those of the backing stream, which carries the topic's incarnation in its name. A
layout therefore never mixes two topics of one name.
"""

from dataclasses import dataclass

from anabranch.client.backoff import Backoff
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane, current_segments
from anabranch.common.contracts.queries import SegmentList
from anabranch.common.contracts.topics import (
    DescribeTopic,
    ListPartitions,
    PartitionList,
    TopicDescribed,
    TopicDescription,
)
from anabranch.common.errors import (
    Retry,
    ScopeNotFound,
    StreamNotFound,
    TopicNotFound,
    TopicNotProvisioned,
)
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.objects import UNKNOWN_SPU, TopicResolution
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import partition_at, topic_name
from anabranch.common.runtime.clock import Clock

PROVISION_WAIT_S = 10.0
"""How long a producer or consumer waits for a topic that was just created."""
_GONE = (StreamState.SEALING, StreamState.SEALED, StreamState.DELETING, StreamState.DELETED)


@dataclass(frozen=True, slots=True)
class Layout:
    """A provisioned topic. `segments[p]`: the full name of partition p's segment. `rest`: that of
    the rest segment, whose successors are new partitions."""

    topic: TopicDescription
    stream: StreamRef
    stream_incarnation: int
    segments: tuple[str, ...]
    rest: str

    @property
    def name(self) -> str:
        return self.topic.topic


async def read_layout(control: ControlPlane, topic: str) -> Layout:
    """The topic as it is now. Raises TopicNotFound, TopicNotProvisioned, Unavailable."""
    query = DescribeTopic(topic=topic_name(topic))
    described = await control.query(
        "describe_topic", query, TopicDescribed, timeout_s=QUERY_TIMEOUT_S
    )
    found = described.topic
    if found.deleting:
        raise TopicNotFound("the topic is being deleted", topic=topic)
    stream = StreamRef(ScopeName(found.scope), StreamName(found.stream))
    try:
        listed = await current_segments(control, stream)
    except (StreamNotFound, ScopeNotFound) as error:
        raise _not_provisioned(found) from error
    if listed.state in _GONE:
        raise TopicNotFound("the topic is being deleted", topic=topic)
    if listed.state is StreamState.CREATING or found.resolution != TopicResolution.PROVISIONED:
        raise _not_provisioned(found)
    return _laid_out(found, stream, listed)


def _laid_out(topic: TopicDescription, stream: StreamRef, listed: SegmentList) -> Layout:
    by_index: dict[int, str] = {}
    rest = ""
    for segment in listed.segments:
        index = partition_at(segment.key_start, segment.key_end)
        if index is None:
            rest = segment.name
        else:
            by_index[index] = segment.name
    assert sorted(by_index) == list(range(len(by_index))), "partitions are numbered without gaps"
    segments = tuple(by_index[index] for index in range(len(by_index)))
    return Layout(topic, stream, listed.incarnation, segments, rest)


def _not_provisioned(topic: TopicDescription) -> TopicNotProvisioned:
    return TopicNotProvisioned(
        f"only {topic.partitions_online} out of {topic.partition_count} partitions are provisioned",
        topic=topic.topic, provisioned=topic.partitions_online, partitions=topic.partition_count,
        reason=topic.reason,
    )  # fmt: skip


async def settled_layout(
    control: ControlPlane, topic: str, clock: Clock, backoff: Backoff
) -> Layout:
    """`read_layout`, repeated while the topic is not provisioned, as long as `backoff` allows."""
    while True:
        try:
            return await read_layout(control, topic)
        except Retry:
            pause_s = backoff.failed(clock.monotonic())
            if pause_s is None:
                raise
        await clock.sleep(pause_s)


async def led_partitions(control: ControlPlane, topic: str) -> frozenset[int]:
    """The indexes of the partitions that have a leader. Raises TopicNotFound, Unavailable."""
    found: set[int] = set()
    token = ""
    while True:
        query = ListPartitions(topic=topic, system=True, page_token=token)
        page = await control.query(
            "list_partitions", query, PartitionList, timeout_s=QUERY_TIMEOUT_S
        )
        found.update(each.partition for each in page.partitions if each.leader != UNKNOWN_SPU)
        if not (token := page.next_page_token):
            return frozenset(found)
