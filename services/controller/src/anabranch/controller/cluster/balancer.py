"""Assigns containers and balances them over the stores, on the controller that leads.

The balancer compares states and does not react to single changes: after every change, and every
second, it performs the plan of `domain/cluster/placement.py`. Every write is a compare-and-set on
the placement, or the store's record, that the plan used. A decision on outdated knowledge therefore
does nothing, even from another controller that still believes that it leads. Elections wait for
stores, so those of a plan are held at once, after its other actions.

Owns: the set of live stores and the time of its last change; the counts of its actions; the
containers that failed over from a dead store and are not open yet, each with its new store and the
Unix time in milliseconds at which the old one was judged dead.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, assert_never

import structlog

from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.errors import Corrupt, ObjectExists, Retry, Unknown
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.elections import Elected, Elections
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.cluster.placement_writes import change_placement
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.cluster.liveness import Kind, Verdict
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import (
    Action,
    Assignment,
    Create,
    Elect,
    EndSession,
    FailOver,
    Move,
    Reassign,
    Replication,
    Retarget,
    SetReplicas,
    StoreView,
)
from anabranch.controller.domain.cluster.placement_changes import failed_over, placed_elsewhere
from anabranch.controller.metrics import FailOverCounts

LOOK_S = 1.0
ELECTIONS_AT_ONCE_MAX = 32
FORGET_S = 600.0
"""A fail-over whose container was not opened for so long is not measured."""

_log = structlog.get_logger(__name__)


class Lead(Protocol):
    """Whether this controller may assign."""

    @property
    def leading(self) -> bool: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


class WantedContainers(Protocol):
    """The containers of topics, and the stores of each as assigned, leader first."""

    @property
    def complete(self) -> bool: ...

    @property
    def wanted(self) -> Mapping[int, tuple[str, ...]]: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


class Balancer:
    """Performs assignments. Before it moves a container off a live store to balance them, the set
    of live stores must be unchanged for `settle_s`. `measure` takes the seconds from the judgement
    of a store to the opening of a container that failed over from it.
    """

    def __init__(
        self,
        objects: ObjectStore,
        placements: Placements,
        members: Membership,
        lead: Lead,
        drains: Drains,
        *,
        elections: Elections,
        container_count: int,
        settle_s: float,
        replication: Replication,
        clock: Clock,
        containment: Containment,
        topics: WantedContainers,
        measure: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._containment = containment
        self._drains = drains
        self._topics = topics
        self._elections = elections
        self._replication = replication
        self._measure = measure
        self.counts = FailOverCounts()
        self._waiting: dict[int, tuple[str, int]] = {}
        self._objects = objects
        self._placements = placements
        self._members = members
        self._lead = lead
        self._container_count = container_count
        self._settle_s = settle_s
        self._clock = clock
        self._live: frozenset[str] = frozenset()
        self._same_since_s = clock.monotonic()
        self._is_settled = False
        self._changed = asyncio.Event()
        for source in (placements, members, lead, drains, topics):
            source.on_change(self._changed.set)
        placements.on_change(self._measure_openings)

    def stores(self) -> Mapping[str, StoreView]:
        """The stores, as placement sees them."""
        return self._drains.marked(self._members.stores())

    def plan(self, placements: Mapping[int, Placement]) -> list[Action]:
        """The actions that a leader with this controller's view performs on these placements."""
        return assign(
            range(self._container_count),
            placements,
            self.stores(),
            settled=self._is_settled,
            held=self._members.hold is not None or not self._members.seeing,
            replication=self._replication,
            wanted=self._topics.wanted,
        )

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
        self._is_settled = self._settled()
        known = self._members.complete and self._placements.complete and self._drains.complete
        if not (known and self._topics.complete) or not self._lead.leading:
            return
        placements = dict(self._placements.placements)
        plan = self.plan(placements)
        for action in plan:
            with self._containment.contained(JOB, _named(action), park_at=0):
                await self._perform(action, placements)
        await self._elect([placements[one.container] for one in plan if isinstance(one, Elect)])

    async def _elect(self, leaderless: Sequence[Placement]) -> None:
        async def hold(found: Placement) -> None:
            judged_ms = self._members.down_since.get(found.owner)
            with self._containment.contained(JOB, _named(Elect(found.container)), park_at=0):
                elected = await self._elections.hold(found)
                if elected is not None:
                    self._count_election(elected, judged_ms)

        await for_each(leaderless, ELECTIONS_AT_ONCE_MAX, hold)

    def _count_election(self, elected: Elected, judged_ms: int | None) -> None:
        self.counts.elections += 1
        if elected.winner != elected.former:
            self._count_fail_over(elected.container, elected.winner, judged_ms)

    def _count_fail_over(self, container: int, store: str, judged_ms: int | None) -> None:
        self.counts.fail_overs["failed" if judged_ms is None else "dead",] += 1
        if judged_ms is not None:
            self._waiting[container] = store, judged_ms

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

    async def _perform(self, action: Action, placements: Mapping[int, Placement]) -> None:
        """Perform an action that was decided upon these placements."""
        match action:
            case EndSession(store=store):
                self.counts.sessions_ended += await self._members.end_session(store)
            case FailOver(container=container):
                await self._fail_over(action, placements[container])
            case Create():
                await self._create(
                    Placement(
                        action.container, (action.store, *action.followers), isr_min=action.isr_min
                    )
                )
            case Retarget(container=container, store=store):
                found = placements[container]
                changed = placed_elsewhere(found, store, action.followers, action.isr_min)
                await self._change(action, found, changed)
            case Move(container=container, store=store):
                found = placements[container]
                target = "" if store == found.owner else store
                await self._change(action, found, replace(found, target=target))
            case Reassign(container=container) | SetReplicas(container=container):
                await self._change_replicas(action, placements[container])
            case Elect():
                return  # with the plan's other elections: see `_elect`
            case _:
                assert_never(action)

    async def _change_replicas(self, action: Reassign | SetReplicas, found: Placement) -> None:
        if isinstance(action, Reassign):
            changed = replace(found, wanted=action.wanted)
        else:
            wanted = () if action.done else found.wanted
            changed = replace(
                found, replicas=action.replicas, isr_min=action.isr_min, wanted=wanted
            )
        if await change_placement(self._objects, found, changed):
            _log.info(
                "the replicas of a container change",
                container=found.container, replicas=changed.replicas, wanted=changed.wanted,
            )  # fmt: skip

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

    async def _fail_over(self, action: FailOver, found: Placement) -> None:
        """Give the container away, if its store has closed it, or if the session of the store is
        still the one that is over.

        Records and placements come from two watches, of which one may lag, so the store may serve
        the container under another session by now. It takes no epoch before the first beat of a
        session is confirmed. If its record is unchanged after the placement was read, then an epoch
        that it takes changes that placement, and this change fails. A container that its store
        reported as failed is closed until the store takes an epoch.
        """
        judged_ms = self._members.down_since.get(found.owner)
        is_closed = found.state is PlacementState.FAILED

        async def may_go() -> bool:
            return is_closed or await self._members.is_still_over(found.owner)

        changed = failed_over(found, action.store)
        if await change_placement(self._objects, found, changed, provided=may_go):
            _log_placed(action, found)
            self._count_fail_over(action.container, action.store, judged_ms)

    def _measure_openings(self) -> None:
        for container, (store, judged_ms) in list(self._waiting.items()):
            found = self._placements.placements.get(container)
            took_s = (self._clock.now_ms() - judged_ms) / 1000
            if found and found.owner == store and found.state is PlacementState.OPEN:
                self._measure(took_s)
                del self._waiting[container]
            elif took_s > FORGET_S:
                del self._waiting[container]

    async def _change(
        self, action: Assignment, decided_upon: Placement, changed: Placement
    ) -> None:
        if await change_placement(self._objects, decided_upon, changed):
            _log_placed(action, decided_upon)


def _log_placed(action: Assignment, decided_upon: Placement) -> None:
    _log.info(
        "a container was placed on another store",
        action=type(action).__name__.lower(),
        container=action.container,
        node=decided_upon.owner,
        to=action.store,
    )


def _named(action: Action) -> str:
    if isinstance(action, EndSession):
        return f"ending the session of {action.store}"
    if isinstance(action, Elect):
        return f"electing the leader of container {action.container}"
    return f"placing container {action.container}"
