"""Queries about topics, partitions and named consumers, and actions on them.

Any controller answers, from its local store; actions are compare-and-set on the objects. Names,
reasons and columns are Fluvio's. Ports, types and limits: `model.topics` and `model.objects`.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import PagedQuery, Query, Question
from anabranch.common.model.objects import (
    Assigned,
    Computed,
    Deduplication,
    PartitionResolution,
    TopicResolution,
    TopicSpec,
)

WAIT_S_MAX = 90.0


class TopicDescription(Contract):
    """A topic, as the answering controller sees it.

    `topic`: its name. `incarnation`: twelve digits that no other topic of this name has. `spec`:
    what is wanted. `resolution`: the status, with a `reason` if there is an obstacle.
    `replication_factor`: the replicas of each partition that the spec asks for.
    `partitions_online`: the partitions that have a leader. `deleting`: a deletion was asked for.
    `scope`: that of the backing stream.
    """

    topic: str
    incarnation: str
    spec: TopicSpec
    resolution: TopicResolution
    reason: str = ""
    partition_count: int
    """The partitions that the spec asks for."""
    replication_factor: int
    partitions_online: int = 0
    deleting: bool = False
    scope: str
    stream: str
    """The backing stream, whose segments are the partitions."""


class CreateTopic(Query):
    """→ TopicCreated. Raises InvalidName, InvalidTopic, TopicExists, TopicNotProvisioned.

    `incarnation`: drawn by the caller, so that a repeat of the request finds its own topic; "": the
    controller draws it. `dry_run`: only check. `wait_s`: wait so long until every partition is
    online, at most `WAIT_S_MAX`; 0: do not wait.
    """

    topic: str
    spec: TopicSpec = TopicSpec()
    incarnation: str = Field(default="", pattern=r"^([0-9a-f]{12})?$")
    dry_run: bool = False
    wait_s: float = Field(default=0.0, ge=0.0, le=WAIT_S_MAX)


class TopicCreated(Contract):
    ok: Literal[True] = True
    topic: TopicDescription


class DescribeTopic(Query):
    """→ TopicDescribed. Raises TopicNotFound.

    A negative answer is given only after the object store was read.
    """

    topic: str


class TopicDescribed(Contract):
    ok: Literal[True] = True
    topic: TopicDescription


class ListTopics(PagedQuery):
    """→ TopicList, sorted by name. `matching`: part of the name; `system`: also system topics."""

    matching: str = ""
    system: bool = False


class TopicList(Contract):
    ok: Literal[True] = True
    topics: tuple[TopicDescription, ...]
    next_page_token: str = ""


class DeleteTopic(Query):
    """→ TopicDeleted. Raises TopicNotFound, and Conflict for a system topic without `force`."""

    topic: str
    force: bool = False


class TopicDeleted(Contract):
    ok: Literal[True] = True
    topic: str
    incarnation: str


class AddPartitions(Query):
    """→ TopicDescribed. Raises TopicNotFound, and InvalidTopic (it is not computed, it is a system
    topic, too many, another number than `expected`).

    `expected`: the number of partitions before, so that a repeat adds none; None: any. `wait_s`: as
    in `CreateTopic`.
    """

    topic: str
    count: int = Field(default=1, ge=1)
    expected: int | None = Field(default=None, ge=0)
    wait_s: float = Field(default=0.0, ge=0.0, le=WAIT_S_MAX)


class UpdateTopic(Query):
    """→ TopicDescribed. Changes retention, sizes, compression or deduplication; None: as it is.

    Raises TopicNotFound, InvalidTopic.
    """

    topic: str
    retention_s: int | None = None
    segment_size_bytes: int | None = None
    partition_size_max_bytes: int | None = None
    compression: str | None = None
    deduplication: Deduplication | None = None


class ReplicaLive(Contract):
    """A replica's place in the log; -1: not known."""

    spu: int
    leo: int = -1
    """The number of the next record that it would write."""
    hw: int = -1
    """The number of the first record that is not committed."""


class PartitionDescription(Contract):
    """A partition, as the answering controller sees it.

    `topic` and `partition`: its topic and its index there. `container`: the container that holds
    its segment. `replicas`: the SPUs as assigned, leader first. `resolution`: the status. `epoch`:
    the container epoch that the status is of. `leader_live` and `followers_live`: how far the
    replicas' logs reach. `deleting`: it is being deleted.
    """

    topic: str
    partition: int
    segment: str
    """The full name of its segment; "" until the topic is provisioned."""
    container: int
    leader: int
    """The SPU that leads it; -1: none does."""
    replicas: tuple[int, ...]
    resolution: PartitionResolution
    lrs: tuple[int, ...] = ()
    """The live replicas, leader first."""
    epoch: int = 0
    size_bytes: int = -2
    """-1: its size could not be found; -2: not known yet."""
    base: int = -1
    """The number of the first record that is kept; -1: not known."""
    leader_live: ReplicaLive | None = None
    followers_live: tuple[ReplicaLive, ...] = ()
    deleting: bool = False


class ListPartitions(PagedQuery):
    """→ PartitionList, sorted by topic and index. `topic`: of this one only.

    Raises TopicNotFound.
    """

    topic: str = ""
    system: bool = False


class PartitionList(Contract):
    ok: Literal[True] = True
    partitions: tuple[PartitionDescription, ...]
    next_page_token: str = ""


class NameConsumer(Query):
    """→ ConsumerNamed. Notes that a consumer commits offsets of a topic. May be repeated."""

    topic: str
    consumer: str


class ConsumerNamed(Contract):
    ok: Literal[True] = True
    incarnation: str


class ListConsumers(PagedQuery):
    """→ ConsumerList, sorted by topic and consumer. `topic`: of this one only."""

    topic: str = ""


class ConsumerDescription(Contract):
    topic: str
    incarnation: str
    consumer: str
    created_ms: int


class ConsumerList(Contract):
    ok: Literal[True] = True
    consumers: tuple[ConsumerDescription, ...]
    next_page_token: str = ""


class ForgetConsumer(Query):
    """→ ConsumerNamed. Forgets the name; the client deletes the offsets first. May be repeated."""

    topic: str
    consumer: str


class Rebalance(Query):
    """→ RebalancePlan. Spread leaders and replicas of topics over the SPUs that are online.

    `dry_run`: only return the plan.
    """

    dry_run: bool = False


class PlannedMove(Contract):
    container: int
    partitions: int
    """How many partitions move with it."""
    before: tuple[int, ...]
    after: tuple[int, ...]
    """SPU ids, leader first."""
    state: Literal["planned", "moving", "done"] = "planned"


class RebalancePlan(Contract):
    ok: Literal[True] = True
    moves: tuple[PlannedMove, ...]


def replica_counts(spec: TopicSpec) -> tuple[int, int]:
    """(partitions, replication factor) that a spec asks for."""
    match spec.replicas:
        case Computed(partitions, factor, _):
            return partitions, factor
        case Assigned(rows):
            return len(rows), len(rows[0].replicas) if rows else 0


QUERIES: Mapping[str, Question] = {
    "describe_topic": Question(DescribeTopic, TopicDescribed),
    "list_topics": Question(ListTopics, TopicList),
    "list_partitions": Question(ListPartitions, PartitionList),
    "list_consumers": Question(ListConsumers, ConsumerList),
}
"""By name."""

ACTIONS: Mapping[str, Question] = {
    "create_topic": Question(CreateTopic, TopicCreated),
    "delete_topic": Question(DeleteTopic, TopicDeleted),
    "add_partitions": Question(AddPartitions, TopicDescribed),
    "update_topic": Question(UpdateTopic, TopicDescribed),
    "name_consumer": Question(NameConsumer, ConsumerNamed),
    "forget_consumer": Question(ForgetConsumer, ConsumerNamed),
    "rebalance_topics": Question(Rebalance, RebalancePlan),
}
"""Questions that change something, by name."""
