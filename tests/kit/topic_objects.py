"""A controller in memory that also has topics, SPUs and SPU groups, as objects without records.

It answers every query and action of `contracts.topics` and `contracts.spus` at once: SPUs with even
ids are online, and a topic is provisioned if it needs no more replicas than there are such SPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.common.contracts import spus as s
from anabranch.common.contracts import topics as t
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.queries import PagedQuery, Query, QueryFailed
from anabranch.common.errors import (
    AnabranchError,
    Conflict,
    InvalidTopic,
    SpuExists,
    SpuGroupNotFound,
    SpuNotFound,
    TopicExists,
    TopicNotFound,
    TopicNotProvisioned,
)
from anabranch.common.model.objects import (
    Assigned,
    Compression,
    Computed,
    PartitionResolution,
    SpuGroupResolution,
    SpuResolution,
    SpuSpec,
    TopicResolution,
    TopicSpec,
)
from anabranch.common.model.topics import TopicName, backing_stream, segment_number
from kit.fake_admin import AdminController

QUESTIONS = {**t.QUERIES, **t.ACTIONS, **s.QUERIES, **s.ACTIONS}


@dataclass
class ObjectsController(AdminController):
    """See the module."""

    topics: dict[str, t.TopicDescription] = field(default_factory=dict)
    spus: dict[str, s.SpuDescription] = field(default_factory=dict)
    spu_groups: dict[str, s.SpuGroupDescription] = field(default_factory=dict)
    consumers: list[t.ConsumerDescription] = field(default_factory=list)
    moves: tuple[t.PlannedMove, ...] = ()
    slow: bool = False
    """Partitions come online after the longest wait only."""
    asked: list[Query] = field(default_factory=list)
    """The actions on topics and SPUs, in their order."""

    def answer(self, name: str, data: bytes) -> Contract:
        if name not in QUESTIONS:
            return super().answer(name, data)
        query = QUESTIONS[name].query.model_validate_json(data)
        if name in t.ACTIONS or name in s.ACTIONS:
            self.asked.append(query)
        try:
            told = self._about_spus(query)
            return told if told is not None else self._about_topics(query)
        except AnabranchError as error:
            return QueryFailed(error=ErrorBody.of(error))

    # --- topics ---------------------------------------------------------------------------

    def _about_topics(self, query: Query) -> Contract:
        match query:
            case t.CreateTopic():
                return self._create(query)
            case t.DescribeTopic():
                return t.TopicDescribed(topic=self._topic(query.topic))
            case t.ListTopics():
                names, token = self._page(self._names(query), query)
                found = tuple(self.topics[name] for name in names)
                return t.TopicList(topics=found, next_page_token=token)
            case t.DeleteTopic():
                gone = self._topic(query.topic)
                if gone.spec.system and not query.force:
                    raise Conflict(f"system topic '{query.topic}' can only be deleted forcibly")
                del self.topics[query.topic]
                return t.TopicDeleted(topic=query.topic, incarnation=gone.incarnation)
            case t.AddPartitions():
                return self._add(query)
            case t.UpdateTopic():
                return self._update(query)
            case t.ListPartitions():
                return self._partitions(query)
            case t.Rebalance():
                return t.RebalancePlan(moves=self.moves)
            case t.ListConsumers():
                named = [one for one in self.consumers if query.topic in ("", one.topic)]
                return t.ConsumerList(consumers=tuple(named))
            case t.ForgetConsumer():
                self.consumers = [one for one in self.consumers if one.consumer != query.consumer]
                return t.ConsumerNamed(incarnation=self._topic(query.topic).incarnation)
        raise AssertionError(query)

    def _create(self, query: t.CreateTopic) -> Contract:
        known = self.topics.get(query.topic)
        if known is not None and known.incarnation == query.incarnation:
            self._wait(known, query.wait_s)
            return t.TopicCreated(topic=known)
        if known is not None:
            raise TopicExists(f"Topic '{query.topic}' already exists", topic=query.topic)
        made = self._described(query.topic, query.spec, query.incarnation)
        if made.partition_count < 1:
            why = "partition must be greater than 0"
            raise InvalidTopic(why, topic=query.topic, why=why)
        if not query.dry_run:
            self.topics[query.topic] = made
            self._wait(made, query.wait_s)
        return t.TopicCreated(topic=made)

    def _described(
        self, topic: str, spec: TopicSpec, incarnation: str = "0123456789ab"
    ) -> t.TopicDescription:
        partitions, factor = t.replica_counts(spec)
        online = [one for one in self.spus.values() if one.resolution is SpuResolution.ONLINE]
        enough = factor <= max(1, len(online))
        stream = backing_stream(TopicName(topic), incarnation)
        return t.TopicDescription(
            topic=topic,
            incarnation=incarnation,
            spec=spec,
            resolution=TopicResolution.PROVISIONED
            if enough
            else TopicResolution.INSUFFICIENT_RESOURCES,
            reason="" if enough else f"need {factor - max(1, len(online))} more SPU",
            partition_count=partitions,
            replication_factor=factor,
            partitions_online=partitions if enough and not self.slow else 0,
            scope=stream.scope,
            stream=stream.stream,
        )

    def _wait(self, made: t.TopicDescription, wait_s: float) -> None:
        online, count = made.partitions_online, made.partition_count
        if wait_s and online < count:
            raise TopicNotProvisioned(
                f"only {online} out of {count} provisioned",
                topic=made.topic, provisioned=online, partitions=count,
            )  # fmt: skip

    def _add(self, query: t.AddPartitions) -> Contract:
        found = self._topic(query.topic)
        if not isinstance(found.spec.replicas, Computed):
            raise InvalidTopic("invalid replica type", topic=query.topic, why="it is assigned")
        before = found.partition_count if query.expected is None else query.expected
        count = before + query.count
        spec = replace(found.spec, replicas=replace(found.spec.replicas, partitions=count))
        made = self._described(query.topic, spec, found.incarnation)
        self.topics[query.topic] = made
        self._wait(made, query.wait_s)
        return t.TopicDescribed(topic=made)

    def _update(self, query: t.UpdateTopic) -> Contract:
        found = self._topic(query.topic)
        codec = None if query.compression is None else Compression(query.compression)
        asked = {
            "retention_s": query.retention_s,
            "segment_size_bytes": query.segment_size_bytes,
            "partition_size_max_bytes": query.partition_size_max_bytes,
            "compression": codec,
            "deduplication": query.deduplication,
        }
        spec = replace(found.spec, **{n: one for n, one in asked.items() if one is not None})  # type: ignore[arg-type]
        made = self.topics[query.topic] = found.model_copy(update={"spec": spec})
        return t.TopicDescribed(topic=made)

    def _partitions(self, query: t.ListPartitions) -> Contract:
        found = [self._topic(query.topic)] if query.topic else list(self.topics.values())
        rows = {
            f"{one.topic}-{index:05}": self._partition(one, index)
            for one in found
            for index in range(one.partition_count)
            if one.resolution is TopicResolution.PROVISIONED
        }
        names, token = self._page(sorted(rows), query)
        return t.PartitionList(
            partitions=tuple(rows[name] for name in names), next_page_token=token
        )

    def _partition(self, topic: t.TopicDescription, index: int) -> t.PartitionDescription:
        replicas = self._replicas(topic, index)
        live = t.ReplicaLive(spu=replicas[0], leo=7, hw=7)
        online = index < topic.partitions_online
        number = segment_number(index, 1024)
        return t.PartitionDescription(
            topic=topic.topic,
            partition=index,
            segment=f"{topic.scope}/{topic.stream}/{number}.#epoch.0",
            container=1024,
            leader=replicas[0] if online else -1,
            replicas=replicas,
            resolution=PartitionResolution.ONLINE if online else PartitionResolution.OFFLINE,
            lrs=replicas if online else (),
            size_bytes=2048,
            base=0,
            leader_live=live if online else None,
            followers_live=tuple(t.ReplicaLive(spu=spu, leo=5, hw=5) for spu in replicas[1:]),
        )

    def _replicas(self, topic: t.TopicDescription, index: int) -> tuple[int, ...]:
        if isinstance(topic.spec.replicas, Assigned):
            return topic.spec.replicas.partitions[index].replicas
        known = [one.spec.spu_id for one in self.spus.values()] or [0]
        return tuple(known[(index + n) % len(known)] for n in range(topic.replication_factor))

    def _topic(self, name: str) -> t.TopicDescription:
        if name not in self.topics:
            raise TopicNotFound("Topic not found", topic=name)
        return self.topics[name]

    def _names(self, query: t.ListTopics) -> list[str]:
        return sorted(
            name
            for name, one in self.topics.items()
            if query.matching in name and (query.system or not one.spec.system)
        )

    # --- SPUs -----------------------------------------------------------------------------

    def register(self, spu_id: int, name: str, rack: str = "") -> None:
        """Register an SPU without a command."""
        state = SpuResolution.OFFLINE if spu_id % 2 else SpuResolution.ONLINE
        self.spus[name] = s.SpuDescription(
            name=name, spec=SpuSpec(spu_id, rack=rack), resolution=state
        )

    def _about_spus(self, query: Query) -> Contract | None:
        match query:
            case s.RegisterSpu():
                return self._register(query)
            case s.UnregisterSpu():
                by_id = {one.spec.spu_id: name for name, one in self.spus.items()}
                name = query.name or by_id.get(query.spu_id, "")
                if name not in self.spus:
                    raise SpuNotFound("the SPU is not registered", spu=name or query.spu_id)
                del self.spus[name]
                return s.SpuUnregistered(name=name)
            case s.ListSpus():
                names, token = self._paged(self.spus, query)
                found = tuple(self.spus[name] for name in names)
                return s.SpuList(spus=found, next_page_token=token)
            case s.CreateSpuGroup():
                made = s.SpuGroupDescription(
                    name=query.name, spec=query.spec, resolution=SpuGroupResolution.RESERVED
                )
                self.spu_groups[query.name] = made
                return s.SpuGroupDescribed(group=made)
            case s.ScaleSpuGroup() | s.DeleteSpuGroup():
                return self._change_group(query)
            case s.ListSpuGroups():
                names, token = self._paged(self.spu_groups, query)
                groups = tuple(self.spu_groups[name] for name in names)
                return s.SpuGroupList(groups=groups, next_page_token=token)
        return None

    def _paged(self, found: Mapping[str, object], query: PagedQuery) -> tuple[tuple[str, ...], str]:
        return self._page(sorted(found), query)

    def _register(self, query: s.RegisterSpu) -> Contract:
        name = query.name or f"custom-spu-{query.spec.spu_id}"
        known = self.spus.get(name)
        if known is not None and known.spec != query.spec:
            told = f"spu '{name}({query.spec.spu_id})' already defined"
            raise SpuExists(told, spu=name, id=query.spec.spu_id)
        made = s.SpuDescription(name=name, spec=query.spec, resolution=SpuResolution.INIT)
        if not query.dry_run:
            self.spus[name] = made
        return s.SpuRegistered(spu=made)

    def _change_group(self, query: s.ScaleSpuGroup | s.DeleteSpuGroup) -> Contract:
        found = self.spu_groups.get(query.name)
        if found is None:
            raise SpuGroupNotFound("the SPU group does not exist", group=query.name)
        if isinstance(query, s.DeleteSpuGroup):
            del self.spu_groups[query.name]
            return s.SpuGroupDescribed(group=found.model_copy(update={"deleting": True}))
        changed = found.model_copy(update={"spec": replace(found.spec, replicas=query.replicas)})
        self.spu_groups[query.name] = changed
        return s.SpuGroupDescribed(group=changed)
