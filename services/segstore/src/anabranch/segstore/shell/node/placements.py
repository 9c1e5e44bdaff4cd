"""A store's view of the placements: it takes a container's epoch and reports the container's state.

Every change is a compare-and-set on the placement. The store takes the container epoch before it
opens anything else, and the epoch only grows. If two stores open one container, exactly one of them
can thus continue.
"""

from collections.abc import Callable
from dataclasses import replace

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Deposed, RevisionConflict, Unavailable, WrongHost
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Abandonment, Placement, PlacementState, VoidLogs

ATTEMPTS_MAX = 8


class Placements:
    """The placements of this node's containers."""

    def __init__(self, objects: ObjectStore, node_id: str) -> None:
        self._objects = objects
        self._node_id = node_id

    def is_mine(self, placement: Placement) -> bool:
        """Whether the placement assigns the container to this node."""
        return placement.owner == self._node_id

    async def take_epoch(self, container: int) -> Placement:
        """Take the next container epoch; returns the changed placement.

        Raises WrongHost (not assigned to this node), Unavailable, OutcomeUnknown (call again: an
        unused epoch is harmless).
        """
        return await self._change(
            container,
            lambda found: replace(
                found,
                container_epoch=found.container_epoch + 1,
                state=PlacementState.ASSIGNED,
            ),
        )

    async def report_open(
        self,
        taken: Placement,
        log_id: str,
        log_home: str = "",
        abandoned: Abandonment | None = None,
    ) -> None:
        """Record that the container serves under the epoch of `taken`. `log_home`: the place of
        its log that stores share; "" if the log is in this store's journal.

        Raises the errors of `report_failed`.
        """
        await self._report(taken, lambda found: replace(
            found, log_id=log_id, log_home=log_home, state=PlacementState.OPEN, reason="",
            void=None, abandoned=abandoned,
        ))  # fmt: skip

    async def report_well(self, taken: Placement) -> None:
        """Record that the container has served long enough for its failures to be forgotten.

        Raises the errors of `report_failed`.
        """
        await self._report(taken, lambda found: replace(found, restarts=0))

    async def release(self, taken: Placement) -> Placement:
        """Give the container, closed under the epoch of `taken`, to its target; keep it without
        one.

        Tier 2 must record its log as closed, and the journal must have removed the log. Returns the
        changed placement. Raises the errors of `report_failed`.
        """
        return await self._report(taken, lambda found: replace(
            found, replicas=(found.target or self._node_id,), target="", log_id="", log_home="",
            previous_log=found.log_id, state=PlacementState.ASSIGNED, restarts=0, reason="",
            void=VoidLogs(taken.container_epoch, taken.container_epoch),
        ))  # fmt: skip

    async def report_failed(
        self, taken: Placement, *, restarts: int, reason: str, state: PlacementState
    ) -> None:
        """Record that the container ended under the epoch of `taken`, and its new state.

        Raises Deposed (another epoch was taken since), WrongHost, Unavailable, OutcomeUnknown.
        """
        await self._report(taken, lambda found: replace(
            found, state=state, restarts=restarts, reason=reason,
        ))  # fmt: skip

    async def _report(
        self, taken: Placement, change: Callable[[Placement], Placement]
    ) -> Placement:
        def checked(found: Placement) -> Placement:
            if found.container_epoch != taken.container_epoch:
                raise Deposed(
                    "the container was opened under another epoch",
                    container=found.container,
                    mine=taken.container_epoch,
                    found=found.container_epoch,
                )
            return change(found)

        return await self._change(taken.container, checked)

    async def _change(self, container: int, change: Callable[[Placement], Placement]) -> Placement:
        key = placement_key(container)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._objects.get(key)
            found = placement_from_bytes(stored.value) if stored is not None else None
            if stored is None or found is None or not self.is_mine(found):
                raise WrongHost("the container is not assigned to this store", container=container)
            changed = change(found)
            try:
                await self._objects.update(key, placement_to_bytes(changed), stored.revision)
            except RevisionConflict:
                continue
            return changed
        raise Unavailable("the placement changes too often", container=container)
