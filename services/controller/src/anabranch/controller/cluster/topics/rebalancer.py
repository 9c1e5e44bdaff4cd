"""Spreads topic containers over the SPUs, by command, or when an SPU joins.

    rebalance_topics ─► plan ─► stored ─► the leader begins a few moves at a time ─► … ─► ended
         again: the same plan, with its progress

The plan is one object in the bucket of the cluster, so any controller can answer, and another
leader continues. Each move is an ordinary change of a placement. Stores do the work.

Owns: the online SPUs as of the last look, and the time at which they last changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from anabranch.common.contracts.container_queries import PlacementChange
from anabranch.common.contracts.objects import (
    TOPIC_REBALANCE_KEY,
    MoveOfContainer,
    TopicContainers,
    TopicRebalance,
    record_from,
)
from anabranch.common.contracts.topics import PlannedMove, RebalancePlan
from anabranch.common.errors import (
    AnabranchError,
    ObjectExists,
    RevisionConflict,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.model.objects import (
    UNKNOWN_SPU,
    PartitionSpec,
    PartitionStatus,
    SpuResolution,
    SpuSpec,
    SpuStatus,
)
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.domain.cluster.objects import rebalance, rebalance_steps
from anabranch.controller.domain.cluster.objects.rebalance import Spread
from anabranch.controller.domain.cluster.objects.topic_containers import moved

MOVES_AT_ONCE_MAX = 4
LOOK_S = 2.0
IDLE_LOOK_S = 5.0
"""How often the leader looks for a plan that another controller has stored."""
ATTEMPTS_MAX = 8

_log = structlog.get_logger(__name__)


class ContainerTable(Protocol):
    """The table of topic containers."""

    @property
    def containers(self) -> TopicContainers: ...

    async def write(self, before: TopicContainers, after: TopicContainers) -> bool: ...


class ChangePlacement(Protocol):
    """Changes a placement as operators do."""

    async def __call__(self, change: PlacementChange, /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceInputs:
    """The inputs of a plan. `ready()`: whether all of it has been seen; `draining()`: the
    stores that get no replicas."""

    spus: LocalStore[SpuSpec, SpuStatus]
    partitions: LocalStore[PartitionSpec, PartitionStatus]
    table: ContainerTable
    placements: Callable[[], Mapping[int, Placement]]
    draining: Callable[[], frozenset[str]]
    ready: Callable[[], bool]


class Rebalancer:
    """See the module. `join_settle_s`: after an SPU has joined and the SPUs have not changed for so
    long, topics are rebalanced; None: only by command."""

    def __init__(
        self,
        inputs: RebalanceInputs,
        cluster: ObjectStore,
        change: ChangePlacement,
        clock: Clock,
        *,
        join_settle_s: float | None,
    ) -> None:
        self._inputs = inputs
        self._cluster = cluster
        self._change = change
        self._clock = clock
        self._join_settle_s = join_settle_s
        self._online: frozenset[str] | None = None
        self._joined_s: float | None = None
        self._listeners: list[Callable[[], None]] = []
        self.active = False
        """Whether moves were under way at the last look."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a plan was stored here."""
        self._listeners.append(listener)

    async def perform(self, *, dry_run: bool) -> RebalancePlan:
        """Begin to rebalance, unless it is under way; returns the plan with its progress.

        Raises Unavailable, OutcomeUnknown, Corrupt.
        """
        for _ in range(ATTEMPTS_MAX):
            stored, revision = await self._stored()
            if dry_run:
                return self._described(self._plan(), planned=True)
            if stored is not None and not stored.ended:
                return self._described(stored)
            new = self._plan()
            if not new.moves:
                return self._described(stored or new)
            if await self._store(new, revision):
                _log.info("topics are rebalanced", moves=len(new.moves))
                for listener in self._listeners:
                    listener()
                return self._described(new)
        raise Unavailable("the plan of the rebalancing changes too often")

    async def step(self, full: bool) -> float | None:  # noqa: ARG002
        """Begin the moves that are due. Raises Unavailable, OutcomeUnknown, Corrupt."""
        if not self._inputs.ready():
            return None
        if self._is_due_to_join():
            await self.perform(dry_run=False)
        stored, revision = await self._stored()
        self.active = stored is not None and not stored.ended
        if stored is None or stored.ended:
            return LOOK_S if self._joined_s is not None else IDLE_LOOK_S
        placements = self._inputs.placements()
        if all(
            move.container not in placements
            or rebalance_steps.is_done(move, placements[move.container])
            for move in stored.moves
        ):
            await self._end(stored, revision)
        for change in rebalance_steps.due_changes(stored.moves, placements, MOVES_AT_ONCE_MAX):
            try:
                await self._change(change)
            except AnabranchError as error:
                # A copy may not be in sync yet, or a store is away: the next look tries again.
                _log.info("a move has to wait", container=change.container, why=str(error))
        return LOOK_S

    async def _end(self, stored: TopicRebalance, revision: int) -> None:
        """Note the moved containers' lists in the table, then that the plan has ended."""
        table = self._inputs.table
        rows = [(move.container, move.after) for move in stored.moves]
        before = table.containers
        if await table.write(before, moved(before, rows)):
            await self._store(TopicRebalance(moves=stored.moves, ended=True), revision)
            _log.info("the rebalancing of topics has ended", moves=len(stored.moves))

    def _is_due_to_join(self) -> bool:
        """Whether an SPU has joined, and the SPUs have not changed for long enough since."""
        if self._join_settle_s is None:
            return False
        online = frozenset(
            spu.key for spu in self._inputs.spus if spu.status.resolution is SpuResolution.ONLINE
        )
        before, self._online = self._online, online
        if before is not None and online != before:
            joined = bool(online - before) or self._joined_s is not None
            self._joined_s = self._clock.monotonic() if joined else None
        if self._joined_s is None:
            return False
        is_due = self._clock.monotonic() - self._joined_s >= self._join_settle_s
        if is_due:
            self._joined_s = None
        return is_due

    def _plan(self) -> TopicRebalance:
        """Raises Unavailable."""
        if not self._inputs.ready():
            raise Unavailable("the controller has not seen all placements and SPUs yet")
        ids, draining = self._ids(), self._inputs.draining()
        names = {spu_id: name for name, spu_id in ids.items()}
        racks = {
            spu.spec.spu_id: spu.spec.rack
            for spu in self._inputs.spus
            if spu.status.resolution is SpuResolution.ONLINE
            and not spu.deleting
            and spu.key not in draining
        }
        held = Counter(one.spec.container for one in self._inputs.partitions)
        spreads = [
            _spread(placed, ids, held[number])
            for number, placed in sorted(self._inputs.placements().items())
            if number >= TOPIC_CONTAINER_MIN and held[number]
        ]
        return TopicRebalance(
            moves=tuple(
                MoveOfContainer(
                    container=move.container,
                    before=tuple(names[one] for one in move.before),
                    after=tuple(names[one] for one in move.after),
                )
                for move in rebalance.plan(spreads, racks)
            )
        )

    def _ids(self) -> dict[str, int]:
        return {spu.key: spu.spec.spu_id for spu in self._inputs.spus}

    def _described(self, found: TopicRebalance, *, planned: bool = False) -> RebalancePlan:
        ids, placements = self._ids(), self._inputs.placements()
        held = Counter(one.spec.container for one in self._inputs.partitions)
        return RebalancePlan(
            moves=tuple(
                PlannedMove(
                    container=move.container,
                    partitions=held[move.container],
                    before=tuple(ids.get(name, UNKNOWN_SPU) for name in move.before),
                    after=tuple(ids.get(name, UNKNOWN_SPU) for name in move.after),
                    state="planned"
                    if planned
                    else _progress(move, placements.get(move.container), ended=found.ended),
                )
                for move in found.moves
            )
        )

    async def _stored(self) -> tuple[TopicRebalance | None, int]:
        """Raises Unavailable, Corrupt."""
        found = await self._cluster.get(TOPIC_REBALANCE_KEY)
        if found is None or not found.value:
            return None, 0
        return record_from(TopicRebalance, found), found.revision

    async def _store(self, new: TopicRebalance, revision: int) -> bool:
        """Replace the stored plan; False if it has changed meanwhile."""
        try:
            if revision:
                await self._cluster.update(TOPIC_REBALANCE_KEY, new.to_bytes(), revision)
            else:
                await self._cluster.create(TOPIC_REBALANCE_KEY, new.to_bytes())
        except (ObjectExists, RevisionConflict):
            return False
        return True


def _spread(placed: Placement, ids: Mapping[str, int], partitions: int) -> Spread:
    stores = placed.wanted or placed.replicas
    movable = (
        placed.state is PlacementState.OPEN
        and not rebalance_steps.is_changing(placed)
        and all(name in ids for name in stores)
    )
    row = tuple(ids.get(name, UNKNOWN_SPU) for name in stores)
    return Spread(placed.container, row, partitions, movable)


def _progress(
    move: MoveOfContainer, placed: Placement | None, *, ended: bool
) -> Literal["planned", "moving", "done"]:
    if ended or placed is None or rebalance_steps.is_done(move, placed):
        return "done"
    is_begun = rebalance_steps.is_changing(placed) or placed.replicas != move.before
    return "moving" if is_begun else "planned"
