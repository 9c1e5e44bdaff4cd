"""Containers as clients and operators see them: where one is served, and its description. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from anabranch.common.contracts.queries import ContainerDescription
from anabranch.common.model.cluster import (
    WAITING_FOR_OPERATOR,
    Endpoint,
    NodeRecord,
    Placement,
    PlacementState,
)
from anabranch.controller.domain.cluster.replica_lists import in_sync

JOURNAL = "journal"
"""How descriptions name the place of a log that is in its store's own journal."""
PHASES = (
    "unassigned", "assigned", "electing", "open", "moving", "failed", "waiting", "unavailable",
    "disabled", "offline",
)  # fmt: skip
_NOT_ITS_STORES = {*WAITING_FOR_OPERATOR, PlacementState.ELECTING}
"""The states in which a container does not wait for its store."""


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
    containers: Iterable[int],
    placements: Mapping[int, Placement],
    nodes: Mapping[str, NodeRecord],
    down_since: Mapping[str, int],
    leased: Collection[str] = (),
) -> tuple[ContainerDescription, ...]:
    """These containers, in the given order.

    `down_since`: of dead stores, Unix ms. `leased`: the stores whose last beat is younger than
    their lease.
    """
    return tuple(
        describe_one(container, placements.get(container), nodes, down_since, leased)
        for container in containers
    )


def describe_one(
    container: int,
    placement: Placement | None,
    nodes: Mapping[str, NodeRecord],
    down_since: Mapping[str, int],
    leased: Collection[str] = (),
) -> ContainerDescription:
    """One container, placed or not."""
    if placement is None:
        return ContainerDescription(container=container, state="unassigned")
    node_id = placement.owner
    node = nodes.get(node_id)
    unavailable = node_id in down_since and placement.state not in _NOT_ITS_STORES
    replicated = bool(placement.isr_min)
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
        log=log_place(placement),
        lease=_lease(placement, leased),
        replicas=placement.replicas if replicated else (),
        isr=in_sync(placement),
        isr_min=placement.isr_min,
        wanted=placement.wanted,
    )


def log_place(placement: Placement) -> str:
    """The place of the container's log; "" if it has none."""
    return placement.log_home or (JOURNAL if placement.log_id else "")


def _lease(placement: Placement, leased: Collection[str]) -> Literal["", "held", "lapsed"]:
    """Whether the store may answer reads; a container in a journal needs no lease."""
    if not placement.log_home:
        return ""
    return "held" if placement.owner in leased else "lapsed"


def phase(found: ContainerDescription) -> str:
    """One of `PHASES`: the state, or the next step of an open or unavailable container.

    `moving`: its store closes it, for another store. `waiting`: its store is down, and it will fail
    over, because its log is shared. `unavailable`: it waits for its store.
    """
    if found.state == "open" and found.target:
        return "moving"
    if found.state == "unavailable" and found.log not in ("", JOURNAL):
        return "waiting"
    return found.state
