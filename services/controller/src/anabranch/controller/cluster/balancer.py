"""Assigns containers and balances them over the stores, on the controller that leads.

The balancer compares states and does not react to single changes: after every change, and every
second, it performs the plan of `domain/placement.py`. Every write is a compare-and-set on the
placement that the plan used. A decision on outdated knowledge therefore does nothing, even from
another controller that still believes that it leads.

Owns: the set of live stores, and the time of its last change.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, assert_never

import structlog

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Corrupt, ObjectExists, Retry, RevisionConflict, Unknown
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.liveness import Kind, Verdict
from anabranch.controller.domain.placement import (
    Assignment,
    Create,
    Move,
    Retarget,
    assign,
)
from anabranch.controller.domain.placement_changes import placed_elsewhere

LOOK_S = 1.0

_log = structlog.get_logger(__name__)


class Lead(Protocol):
    """Whether this controller may assign."""

    @property
    def leading(self) -> bool: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


class Balancer:
    """Performs assignments. Before it moves a container off a live store, the set of live stores
    must be unchanged for `settle_s`.
    """

    def __init__(
        self,
        objects: ObjectStore,
        placements: Placements,
        members: Membership,
        lead: Lead,
        *,
        container_count: int,
        settle_s: float,
        clock: Clock,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._objects = objects
        self._placements = placements
        self._members = members
        self._lead = lead
        self._container_count = container_count
        self._settle_s = settle_s
        self._clock = clock
        self._live: frozenset[str] = frozenset()
        self._same_since_s = clock.monotonic()
        self._changed = asyncio.Event()
        for source in (placements, members, lead):
            source.on_change(self._changed.set)

    async def serve(self) -> None:
        """Assign and balance, while this controller leads, until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._step()
            except (Retry, Unknown, Corrupt) as error:
                _log.warning("the assignment of containers failed, retrying", error=str(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self) -> None:
        settled = self._settled()
        known = self._members.complete and self._placements.complete
        if not known or not self._lead.leading:
            return
        actions = assign(
            range(self._container_count),
            self._placements.placements,
            self._members.stores(),
            settled=settled,
        )
        for action in actions:
            what = f"placing container {action.container}"
            with self._containment.contained(JOB, what, park_at=0):
                await self._perform(action)

    def _settled(self) -> bool:
        """Whether the live stores are unchanged for `settle_s`, and none is in doubt."""
        now_s = self._clock.monotonic()
        live = frozenset(name for name, store in self._members.stores().items() if store.live)
        in_doubt = self._members.hold is not None or any(
            found.verdict is Verdict.TRIAL for _, found in self._members.standings(Kind.STORE)
        )
        if live != self._live or in_doubt or not self._members.seeing:
            self._live = live
            self._same_since_s = now_s
        return not in_doubt and now_s - self._same_since_s >= self._settle_s

    async def _perform(self, action: Assignment) -> None:
        match action:
            case Create(container=container, store=store):
                await self._create(Placement(container=container, replicas=(store,)))
            case Retarget(container=container, store=store):
                await self._change(action, lambda found: placed_elsewhere(found, store))
            case Move(container=container, store=store):
                await self._change(
                    action,
                    lambda found: replace(found, target="" if store == found.owner else store),
                )
            case _:
                assert_never(action)

    async def _create(self, placement: Placement) -> None:
        try:
            await self._objects.create(
                placement_key(placement.container), placement_to_bytes(placement)
            )
        except ObjectExists:
            return  # another controller was faster; the watch will show its choice
        _log.info(
            "a container was assigned",
            container=placement.container,
            node=placement.owner,
        )

    async def _change(self, action: Assignment, change: Callable[[Placement], Placement]) -> None:
        """Change the placement, unless it has changed since the decision."""
        container = action.container
        decided_upon = self._placements.placements[container]
        stored = await self._objects.get(placement_key(container))
        if stored is None or placement_from_bytes(stored.value) != decided_upon:
            return
        changed = placement_to_bytes(change(decided_upon))
        try:
            await self._objects.update(placement_key(container), changed, stored.revision)
        except RevisionConflict:
            return
        _log.info(
            "a container was placed on another store",
            action=type(action).__name__.lower(),
            container=container,
            node=decided_upon.owner,
            to=action.store,
        )
