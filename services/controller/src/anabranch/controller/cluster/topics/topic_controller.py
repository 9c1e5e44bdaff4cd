"""The topic controller: assigns replicas, creates partitions and backing streams, deletes topics.

Wakes on: changes of topics and SPUs, partitions that come or go, folds of backing streams, the
table of topic containers, the reconcile timer. The transitions are in
`domain/cluster/objects/topics.py`.

Order: containers are allocated before the status that names them; a doom is stored before anything
of its topic is deleted; a command to a backing stream follows from a stored status; a partition is
created after its stream if its container serves already. Every write is conditional on the revision
that the plan has seen, and a command repeats under the same id, so that another controller can go
on after any of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from anabranch.common.contracts.objects import TopicContainers
from anabranch.common.model.cluster import Placement
from anabranch.common.model.objects import (
    Partition,
    PartitionSpec,
    PartitionStatus,
    SpuSpec,
    SpuStatus,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects.local_store import Facet, LocalStore
from anabranch.controller.cluster.topics.backing import AGAIN_S, Backing
from anabranch.controller.cluster.topics.containing import reduced
from anabranch.controller.cluster.topics.doomed import DoomedStreams
from anabranch.controller.cluster.topics.inputs import Seen, Touched
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster.objects import topics
from anabranch.controller.domain.cluster.objects.topics import TopicPlan, TopicWorld

_WAITING = frozenset(
    {
        TopicResolution.PENDING,
        TopicResolution.INSUFFICIENT_RESOURCES,
        TopicResolution.INVALID_CONFIG,
    }
)
"""The resolutions that SPUs may change."""


class ContainerTable(Protocol):
    """The table of topic containers."""

    @property
    def containers(self) -> TopicContainers: ...

    @property
    def complete(self) -> bool: ...

    async def write(self, before: TopicContainers, after: TopicContainers) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInputs:
    """The inputs of the controller.

    `ready()`: whether the placements, the members and the event store have been seen.
    `placements()`, `log_homes()`, `drained()`, `out_of_storage()`: as in `TopicWorld`.
    `counts_all`: whether the strategy counts the replicas of all topics.
    """

    spus: LocalStore[SpuSpec, SpuStatus]
    topics: LocalStore[TopicSpec, TopicStatus]
    partitions: LocalStore[PartitionSpec, PartitionStatus]
    table: ContainerTable
    doomed: DoomedStreams
    ready: Callable[[], bool]
    placements: Callable[[], Mapping[int, Placement]]
    log_homes: Callable[[], Mapping[str, str]]
    drained: Callable[[], Collection[str]]
    out_of_storage: Callable[[], Collection[str]]
    strategy: str
    counts_all: bool

    @property
    def complete(self) -> bool:
        """Whether all of it has been seen."""
        objects = self.spus.listed and self.topics.listed and self.partitions.listed
        return objects and self.table.complete and self.doomed.complete and self.ready()


class TopicController:
    """See the module."""

    def __init__(
        self, inputs: TopicInputs, backing: Backing, performer: Performer, containment: Containment
    ) -> None:
        self._inputs = inputs
        self._backing = backing
        self._performer = performer
        self._containment = containment
        self._seen_topics = Seen(inputs.topics)
        self._seen_partitions = Seen(inputs.partitions, Facet.META)
        self._seen_spus = Seen(inputs.spus)
        self._seen_facts: tuple[frozenset[str], dict[str, str]] = frozenset(), {}
        """The drained stores and the places of logs as of the last look."""
        self._unfinished: set[str] = set()
        """Topics whose last plan had commands."""
        self.touched = Touched()

    async def step(self, full: bool) -> float | None:
        """Look at the topics that a change concerns, or at all of them.

        Raises Unavailable, OutcomeUnknown, Overloaded, Corrupt.
        """
        if not self._inputs.complete:
            return None
        concerned = self._concerned(full)
        if not concerned:
            return None
        before, changed = self._inputs.table.containers, False
        for plan in self._plans(concerned, full):
            changed |= await self._perform(plan, before)
        if changed:
            return 0.0
        return AGAIN_S if self._unfinished else None

    def _concerned(self, full: bool) -> list[Topic]:
        found = self._inputs.topics.objects
        names = {topic.key for topic in self._seen_topics.changed()}
        names.update(partition.owner for partition in self._seen_partitions.changed())
        names.update(self.touched.take().values())
        names.update(self._unfinished)
        facts = (frozenset(self._inputs.drained()), dict(self._inputs.log_homes()))
        others_changed, self._seen_facts = facts != self._seen_facts, facts
        if list(self._seen_spus.changed()) or others_changed:
            names.update(
                topic.key for topic in found.values() if topic.status.resolution in _WAITING
            )
        if full:
            names = set(found)
        return [found[name] for name in names if name in found]

    def _plans(self, concerned: Sequence[Topic], full: bool) -> list[TopicPlan]:
        plans = reduced(
            self._containment,
            "plan of topics",
            partial(self._plan, full=full),
            {topic.key: (topic,) for topic in concerned},
        )
        # A command is repeated until the mirror shows its effect.
        commanded = {command.topic for plan in plans for command in plan.commands}
        self._unfinished = self._unfinished - {topic.key for topic in concerned} | commanded
        return plans

    def _plan(self, chosen: Sequence[Topic], *, full: bool) -> TopicPlan:
        inputs = self._inputs
        return topics.reduce(
            TopicWorld(
                topics=chosen,
                partitions=self._partitions_of(chosen),
                spus=tuple(inputs.spus),
                containers=inputs.table.containers,
                placements=inputs.placements(),
                streams={
                    topic.incarnation: self._backing.view(topic.key, topic.incarnation)
                    for topic in chosen
                },
                doomed=inputs.doomed.incarnations,
                log_homes=inputs.log_homes(),
                drained=frozenset(inputs.drained()),
                strategy=inputs.strategy,
                out_of_storage=inputs.out_of_storage(),
                is_full=full,
            )
        )

    def _partitions_of(self, chosen: Sequence[Topic]) -> list[Partition]:
        store = self._inputs.partitions
        if self._inputs.counts_all:
            return list(store)
        return [one for topic in chosen for one in store.children(topic.key).values()]

    async def _perform(self, plan: TopicPlan, before: TopicContainers) -> bool:
        """Perform a plan that was made upon the table `before`; returns whether it changed
        anything."""
        table = self._inputs.table
        if plan.containers is not None and not await table.write(before, plan.containers):
            return True  # the next plan is made upon the table as it is now
        for doom in plan.dooms:
            await self._inputs.doomed.add(doom)
        done = await self._performer.perform(plan.actions)
        await self._backing.perform(plan.commands)
        return bool(done or plan.dooms)
