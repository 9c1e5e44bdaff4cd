"""The SPU controller: writes whether the store of each SPU is live.

Wakes on: changes of SPUs, verdicts on members. The membership judges; see `domain/cluster/spus.py`
for the transitions.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from anabranch.common.model.objects import SpuSpec, SpuStatus
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster import spus


class LiveStores(Protocol):
    """The verdicts on the segment stores."""

    @property
    def complete(self) -> bool: ...

    def live_stores(self) -> Mapping[str, bool]:
        """Whether each store that was seen is live, by node id."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


class SpuController:
    """See the module."""

    def __init__(
        self, store: LocalStore[SpuSpec, SpuStatus], members: LiveStores, performer: Performer
    ) -> None:
        self._store = store
        self._members = members
        self._performer = performer

    async def step(self, full: bool) -> float | None:  # noqa: ARG002  # SPUs are few
        """Write the statuses that differ. Raises OutcomeUnknown, Overloaded."""
        if not self._store.listed or not self._members.complete:
            return None
        actions = spus.reduce(tuple(self._store), self._members.live_stores())
        return await self._performer.step(actions)
