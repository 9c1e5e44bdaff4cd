"""The topics whose records may go, and the numbers of their partitions: the `TopicView` of the job
that retains topics. Owns nothing."""

from collections.abc import Iterator

from anabranch.common.model.hashing import container_of
from anabranch.common.model.objects import TopicSpec, TopicStatus
from anabranch.common.model.topics import TopicName, backing_stream
from anabranch.controller.cluster.topics.live_numbers import LiveNumbers
from anabranch.controller.cluster.topics.shelf import Known
from anabranch.controller.domain.policies.topic_retention import PartitionNumbers, RetainedTopic


class RetainedTopics:
    """See `TopicView`."""

    def __init__(self, topics: Known[TopicSpec, TopicStatus], live: LiveNumbers) -> None:
        self._topics = topics
        self._live = live

    def retained(self) -> Iterator[RetainedTopic]:
        """The topics that are not being deleted, as last seen; use it before the next await."""
        for key, topic in self._topics.objects.items():
            if topic.deleting or not topic.incarnation:
                continue
            yield RetainedTopic(
                backing_stream(TopicName(key), topic.incarnation),
                topic.spec.retention_s,
                topic.spec.partition_size_max_bytes,
                topic.spec.segment_size_bytes,
            )

    def numbers(self, segment: str) -> PartitionNumbers | None:
        """The numbers that the present leader of the partition has reported."""
        found = self._live.of(container_of(segment, 1), segment)
        return None if found is None else PartitionNumbers(found.base, found.leo, found.size_bytes)
