"""Why a topic is not online: the reason that its description and a refused wait give to users."""

from anabranch.common.errors import AnabranchError
from anabranch.common.model.objects import Partition, PartitionResolution, Topic
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import TopicName, backing_stream, partition_key
from anabranch.controller.handlers.desk.topics import TopicDesk

_SERVED = (PartitionResolution.ONLINE, PartitionResolution.OUT_OF_STORAGE)


def obstacle(desk: TopicDesk, topic: Topic) -> str:
    """The reason in the topic's status, or why a partition is not online; "" if all are."""
    status = topic.status
    if topic.deleting or status.reason or not status.replica_map:
        return status.reason
    known = desk.partitions.known.objects
    for index in range(len(status.replica_map)):
        partition = known.get(partition_key(topic.key, index))
        if partition is None or partition.incarnation != topic.incarnation:
            return f"partition {index} is being created"
        if partition.status.resolution not in _SERVED:
            return f"partition {index} is not online: {_of_partition(desk, topic, partition)}"
    return ""


def _of_partition(desk: TopicDesk, topic: Topic, partition: Partition) -> str:
    loaded = desk.stream(backing_stream(TopicName(topic.key), topic.incarnation))
    if loaded is None or loaded.state.status is StreamState.CREATING:
        return "its segment is being created"
    try:
        reasons = desk.explain(partition.spec.container)
    except AnabranchError:
        reasons = ()  # the controller has not seen all stores yet
    return f"container {partition.spec.container}. {' '.join(reasons)}".strip()
