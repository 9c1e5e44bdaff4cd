"""Judges every write of controllers of topics as it happens.

- The map of a topic only grows, and its containers are those of its lists in the table.
- The table gives each number one list for ever, and its cursor never goes back.
- A partition's record goes only while its topic is deleted, and a topic only once its stream is
  doomed. The stream of a living topic is never doomed.
- A partition is online only if the stream of its incarnation has it.
- An incarnation names one life of one topic.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch.common.contracts.objects import (
    DOOMED_BUCKET,
    PARTITION,
    PARTITIONS_BUCKET,
    SPU,
    SPUS_BUCKET,
    TOPIC,
    TOPIC_CONTAINERS_KEY,
    TOPICS_BUCKET,
    TopicContainers,
    record_from,
)
from anabranch.common.contracts.subjects import CLUSTER_BUCKET
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import Partition, PartitionResolution, Spu, Topic
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import TopicName, backing_stream, parse_partition_key
from anabranch.controller.domain.cluster.objects.topic_containers import nodes_by_container
from kit.backing_streams import BackingStreams

if TYPE_CHECKING:
    from collections.abc import Callable


class WatchedBucket(InMemoryObjectStore):
    """The truth of one bucket. `on_put(key, before, after)` judges each write, before it counts."""

    def __init__(
        self, now_ms: "Callable[[], int]", on_put: "Callable[[str, bytes, bytes], None]"
    ) -> None:
        super().__init__(now_ms)
        self._on_put = on_put

    def _put(self, key: str, value: bytes) -> int:
        before = self._objects.get(key)
        self._on_put(key, b"" if before is None else before.value, value)
        return super()._put(key, value)

    def present(self) -> list[StoredObject]:
        """The objects with a value, now."""
        return [one for one in self._objects.values() if one.value]


class Referee:
    """Owns the buckets. A broken promise is kept in `broken`, because a writer may hide it."""

    def __init__(
        self, now_ms: "Callable[[], int]", buckets: "tuple[str, ...]", streams: BackingStreams
    ) -> None:
        judges = {
            TOPICS_BUCKET: self._judge_topic,
            PARTITIONS_BUCKET: self._judge_partition,
            DOOMED_BUCKET: self._judge_doom,
            CLUSTER_BUCKET: self._judge_table,
            SPUS_BUCKET: self._note_spu,
        }
        self.buckets = {
            name: WatchedBucket(now_ms, judges.get(name, lambda *_: None)) for name in buckets
        }
        self.streams = streams
        self.broken: list[str] = []
        self.names: dict[int, set[str]] = defaultdict(set)
        """The node ids that each SPU id has, or had."""
        self._lives: dict[str, str] = {}
        """The topic of each incarnation that was ever stored."""

    def require(self, holds: object, what: str) -> None:
        """Note a broken promise."""
        if not holds:
            self.broken.append(what)

    # --- what is stored now --------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        return {o.key: TOPIC.from_stored(o) for o in self.buckets[TOPICS_BUCKET].present()}

    def partitions(self) -> dict[str, Partition]:
        found = self.buckets[PARTITIONS_BUCKET].present()
        return {o.key: PARTITION.from_stored(o) for o in found}

    def spus(self) -> dict[str, Spu]:
        return {o.key: SPU.from_stored(o) for o in self.buckets[SPUS_BUCKET].present()}

    def dooms(self) -> set[str]:
        return {one.key for one in self.buckets[DOOMED_BUCKET].present()}

    def table(self) -> TopicContainers:
        for one in self.buckets[CLUSTER_BUCKET].present():
            if one.key == TOPIC_CONTAINERS_KEY:
                return record_from(TopicContainers, one)
        return TopicContainers()

    # --- every write ---------------------------------------------------------------------------

    def _judge_topic(self, key: str, before: bytes, after: bytes) -> None:
        old = TOPIC.from_stored(StoredObject(key, before, 1)) if before else None
        if not after:
            assert old is not None
            self.require(old.deleting, f"{key} was deleted, but its deletion was not asked for")
            self.require(old.incarnation in self.dooms(), f"{key} went before its doom was stored")
            return
        new = TOPIC.from_stored(StoredObject(key, after, 1))
        if old is None:
            is_new = new.incarnation not in self._lives
            self.require(is_new, f"{key} has the incarnation of an earlier topic")
            self._lives[new.incarnation] = key
            return
        rows, containers = old.status.replica_map, old.status.containers
        self.require(old.incarnation == new.incarnation, f"{key} changed its incarnation")
        self.require(
            new.status.replica_map[: len(rows)] == rows
            and new.status.containers[: len(containers)] == containers,
            f"assigned rows of {key} were changed",
        )
        self._judge_containers(new, len(rows))

    def _judge_containers(self, topic: Topic, known: int) -> None:
        lists, status = nodes_by_container(self.table()), topic.status
        for row, container in list(zip(status.replica_map, status.containers, strict=True))[known:]:
            nodes = lists.get(container, ())
            is_right = len(nodes) == len(row) and all(
                node in self.names[spu_id] for node, spu_id in zip(nodes, row, strict=True)
            )
            self.require(
                is_right, f"a partition of {topic.key} on {row} is in the container of {nodes}"
            )

    def _judge_partition(self, key: str, before: bytes, after: bytes) -> None:
        if after:
            new = PARTITION.from_stored(StoredObject(key, after, 1))
            is_online = new.status.resolution is PartitionResolution.ONLINE
            self.require(not is_online or self._has(new), f"{key} is online without a stream")
            return
        old = PARTITION.from_stored(StoredObject(key, before, 1))
        topic = self.topics().get(old.owner)
        lives = topic is not None and topic.incarnation == old.incarnation and not topic.deleting
        self.require(not lives, f"the record of {key} was deleted, and its topic lives")

    def _has(self, partition: Partition) -> bool:
        """Whether the stream of the partition's incarnation has it, or had it."""
        name = TopicName(partition.owner)
        stream = self.streams.streams.get(backing_stream(name, partition.incarnation))
        if stream is None or stream.status is StreamState.DELETED:
            return stream is not None
        _, index = parse_partition_key(partition.key)
        return index < len(stream.segments) - 1

    def _note_spu(self, key: str, _before: bytes, after: bytes) -> None:
        if after:
            spu = SPU.from_stored(StoredObject(key, after, 1))
            self.names[spu.spec.spu_id].add(key)

    def _judge_doom(self, key: str, before: bytes, after: bytes) -> None:
        living = [one for one in self.topics().values() if one.incarnation == key]
        for topic in living:
            self.require(topic.deleting or not after, f"{topic.key} lives, and was doomed")
            self.require(after or not before, f"the doom of {topic.key} was forgotten too early")

    def _judge_table(self, key: str, before: bytes, after: bytes) -> None:
        if key != TOPIC_CONTAINERS_KEY:
            return
        old = TopicContainers()
        if before:
            old = record_from(TopicContainers, StoredObject(key, before, 1))
        new = record_from(TopicContainers, StoredObject(key, after, 1))
        self.require(new.cursor >= old.cursor, "the cursor of the assignment went back")
        after_lists = nodes_by_container(new)
        self.require(len(after_lists) == len(new.containers), "a container has two lists")
        for container, nodes in nodes_by_container(old).items():
            self.require(
                after_lists.get(container) == nodes, f"container {container} got another list"
            )
