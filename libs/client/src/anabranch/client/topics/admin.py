"""Topics as the controllers know them: create, change, delete and describe them, rebalance them.

Any controller answers, from its copy of the objects, and reads the object store before a negative
answer. A change is done when the call returns, unless its docstring says otherwise.
"""

import builtins
from collections.abc import AsyncIterator

from anabranch.client.topics.codecs import codec_named
from anabranch.client.topics.values import (
    Assignment,
    Duration,
    Size,
    deduplication_of,
    duration_s,
    replicas_of,
    size_bytes,
)
from anabranch.client.wire.control import QUERY_TIMEOUT_S, A, ControlPlane
from anabranch.common.contracts.queries import PAGE_SIZE_MAX, Query
from anabranch.common.contracts.topics import (
    WAIT_S_MAX,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListPartitions,
    ListTopics,
    PartitionDescription,
    PartitionList,
    Rebalance,
    RebalancePlan,
    TopicCreated,
    TopicDeleted,
    TopicDescribed,
    TopicDescription,
    TopicList,
    UpdateTopic,
)
from anabranch.common.errors import InvalidRequest, TopicNotProvisioned
from anabranch.common.model.objects import Compression, Deduplication, TopicSpec
from anabranch.common.model.topics import incarnation_from, topic_name

_DEFAULTS = TopicSpec()
WAIT_STEP_S = 1.5
"""How long a single question waits for partitions."""


class TopicAdministration:
    """The administration of topics, which a client has without being entered.

    ::

        await client.topics.create("orders", partitions=3, replication_factor=2, wait_s=30)
        async for topic in client.topics.list():
            print(topic.topic, topic.resolution, topic.reason)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    # --- changing -------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        ignore_racks: bool = False,
        assignment: Assignment | None = None,
        retention: Duration = _DEFAULTS.retention_s,
        segment_size: Size = _DEFAULTS.segment_size_bytes,
        partition_size_max: Size = _DEFAULTS.partition_size_max_bytes,
        compression: str = Compression.ANY,
        deduplication: Deduplication | int | None = None,
        system: bool = False,
        dry_run: bool = False,
        wait_s: float = 0.0,
    ) -> TopicDescription:
        """Create a topic; with `dry_run` only check whether it could be created.

        The cluster assigns the replicas, unless `assignment` lists the SPU ids of each partition,
        leader first. `retention` is in seconds, a timedelta, or text such as "7d"; sizes are in
        bytes, or text such as "100Gi". `compression`: any, none, zstd. With `wait_s` (at most 90),
        the call waits until every partition is online.

        Raises InvalidName, InvalidTopic, TopicExists, InvalidRequest, and TopicNotProvisioned if
        the wait was too short; the topic then exists.

        ::

            await client.topics.create("orders", partitions=3, retention="7d", wait_s=30)
        """
        spec = TopicSpec(
            replicas=replicas_of(
                partitions, replication_factor, ignore_racks=ignore_racks, assignment=assignment
            ),
            retention_s=duration_s(retention),
            segment_size_bytes=size_bytes(segment_size),
            partition_size_max_bytes=size_bytes(partition_size_max),
            compression=codec_named(compression),
            deduplication=deduplication_of(deduplication),
            system=system,
        )
        return await self.create_from(topic, spec, dry_run=dry_run, wait_s=wait_s)

    async def create_from(
        self, topic: str, spec: TopicSpec, *, dry_run: bool = False, wait_s: float = 0.0
    ) -> TopicDescription:
        """Create a topic from its spec; as `create`.

        ::

            await client.topics.create_from("orders", TopicSpec(Computed(partitions=3)))
        """
        query = CreateTopic(
            topic=topic_name(topic),
            spec=spec,
            incarnation=incarnation_from(self._control.new_command_id()),
            dry_run=dry_run,
            wait_s=_wait(wait_s),
        )
        return (await self._ask_waiting("create_topic", query, TopicCreated)).topic

    async def update(
        self,
        topic: str,
        *,
        retention: Duration | None = None,
        segment_size: Size | None = None,
        partition_size_max: Size | None = None,
        compression: str | None = None,
        deduplication: Deduplication | int | None = None,
    ) -> TopicDescription:
        """Change retention, sizes, compression or deduplication; None leaves it as it is.

        Records keep their numbers. Raises TopicNotFound, InvalidTopic, InvalidRequest.

        ::

            await client.topics.update("orders", retention="30d", compression="zstd")
        """
        query = UpdateTopic(
            topic=topic_name(topic),
            retention_s=None if retention is None else duration_s(retention),
            segment_size_bytes=None if segment_size is None else size_bytes(segment_size),
            partition_size_max_bytes=(
                None if partition_size_max is None else size_bytes(partition_size_max)
            ),
            compression=None if compression is None else codec_named(compression),
            deduplication=deduplication_of(deduplication),
        )
        return (await self._ask("update_topic", query, TopicDescribed)).topic

    async def add_partitions(
        self, topic: str, count: int = 1, *, wait_s: float = 0.0
    ) -> TopicDescription:
        """Add partitions. Records with keys may then go to other partitions than before.

        Producers learn of them as `TopicProducer` says, and consumers read them from their first
        record. `wait_s`: as in `create`. Raises TopicNotFound, InvalidTopic (also if another caller
        adds some at the same time), TopicNotProvisioned.

        ::

            await client.topics.add_partitions("orders", 2, wait_s=30)
        """
        before = (await self.describe(topic)).partition_count
        query = AddPartitions(
            topic=topic_name(topic), count=count, expected=before, wait_s=_wait(wait_s)
        )
        return (await self._ask_waiting("add_partitions", query, TopicDescribed)).topic

    async def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete the topic with its records and committed offsets; its name is free at once.

        Raises TopicNotFound, and Conflict for a system topic without `force`.

        ::

            await client.topics.delete("orders")
        """
        query = DeleteTopic(topic=topic_name(topic), force=force)
        await self._ask("delete_topic", query, TopicDeleted)

    async def rebalance(self, *, dry_run: bool = False) -> RebalancePlan:
        """Spread leaders and replicas of all topics over the SPUs that are online.

        Returns the moves, which continue after the call; with `dry_run` they are only planned.

        ::

            for move in (await client.topics.rebalance(dry_run=True)).moves:
                print(move.container, move.before, move.after)
        """
        return await self._ask("rebalance_topics", Rebalance(dry_run=dry_run), RebalancePlan)

    # --- asking ---------------------------------------------------------------------------

    async def describe(self, topic: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> TopicDescription:
        """The topic's spec and status. Raises TopicNotFound.

        ::

            print((await client.topics.describe("orders")).resolution)
        """
        query = DescribeTopic(topic=topic_name(topic))
        found = await self._control.query(
            "describe_topic", query, TopicDescribed, timeout_s=timeout_s
        )
        return found.topic

    async def list(
        self, *, matching: str = "", system: bool = False
    ) -> AsyncIterator[TopicDescription]:
        """The topics by name, fetched page by page; `system`: also system topics.

        `matching`: only those whose names contain this text.

        ::

            names = [topic.topic async for topic in client.topics.list(matching="order")]
        """
        token = ""
        while True:
            page = await self.page(token, matching=matching, system=system)
            for topic in page.topics:
                yield topic
            if not (token := page.next_page_token):
                return

    async def page(
        self,
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
        *,
        matching: str = "",
        system: bool = False,
    ) -> TopicList:
        """One page of the topics, from the start or from an earlier page's token.

        ::

            first = await client.topics.page(page_size=10)
        """
        query = ListTopics(
            matching=matching, system=system, page_token=page_token, page_size=page_size
        )
        return await self._ask("list_topics", query, TopicList)

    async def partitions(
        self, topic: str = "", *, system: bool = False
    ) -> builtins.list[PartitionDescription]:
        """The partitions of a topic, or of all: leader, live replicas, record numbers, sizes.

        Raises TopicNotFound.

        ::

            for partition in await client.topics.partitions("orders"):
                print(partition.partition, partition.leader, partition.resolution)
        """
        found: builtins.list[PartitionDescription] = []
        token = ""
        while True:
            page = await self.partitions_page(topic, token, system=system)
            found.extend(page.partitions)
            if not (token := page.next_page_token):
                return found

    async def partitions_page(
        self,
        topic: str = "",
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
        *,
        system: bool = False,
    ) -> PartitionList:
        """One page of `partitions`, from the start or from an earlier page's token.

        ::

            first = await client.topics.partitions_page("orders", page_size=10)
        """
        query = ListPartitions(
            topic=topic_name(topic) if topic else "",
            system=system,
            page_token=page_token,
            page_size=page_size,
        )
        return await self._ask("list_partitions", query, PartitionList)

    async def _ask(self, name: str, query: Query, answer: type[A]) -> A:
        return await self._control.query(name, query, answer, timeout_s=QUERY_TIMEOUT_S)

    async def _ask_waiting(
        self, name: str, query: CreateTopic | AddPartitions, answer: type[A]
    ) -> A:
        """Ask again until every partition is online, or the wait of the query is over.

        Each question waits for less than an attempt of the control plane takes, which would
        otherwise take the silence for that of a controller.
        """
        left_s = query.wait_s
        while True:
            step_s = min(left_s, WAIT_STEP_S)
            try:
                return await self._ask(name, query.model_copy(update={"wait_s": step_s}), answer)
            except TopicNotProvisioned:
                left_s -= step_s
                if left_s <= 0:
                    raise


def _wait(wait_s: float) -> float:
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise InvalidRequest("the wait is out of range", wait_s=wait_s, limit=WAIT_S_MAX)
    return wait_s
