"""Changes of a placement by an operator. Pure; each function returns the new placement.

    move     its owner serves, or will again  → the owner is asked to release it: `target`
             no store served since release    → it is placed on the other node at once
             it is pinned, so that it is not moved again to balance the stores
    unpin    it may be moved to balance the stores
    abandon  its owner is lost for good       → it is placed on another node, and the logs that
                                                were opened until now are void
    enable   it is disabled or offline        → it is assigned again, under a higher epoch, which
                                                tells its store that this is a new assignment

A change that is already made succeeds and changes nothing.
"""

from collections.abc import Collection
from dataclasses import replace

from anabranch.common.errors import Conflict, InvalidRequest, NodeNotFound
from anabranch.common.model.cluster import (
    WAITING_FOR_OPERATOR,
    Placement,
    PlacementState,
    VoidLogs,
)


def move(found: Placement, node: str, nodes: Collection[str]) -> Placement:
    """Assign the container to `node`, where it stays until it is unpinned.

    Raises NodeNotFound, Conflict (disabled or offline).
    """
    if found.owner == node:
        return replace(found, target="", pinned=True)
    _check_node(node, nodes)
    if not found.log_id:
        return replace(placed_elsewhere(found, node), pinned=True)
    if found.state in WAITING_FOR_OPERATOR:
        raise Conflict(
            "the container is closed at its store, which therefore cannot flush it",
            remedy=(
                f"`anabranch container enable {found.container}` first; if its store's data is "
                f"lost, `anabranch container abandon-tail {found.container} --to STORE`"
            ),
            container=found.container,
            state=found.state.value,
            reason=found.reason,
        )
    return replace(found, target=node, pinned=True)


def unpin(found: Placement) -> Placement:
    """Allow moves of the container to balance the stores; a pending move continues."""
    return replace(found, pinned=False)


def abandon(found: Placement, node: str, nodes: Collection[str], now_ms: int) -> Placement:
    """Assign the container to `node`, and give up the data that only its owner holds.

    Raises NodeNotFound, InvalidRequest (it is already assigned to that node).
    """
    if found.owner == node:
        raise InvalidRequest(
            "the container is on this node, which holds the tail",
            remedy=(
                "name another node; to withdraw a pending move, move the container to its own node"
            ),
            container=found.container,
            node=node,
        )
    _check_node(node, nodes)
    if not found.log_id:
        return placed_elsewhere(found, node)
    return replace(
        _placed(found, node),
        log_id="",
        previous_log=found.log_id,
        void=VoidLogs(0, found.container_epoch, abandoned_ms=now_ms),
    )


def enable(found: Placement) -> Placement:
    """Open the container again on its store."""
    if found.state not in WAITING_FOR_OPERATOR:
        return found
    return replace(
        found,
        container_epoch=found.container_epoch + 1,
        state=PlacementState.ASSIGNED,
        restarts=0,
        reason="",
    )


def placed_elsewhere(found: Placement, node: str) -> Placement:
    """No store served since the last release: logs opened since are empty, so they are void."""
    assert not found.log_id
    void = found.void or VoidLogs(0, 0)
    return replace(_placed(found, node), void=replace(void, through=found.container_epoch))


def failed_over(found: Placement, node: str) -> Placement:
    """Have `node`, which shares the log, open the container in place of its present store.

    Nothing is void: the log continues. Failures are counted over stores. The wish of an operator
    holds only if the container was moving to this node.
    """
    assert found.log_home
    return replace(
        found,
        replicas=(node,),
        target="",
        state=PlacementState.ASSIGNED,
        pinned=found.pinned and found.target == node,
    )


def _placed(found: Placement, node: str) -> Placement:
    return replace(
        found,
        replicas=(node,),
        target="",
        state=PlacementState.ASSIGNED,
        restarts=0,
        reason="",
        pinned=False,
        log_home="",
    )


def _check_node(node: str, nodes: Collection[str]) -> None:
    if node not in nodes:
        raise NodeNotFound("no such segment store has announced itself", node=node)
