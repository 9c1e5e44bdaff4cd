"""The placement of containers on stores. Pure.

The strategy is *least loaded*: the numbers of containers of two live stores shall differ by at most
one. The possible actions depend on the data that the container's store holds:

    no placement                          → Create, at once
    no store served it, and its store is  → Retarget, at once: there is no data to lose
      dead
    it serves on a store that has too     → Move: its store releases it, one at a time, once the
      many                                  live stores have settled
    it moves to a store that died         → Move to its own store: it stays
    its log is on a dead store            → nothing: its bytes are there, and nowhere else
    pinned                                → nothing, except for the first two

Operators move containers with `placement_changes.py`. Among candidates, the container with the
lowest number moves, and among equal stores the one with the lowest id is taken; so equal inputs
give equal decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.contracts.queries import ContainerDescription
from anabranch.common.model.cluster import (
    WAITING_FOR_OPERATOR,
    Endpoint,
    NodeRecord,
    Placement,
    PlacementState,
)

DIFFERENCE_MAX = 1


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as placement sees it. `live`: alive as far as known."""

    live: bool
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """The container's first placement."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class Retarget:
    """Place the container elsewhere at once: no store served it where it was."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class Move:
    """Ask the container's store to release it for `store`; its own store means that it stays."""

    container: int
    store: str


Assignment = Create | Retarget | Move


def assign(
    containers: Sequence[int],
    placements: Mapping[int, Placement],
    stores: Mapping[str, StoreView],
    *,
    settled: bool = True,
) -> list[Assignment]:
    """The actions that are due, in container order; none while no store is live.

    `settled`: whether containers may be moved to balance the stores.
    """
    load = _load(placements, stores)
    if not load:
        return []
    urgent: list[Assignment] = []
    for container in containers:
        found = placements.get(container)
        if found is None or _is_stranded(found, stores):
            chosen = min(load, key=lambda store: (load[store], store))
            load[chosen] += 1
            urgent.append((Create if found is None else Retarget)(container, chosen))
        elif _has_lost_target(found, stores):
            urgent.append(Move(container, found.owner))
    if urgent or not settled or any(_is_moving(found, stores) for found in placements.values()):
        return urgent
    return _balance(containers, placements, load)


def _load(placements: Mapping[int, Placement], stores: Mapping[str, StoreView]) -> dict[str, int]:
    """The number of containers that each live store has, or will have."""
    load = {store: 0 for store, view in sorted(stores.items()) if view.live}
    for placement in placements.values():
        if _is_stranded(placement, stores):
            continue
        owner = placement.owner
        if owner in load:
            load[placement.target if placement.target in load else owner] += 1
    return load


def _is_live(store: str, stores: Mapping[str, StoreView]) -> bool:
    return store in stores and stores[store].live


def _is_stranded(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether no store served it, and none will."""
    waits = found.state in WAITING_FOR_OPERATOR
    return not found.log_id and not waits and not _is_live(found.owner, stores)


def _has_lost_target(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    if not found.target or found.pinned:
        return False
    return _is_live(found.owner, stores) and not _is_live(found.target, stores)


def _is_moving(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether it leaves its store, or was released and is not open yet."""
    if not _is_live(found.owner, stores):
        return False
    arriving = not found.log_id and found.state is PlacementState.ASSIGNED
    return bool(found.target) or arriving


def _balance(
    containers: Sequence[int], placements: Mapping[int, Placement], load: Mapping[str, int]
) -> list[Assignment]:
    """The next move: one container from the fullest store that can give one."""
    receiver = min(load, key=lambda store: (load[store], store))
    for giver in sorted(load, key=lambda store: (-load[store], store)):
        if load[giver] - load[receiver] <= DIFFERENCE_MAX:
            return []
        for container in containers:
            found = placements[container]
            if found.owner == giver and _may_leave(found):
                return [Move(container, receiver)]
    return []


def _may_leave(found: Placement) -> bool:
    return found.state is PlacementState.OPEN and bool(found.log_id) and not found.pinned


def serving(
    placement: Placement | None, nodes: Mapping[str, NodeRecord]
) -> tuple[int, Endpoint | None]:
    """(container epoch, endpoint) of the store that serves the container; (0, None) if none.

    A store that seems to be down is included, because this controller may be the one that is cut
    off.
    """
    if placement is None or placement.state is not PlacementState.OPEN:
        return 0, None
    owner = nodes.get(placement.owner)
    if owner is None:
        return 0, None
    return placement.container_epoch, owner.endpoint


def describe(
    container_count: int,
    placements: Mapping[int, Placement],
    nodes: Mapping[str, NodeRecord],
    down_since: Mapping[str, int],
) -> tuple[ContainerDescription, ...]:
    """Every container of the cluster, by number. `down_since`: of dead stores, Unix ms."""
    return tuple(
        describe_one(container, placements.get(container), nodes, down_since)
        for container in range(container_count)
    )


def describe_one(
    container: int,
    placement: Placement | None,
    nodes: Mapping[str, NodeRecord],
    down_since: Mapping[str, int],
) -> ContainerDescription:
    """One container, placed or not."""
    if placement is None:
        return ContainerDescription(container=container, state="unassigned")
    node_id = placement.owner
    node = nodes.get(node_id)
    unavailable = node_id in down_since and placement.state not in WAITING_FOR_OPERATOR
    return ContainerDescription(
        container=container,
        state="unavailable" if unavailable else placement.state.value,
        container_epoch=placement.container_epoch,
        node_id=node_id,
        host=node.endpoint.host if node is not None else "",
        port=node.endpoint.port if node is not None else 0,
        restarts=placement.restarts,
        reason=placement.reason,
        target=placement.target,
        abandoned=placement.abandoned,
        since_ms=down_since[node_id] if unavailable else 0,
        pinned=placement.pinned,
    )
