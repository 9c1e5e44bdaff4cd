"""The SPU controller: writes whether the store of each SPU is live.

Wakes on: changes of SPUs, verdicts on members. The membership judges; the transitions are in
`domain/cluster/objects/spus.py`.
"""

from collections.abc import Callable, Mapping

from anabranch.common.model.objects import SpuSpec, SpuStatus
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster.objects import spus


class SpuController:
    """See the module. `live()`: whether each store that was seen is live, by node id; None: this
    controller has not seen all members."""

    def __init__(
        self,
        store: LocalStore[SpuSpec, SpuStatus],
        live: Callable[[], Mapping[str, bool] | None],
        performer: Performer,
    ) -> None:
        self._store = store
        self._live = live
        self._performer = performer

    async def step(self, full: bool) -> float | None:  # noqa: ARG002  # SPUs are few
        """Write the statuses that differ. Raises OutcomeUnknown, Overloaded."""
        live = self._live()
        if live is None or not self._store.listed:
            return None
        return await self._performer.step(spus.reduce(tuple(self._store), live))
