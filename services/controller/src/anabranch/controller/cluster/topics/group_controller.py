"""The SPU group controller: reserves ids, creates the SPUs of groups, drains and deletes them.

Wakes on: changes of groups, SPUs, placements and drain marks. Order: a mark is written before the
actions of the same plan, because a plan deletes only SPUs that it has seen drained. The SPUs of a
group that cannot be read stay as they are.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from anabranch.common.contracts.queries import DrainChange, DrainStore, UndrainStore
from anabranch.common.model.objects import SpuGroupSpec, SpuGroupStatus, SpuSpec, SpuStatus
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster.objects import groups
from anabranch.controller.domain.cluster.objects.groups import Drain


class DrainMarks(Protocol):
    """The drained stores."""

    @property
    def nodes(self) -> Collection[str]: ...

    @property
    def complete(self) -> bool: ...

    async def perform(self, change: DrainChange, known: Collection[str]) -> bool: ...


class GroupController:
    """See the module. `holding(node id)`: whether the store holds containers or will;
    `holding_known()`: whether this controller has seen all placements."""

    def __init__(
        self,
        store: LocalStore[SpuGroupSpec, SpuGroupStatus],
        spus: LocalStore[SpuSpec, SpuStatus],
        drains: DrainMarks,
        performer: Performer,
        *,
        holding: Callable[[str], bool],
        holding_known: Callable[[], bool],
    ) -> None:
        self._store = store
        self._spus = spus
        self._drains = drains
        self._performer = performer
        self._holding = holding
        self._holding_known = holding_known

    async def step(self, full: bool) -> float | None:  # noqa: ARG002  # groups are few
        """Perform the due actions. Raises Unavailable, OutcomeUnknown, Overloaded."""
        known = self._store.listed and self._spus.listed and self._drains.complete
        if not known or not self._holding_known():
            return None
        spus = tuple(self._spus)
        plan = groups.reduce(tuple(self._store), spus, self._holding, self._drains.nodes)
        unreadable = self._store.damaged.keys() - self._store.objects.keys()
        kept = {spu.key for spu in spus if spu.owner in unreadable}
        for mark in plan.drains:
            if mark.node not in kept:
                kind = DrainStore if isinstance(mark, Drain) else UndrainStore
                await self._drains.perform(kind(node_id=mark.node), {mark.node})
        actions = [one for one in plan.actions if one.object.key not in kept]
        return await self._performer.step(actions)
