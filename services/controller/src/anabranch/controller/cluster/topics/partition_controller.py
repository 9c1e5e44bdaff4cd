"""The partition controller: writes leader, live replicas and resolution, on transitions.

Wakes on: changes of partitions, topics, SPUs and placements, folds of backing streams, stores whose
storage is used up, the reconcile timer. `domain/cluster/objects/partitions.py` has the transitions.

A partition of a topic that this controller does not see is deleted only after the topic was read
from the object store, because the topics are watched apart from the partitions. The partitions of a
topic that cannot be read stay as they are.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.contracts.objects import TOPIC
from anabranch.common.errors import Corrupt
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.model.objects import (
    Partition,
    PartitionSpec,
    PartitionStatus,
    SpuSpec,
    SpuStatus,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects.local_store import Facet, LocalStore
from anabranch.controller.cluster.topics.backing import Backing
from anabranch.controller.cluster.topics.containing import reduced
from anabranch.controller.cluster.topics.inputs import Seen, SeenPlacements, Touched
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster.objects import partitions
from anabranch.controller.domain.cluster.objects.actions import Action, DeleteFinal
from anabranch.controller.domain.cluster.objects.partitions import PartitionWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInputs:
    """The inputs of the controller.

    `topic_store`: the bucket of topics. `ready()`: whether placements and event store have been
    seen. `out_of_storage()`: the stores that refuse records of topics.
    """

    spus: LocalStore[SpuSpec, SpuStatus]
    topics: LocalStore[TopicSpec, TopicStatus]
    partitions: LocalStore[PartitionSpec, PartitionStatus]
    topic_store: ObjectStore
    ready: Callable[[], bool]
    placements: Callable[[], Mapping[int, Placement]]
    out_of_storage: Callable[[], Collection[str]]

    @property
    def complete(self) -> bool:
        """Whether all of it has been seen."""
        objects = self.spus.listed and self.topics.listed and self.partitions.listed
        return objects and self.ready()


class PartitionController:
    """See the module."""

    def __init__(
        self,
        inputs: PartitionInputs,
        backing: Backing,
        performer: Performer,
        containment: Containment,
    ) -> None:
        self._inputs = inputs
        self._backing = backing
        self._performer = performer
        self._containment = containment
        self._seen_partitions = Seen(inputs.partitions)
        self._seen_topics = Seen(inputs.topics, Facet.META)
        self._seen_spus = Seen(inputs.spus)
        self._seen_placements = SeenPlacements()
        self._seen_full: frozenset[str] = frozenset()
        self.touched = Touched()

    async def step(self, full: bool) -> float | None:
        """Look at the partitions that a change concerns, or at all of them.

        Raises Unavailable, OutcomeUnknown, Overloaded, Corrupt.
        """
        if not self._inputs.complete:
            return None
        by_owner: dict[str, list[Partition]] = {}
        for partition in self._concerned(full):
            by_owner.setdefault(partition.owner, []).append(partition)
        if not by_owner:
            return None
        plans = reduced(self._containment, "plan of partitions", self._plan, by_owner)
        actions = await self._confirmed([action for plan in plans for action in plan])
        return await self._performer.step(actions)

    def _concerned(self, full: bool) -> Iterable[Partition]:
        inputs = self._inputs
        found = inputs.partitions.objects
        changed = {partition.key for partition in self._seen_partitions.changed()}
        owners = {topic.key for topic in self._seen_topics.changed()}
        owners.update(self.touched.take().values())
        placements = inputs.placements()
        containers = self._seen_placements.changed(placements)
        stores = frozenset(inputs.out_of_storage())
        full |= bool(list(self._seen_spus.changed())) or stores != self._seen_full
        self._seen_full = stores
        if full:
            return list(found.values())
        for owner in owners:
            changed.update(inputs.partitions.children(owner))
        if containers:
            changed.update(one.key for one in found.values() if one.spec.container in containers)
        return [found[key] for key in changed if key in found]

    def _plan(self, chosen: Sequence[Partition]) -> list[Action]:
        inputs = self._inputs
        placements = inputs.placements()
        containers = {one.spec.container for one in chosen}
        incarnations = {one.incarnation: one.owner for one in chosen}
        return partitions.reduce(
            PartitionWorld(
                partitions=chosen,
                topics=[
                    topic
                    for owner in {one.owner for one in chosen}
                    if (topic := inputs.topics.objects.get(owner)) is not None
                ],
                placements={at: placements[at] for at in containers if at in placements},
                spus=tuple(inputs.spus),
                streams={
                    incarnation: self._backing.view(owner, incarnation)
                    for incarnation, owner in incarnations.items()
                },
                out_of_storage=inputs.out_of_storage(),
            )
        )

    async def _confirmed(self, actions: Sequence[Action]) -> list[Action]:
        """The actions without deletions of partitions whose topics exist after all."""
        doubtful = {
            action.object.owner
            for action in actions
            if isinstance(action, DeleteFinal) and not action.object.deleting
        }
        present = {owner: await self._incarnation(owner) for owner in doubtful}
        return [
            action
            for action in actions
            if not isinstance(action, DeleteFinal)
            or action.object.deleting
            or present[action.object.owner] not in (None, action.object.incarnation)
        ]

    async def _incarnation(self, topic: str) -> str | None:
        """The incarnation of the topic as stored, "" if it does not exist, None if it cannot be
        read. Raises Unavailable."""
        if topic in self._inputs.topics.damaged:
            return None
        stored = await self._inputs.topic_store.get(topic)
        if stored is None or not stored.value:
            return ""
        try:
            return TOPIC.from_stored(stored).incarnation
        except Corrupt:
            return None
