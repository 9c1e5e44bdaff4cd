"""A store's view of the placements: it takes a container's epoch and reports the container's state.

Every change is a compare-and-set on the placement. The store takes the container epoch before it
opens anything else, and the epoch only grows. If two stores open one container, exactly one of them
can thus continue.

The placements are also the register of the ISRs of replicated logs. While a controller elects the
leader of such a log, the container is no store's, so nothing of it changes here.
"""

from collections.abc import Callable
from dataclasses import replace

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Deposed, RevisionConflict, Unavailable, WrongHost
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import (
    REPLICATED,
    Abandonment,
    LogCopy,
    Placement,
    PlacementState,
    VoidLogs,
)
from anabranch.segstore.ports_replica import Replicas

ATTEMPTS_MAX = 8


def hands_over(found: Placement) -> bool:
    """Whether the target of a move has an in-sync copy of the log, and thus continues it."""
    in_sync = any(copy.node_id == found.target for copy in found.isr)
    return bool(found.log_id) and found.log_home == REPLICATED and in_sync


class Placements:
    """The placements of this node's containers; a `Register` of the ISRs of their logs."""

    def __init__(self, objects: ObjectStore, node_id: str) -> None:
        self._objects = objects
        self._node_id = node_id

    def is_mine(self, placement: Placement) -> bool:
        """Whether the placement assigns the container to this node."""
        is_electing = placement.state is PlacementState.ELECTING
        return placement.owner == self._node_id and not is_electing

    async def take_epoch(self, container: int) -> Placement:
        """Take the next container epoch; returns the changed placement.

        A log that never served has no acknowledged message, so its ISR begins anew. Raises
        WrongHost (not assigned to this node), Unavailable, OutcomeUnknown (call again: an unused
        epoch is harmless).
        """
        return await self._change(
            container,
            lambda found: replace(
                found,
                container_epoch=found.container_epoch + 1,
                state=PlacementState.ASSIGNED,
                isr=found.isr if found.log_id else (),
            ),
        )

    # --- the register of the ISRs -------------------------------------------------------------

    async def read(self, container: int, container_epoch: int) -> Replicas:
        """See `Register.read`."""
        found = self._mine(container, await self._objects.get(placement_key(container)))
        _check_epoch(found, container_epoch)
        return replicas_of(found)

    async def change(
        self, container: int, container_epoch: int, isr: tuple[LogCopy, ...]
    ) -> Replicas:
        """See `Register.change`."""

        def changed(found: Placement) -> Placement:
            _check_epoch(found, container_epoch)
            return replace(found, isr=isr)

        return replicas_of(await self._change(container, changed))

    # --- reports ------------------------------------------------------------------------------

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
            void=None, abandoned=_later(found.abandoned, abandoned),
        ))  # fmt: skip

    async def report_well(self, taken: Placement) -> None:
        """Record that the container has served long enough for its failures to be forgotten.

        Raises the errors of `report_failed`.
        """
        await self._report(taken, lambda found: replace(found, restarts=0))

    async def release(self, taken: Placement) -> Placement:
        """Give the container, closed under the epoch of `taken`, to its target; keep it without
        one.

        Tier 2 must record its log as closed, and the journal must have removed the log. Its next
        log has no replicas yet. Returns the changed placement. Raises the errors of
        `report_failed`.
        """
        return await self._report(taken, lambda found: replace(
            found, replicas=(found.target or self._node_id,), target="", log_id="", log_home="",
            previous_log=found.log_id, state=PlacementState.ASSIGNED, restarts=0, reason="",
            void=VoidLogs(taken.container_epoch, taken.container_epoch),
            isr=(), isr_min=0, wanted=(),
        ))  # fmt: skip

    async def hand_over(self, taken: Placement) -> Placement:
        """Have the target continue the log of the container, which is closed under the epoch of
        `taken`; keep it if the target has no in-sync copy any more.

        Returns the changed placement. Raises the errors of `report_failed`.
        """
        return await self._report(taken, handed_over)

    async def report_failed(
        self, taken: Placement, *, restarts: int, reason: str, state: PlacementState
    ) -> None:
        """Record that the container ended under the epoch of `taken`, and its new state.

        ELECTING asks the controllers for another leader, and raises the epoch, which freezes the
        ISR. Raises Deposed (another epoch was taken since), WrongHost, Unavailable,
        OutcomeUnknown.
        """
        raised = int(state is PlacementState.ELECTING)
        await self._report(taken, lambda found: replace(
            found, state=state, restarts=restarts, reason=reason,
            container_epoch=found.container_epoch + raised,
        ))  # fmt: skip

    async def _report(
        self, taken: Placement, change: Callable[[Placement], Placement]
    ) -> Placement:
        def checked(found: Placement) -> Placement:
            _check_epoch(found, taken.container_epoch)
            return change(found)

        return await self._change(taken.container, checked)

    async def _change(self, container: int, change: Callable[[Placement], Placement]) -> Placement:
        key = placement_key(container)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._objects.get(key)
            changed = change(self._mine(container, stored))
            assert stored is not None
            try:
                await self._objects.update(key, placement_to_bytes(changed), stored.revision)
            except RevisionConflict:
                continue
            return changed
        raise Unavailable("the placement changes too often", container=container)

    def _mine(self, container: int, stored: StoredObject | None) -> Placement:
        """The placement, which assigns the container to this store. Raises WrongHost."""
        found = placement_from_bytes(stored.value) if stored is not None else None
        if found is None or not self.is_mine(found):
            raise WrongHost("the container is not assigned to this store", container=container)
        return found


def _check_epoch(found: Placement, container_epoch: int) -> None:
    if found.container_epoch != container_epoch:
        raise Deposed(
            "the container was opened under another epoch",
            container=found.container,
            mine=container_epoch,
            found=found.container_epoch,
        )


def replicas_of(found: Placement) -> Replicas:
    """The replicas of a container, as its log uses them."""
    return Replicas(found.replicas, found.isr, found.isr_min)


def handed_over(found: Placement) -> Placement:
    """The placement after its owner closed the container: the target leads the same log, or the
    owner still does, if the target has no in-sync copy any more."""
    leader = found.target if hands_over(found) else found.owner
    others = tuple(node for node in found.replicas if node != leader)
    return replace(
        found, replicas=(leader, *others), target="", state=PlacementState.ASSIGNED, restarts=0,
        reason="",
    )  # fmt: skip


def _later(known: Abandonment | None, found: Abandonment | None) -> Abandonment | None:
    """The later record of a loss: tier 2 does not know of an unclean election."""
    if known is None or found is None:
        return known or found
    return max(known, found, key=lambda one: one.time_ms)
