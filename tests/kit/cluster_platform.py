"""The rest of a cluster around a `ClusterStory`: streams, stores and placements that follow.

It does at once what takes the real ones a while: a command changes its stream, a container opens on
a live replica, a drained store loses its containers, a provisioner starts and stops stores.
"""

from dataclasses import replace

from anabranch.common.model.cluster import LogCopy, Placement, PlacementState
from anabranch.common.model.objects import SpuType
from anabranch.controller.domain.cluster.objects.backing import (
    BackingCommand,
    BackingState,
    CreateBacking,
    DeleteBacking,
    GrowBacking,
    SealBacking,
    StreamView,
)
from anabranch.controller.domain.cluster.objects.topic_containers import nodes_by_container
from kit.cluster_story import ClusterStory


class ClusterPlatform:
    """Lets a story's world follow the decisions."""

    def __init__(self, story: ClusterStory) -> None:
        self._story = story

    def follow(self) -> bool:
        """Do what is due everywhere; returns whether anything changed."""
        story = self._story
        before = (dict(story.streams), dict(story.placements), dict(story.live), set(story.holding))
        for command in story.asked:
            self._obey(command)
        self._provision()
        for container, nodes in nodes_by_container(story.containers).items():
            found = story.placements.get(container) or Placement(container, nodes)
            story.placements[container] = self._opened(self._drained(found))
        used = {one.spec.container for one in story.partitions.values()}
        story.holding.clear()
        for container, placement in story.placements.items():
            if container in used:
                story.holding.update(placement.replicas)
        return before != (story.streams, story.placements, story.live, story.holding)

    def _obey(self, command: BackingCommand) -> None:
        streams = self._story.streams
        match command:
            case CreateBacking(_, incarnation, containers):
                streams.setdefault(incarnation, StreamView(BackingState.ACTIVE, len(containers)))
            case GrowBacking(_, incarnation, containers, expected):
                found = streams[incarnation]
                if found == StreamView(BackingState.ACTIVE, expected):
                    after = expected + len(containers)
                    streams[incarnation] = replace(found, partitions=after)
            case SealBacking(_, incarnation):
                streams[incarnation] = replace(streams[incarnation], state=BackingState.SEALED)
            case DeleteBacking(_, incarnation):
                assert streams[incarnation].state is BackingState.SEALED
                streams[incarnation] = StreamView(BackingState.DELETED)

    def _provision(self) -> None:
        """Start the stores of new managed SPUs, and stop those without an SPU."""
        story = self._story
        for name, spu in story.spus.items():
            if spu.spec.type is SpuType.MANAGED:
                story.live.setdefault(name, True)
        for name in story.live.keys() - story.spus.keys():
            del story.live[name]

    def _able(self) -> list[str]:
        live, drained = self._story.live, self._story.drained
        return sorted(name for name, up in live.items() if up and name not in drained)

    def _drained(self, found: Placement) -> Placement:
        """The placement without drained stores and stores that are gone, if others can have it."""
        story = self._story
        replicas = list(found.replicas)
        for node in found.replicas:
            if node in story.drained or node not in story.spus:
                others = [name for name in self._able() if name not in replicas]
                if others:
                    replicas[replicas.index(node)] = others[0]
        return replace(found, replicas=tuple(replicas))

    def _opened(self, found: Placement) -> Placement:
        live = [node for node in found.replicas if self._story.live.get(node)]
        if not live:
            return replace(found, state=PlacementState.ELECTING)
        owner = found.owner if found.owner in live else live[0]
        replicas = (owner, *(node for node in found.replicas if node != owner))
        is_served = found.state is PlacementState.OPEN and owner == found.owner
        return replace(
            found,
            replicas=replicas,
            state=PlacementState.OPEN,
            container_epoch=found.container_epoch + (not is_served),
            isr=tuple(LogCopy(node, "c") for node in sorted(live)),
        )
