"""The dependencies of queries and actions about SPUs, SPU groups, topics and partitions."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.contracts.topics import RebalancePlan
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.cluster import NodeRecord, Placement
from anabranch.common.model.names import StreamRef
from anabranch.common.model.objects import (
    PartitionSpec,
    PartitionStatus,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.controller.cluster.topics.holding import holders
from anabranch.controller.cluster.topics.live_numbers import LiveNumbers
from anabranch.controller.cluster.topics.shelf import Shelf
from anabranch.controller.domain.stream.state import Stream

LOOK_AGAIN_S = 1.0
BURST_S = 0.02
"""Changes that come within this time are looked at together."""


class Changes:
    """Wakes every action that waits for a change of an object."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """An object has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, within_s: float) -> None:
        """Wait for the next change, but not longer."""
        changed = self._changed
        try:
            async with asyncio.timeout(within_s):
                await changed.wait()
        except TimeoutError:
            return


class Rebalances(Protocol):
    """The rebalancing of topics over the SPUs."""

    async def perform(self, *, dry_run: bool) -> RebalancePlan:
        """Begin to rebalance, unless it is under way; returns the plan with its progress."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDesk:
    """The dependencies of queries about objects. Parts marked with * can change something.

    `spus`*, `groups`*, `topics`*, `partitions`*: the objects; `consumers`*: the bucket of named
    consumers; `live`: record numbers and sizes; `placements()`: the containers; `stream(ref)`: a
    backing stream as last folded; `refused()`: the stores that may not join, by node id;
    `explain(container)`: why a container does not serve; `rebalances`*: moves topic containers;
    `changes`: announces changes of topics and partitions.
    """

    spus: Shelf[SpuSpec, SpuStatus]
    groups: Shelf[SpuGroupSpec, SpuGroupStatus]
    topics: Shelf[TopicSpec, TopicStatus]
    partitions: Shelf[PartitionSpec, PartitionStatus]
    consumers: ObjectStore
    live: LiveNumbers
    placements: Callable[[], Mapping[int, Placement]]
    stream: Callable[[StreamRef], Loaded[Stream] | None]
    refused: Callable[[], Mapping[str, NodeRecord]]
    explain: Callable[[int], Sequence[str]]
    rebalances: Rebalances
    changes: Changes
    clock: Clock
    ids: IdSource

    def holders(self) -> Collection[str]:
        """The stores that hold a container, or will: as owner, replica, target or wanted."""
        return holders(self.placements())

    async def wait_until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Whether the condition came true in time; it is checked after changes of objects."""
        deadline_s = self.clock.monotonic() + within_s
        while not holds():
            left_s = deadline_s - self.clock.monotonic()
            if left_s <= 0:
                return False
            await self.changes.wait(min(left_s, LOOK_AGAIN_S))
            await self.clock.sleep(min(left_s, BURST_S))
        return True


class HasTopics(Protocol):
    """A desk that has a desk for topics."""

    @property
    def topics(self) -> TopicDesk: ...
