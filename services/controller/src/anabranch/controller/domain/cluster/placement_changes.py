"""Changes of a placement by an operator. Pure; each function returns the new placement.

    move     its owner serves, or will again  → the owner is asked to release it: `target`
             no store served since release    → it is placed on the other node at once
             it is pinned, so that it is not moved again to balance the stores
    unpin    it may be moved to balance the stores
    abandon  its owner is lost for good       → it is placed on another node, and the logs that
                                                were opened until now are void
    enable   it is disabled or offline        → it is assigned again, under a higher epoch, which
                                                tells its store that this is a new assignment
    replicas its log is replicated            → `wanted`: `replica_lists.py` leads there

A replicated log moves to a store with an in-sync copy as it is. Before it moves to another store
that replicates logs, this store becomes a replica in the place of the present leader. It moves to a
store with logs of another kind like any container: tier 2 gets everything, and a new log begins.

A change that is already made succeeds and changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from anabranch.common.errors import Conflict, InvalidRequest, NodeNotFound
from anabranch.common.model.cluster import (
    WAITING_FOR_OPERATOR,
    Placement,
    PlacementState,
    VoidLogs,
)
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.domain.cluster.replica_lists import in_sync, is_replicated


def move(
    found: Placement, node: str, nodes: Collection[str], replicating: Collection[str] = ()
) -> Placement:
    """Assign the container to `node`, where it stays until it is unpinned.

    `replicating`: the nodes whose logs are replicated. Raises NodeNotFound, Conflict (disabled,
    offline, without a leader, or its copy at `node` is not in sync).
    """
    if found.owner == node:
        return replace(found, target="", pinned=True)
    _check_node(node, nodes)
    if not found.log_id:
        followers = _followers_of(found, node) if node in replicating else ()
        isr_min = found.isr_min if followers else 0
        return replace(placed_elsewhere(found, node, followers, isr_min), pinned=True)
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
    if is_replicated(found) and node in replicating:
        return _moved_among_replicas(found, node)
    return replace(found, target=node, pinned=True)


def _moved_among_replicas(found: Placement, node: str) -> Placement:
    if found.state is PlacementState.ELECTING:
        raise Conflict(
            "the container has no leader at the moment",
            remedy=f"wait; `anabranch container explain {found.container}` shows why",
            container=found.container,
        )
    if node in in_sync(found):
        return replace(found, target=node, wanted=(), pinned=True)
    if node in found.replicas:
        raise Conflict(
            "the node's copy of the log is not in sync",
            remedy="wait until `anabranch container list` shows the node in the ISR",
            container=found.container, node=node,
        )  # fmt: skip
    return replace(found, wanted=(node, *_followers_of(found, node)), target="", pinned=True)


def _followers_of(found: Placement, node: str) -> tuple[str, ...]:
    """The other replicas if `node` leads; a node that is new takes the place of the owner."""
    new = node not in found.replicas
    return tuple(name for name in found.replicas if name != (found.owner if new else node))


def set_replicas(
    found: Placement,
    wanted: Sequence[str],
    nodes: Collection[str],
    replicating: Collection[str],
    replication: Replication,
) -> Placement:
    """Replicate the container's log on exactly these nodes, from now on.

    The leader stays if it is among them; otherwise the first one leads. Raises NodeNotFound,
    InvalidRequest, Conflict (its log is not replicated).
    """
    for node in wanted:
        _check_node(node, nodes)
        if node not in replicating:
            raise InvalidRequest(
                "the node does not replicate logs",
                remedy="name stores that `anabranch spu list` shows with the log `replicated`",
                container=found.container, node=node,
            )  # fmt: skip
    if not wanted or len(set(wanted)) < len(wanted):
        raise InvalidRequest("name each replica once, and at least one", container=found.container)
    if is_replicated(found):
        return replace(found, wanted=tuple(wanted), target="")
    if found.log_id or not found.isr_min:
        raise Conflict(
            "the container's log is not replicated",
            remedy=f"`anabranch container move {found.container} --to STORE` to a store with the "
                   "log `replicated`, which begins such a log",
            container=found.container,
        )  # fmt: skip
    isr_min = replication.isr_min_of(len(wanted))
    placed = found if found.owner in wanted else placed_elsewhere(found, wanted[0])
    others = tuple(node for node in wanted if node != placed.owner)
    return replace(placed, replicas=(placed.owner, *others), isr_min=isr_min)


def unpin(found: Placement) -> Placement:
    """Allow moves of the container to balance the stores; a pending move continues."""
    return replace(found, pinned=False)


def abandon(found: Placement, node: str, nodes: Collection[str], now_ms: int) -> Placement:
    """Assign the container to `node`, and give up the data that only its owner holds.

    With a replicated log, give up all copies of it. Raises NodeNotFound, InvalidRequest (it is
    already assigned to that node, and has a leader).
    """
    if found.owner == node and found.state is not PlacementState.ELECTING:
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


def placed_elsewhere(
    found: Placement, node: str, followers: tuple[str, ...] = (), isr_min: int = 0
) -> Placement:
    """No store served since the last release: logs opened since are empty, so they are void.

    `followers` and `isr_min`: of its next log, if that is replicated.
    """
    assert not found.log_id
    void = replace(found.void or VoidLogs(0, 0), through=found.container_epoch)
    return replace(_placed(found, node), void=void, replicas=(node, *followers), isr_min=isr_min)


def failed_over(found: Placement, node: str) -> Placement:
    """Have `node`, which shares the log, open the container in place of its present store.

    Nothing is void: the log continues. Failures are counted over stores. The wish of an operator
    holds only if the container was moving to this node.
    """
    assert found.log_home
    assert not is_replicated(found), "a controller elects the leader of a replicated log"
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
        isr=(),
        isr_min=0,
        wanted=(),
    )


def _check_node(node: str, nodes: Collection[str]) -> None:
    if node not in nodes:
        raise NodeNotFound("no such segment store has announced itself", node=node)
