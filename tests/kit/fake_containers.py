"""The containers and stores of a `FakeController`: two stores that obey at once."""

from typing import TYPE_CHECKING

from anabranch.common.contracts import container_queries as c
from anabranch.common.contracts import queries as q
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.container_queries import ContainerExplained, ExplainContainer
from anabranch.common.errors import InvalidRequest, NodeNotFound

if TYPE_CHECKING:
    from kit.fake_controller import FakeController

NODES = ("fake", "other")
QUERIES: dict[str, type[q.Query]] = {
    "list_containers": q.ListContainers,
    "list_nodes": q.ListNodes,
    "explain_container": ExplainContainer,
    "move_container": c.MoveContainer,
    "abandon_tail": c.AbandonTail,
    "enable_container": c.EnableContainer,
    "unpin_container": c.UnpinContainer,
    "set_container_replicas": c.SetContainerReplicas,
    "elect_leader": c.ElectLeader,
    "drain_store": q.DrainStore,
    "undrain_store": q.UndrainStore,
}
ASKED = tuple(QUERIES.values())


def answer(fake: "FakeController", query: q.Query) -> Contract:
    """The answer to one of `QUERIES`. Raises NodeNotFound, InvalidRequest."""
    match query:
        case q.ListContainers():
            return listed(fake)
        case q.ListNodes():
            return _nodes(fake)
        case ExplainContainer():
            return _explained(fake, query)
        case q.DrainStore() | q.UndrainStore():
            return _drained(fake, query)
        case (
            c.MoveContainer()
            | c.AbandonTail()
            | c.EnableContainer()
            | c.UnpinContainer()
            | c.SetContainerReplicas()
            | c.ElectLeader()
        ):
            return _changed(fake, query)
    raise AssertionError(query)


def listed(fake: "FakeController") -> q.ContainerList:
    """All served by the fake's store, if it has one."""
    store = None if fake.away else fake.store
    return q.ContainerList(
        containers=tuple(
            q.ContainerDescription(
                container=number, state="open", container_epoch=store.container_epoch,
                node_id=fake.placed.get(number, NODES[0]), host="127.0.0.1", port=store.port,
            )
            if store
            else q.ContainerDescription(container=number, state="failed", reason="disk-failed")
            for number in range(fake.container_count)
        )
    )  # fmt: skip


def _nodes(fake: "FakeController") -> q.NodeList:
    ports = {NODES[0]: fake.store.port if fake.store else 1, NODES[1]: 1}
    return q.NodeList(
        nodes=tuple(
            q.NodeDescription(
                node_id=node, host="127.0.0.1", port=port, draining=node in fake.drained
            )
            for node, port in ports.items()
        )
    )


def _explained(fake: "FakeController", query: ExplainContainer) -> ContainerExplained:
    if not 0 <= query.container < fake.container_count:
        raise InvalidRequest("no such container", container=query.container)
    found = listed(fake).containers[query.container]
    serves = found.state == "open"
    reason = f"{found.node_id} serves it" if serves else f"it failed: {found.reason}"
    return ContainerExplained(container=found, reasons=(reason,))


def _drained(fake: "FakeController", change: q.DrainChange) -> q.StoreDrained:
    """Containers stay where they are."""
    _require(change.node_id)
    if isinstance(change, q.DrainStore):
        fake.drained.add(change.node_id)
    else:
        fake.drained.discard(change.node_id)
    (node,) = (one for one in _nodes(fake).nodes if one.node_id == change.node_id)
    return q.StoreDrained(node=node)


def _changed(fake: "FakeController", change: c.PlacementChange) -> c.ContainerPlaced:
    """Stores obey at once."""
    fake.changes.append(change)
    if isinstance(change, c.MoveContainer | c.AbandonTail):
        _require(change.node_id)
        fake.placed[change.container] = change.node_id
    if isinstance(change, c.ElectLeader) and change.node_id:
        _require(change.node_id)
        fake.placed[change.container] = change.node_id
    if isinstance(change, c.SetContainerReplicas):
        for node in change.replicas:
            _require(node)
        fake.placed[change.container] = change.replicas[0]
    return c.ContainerPlaced(container=listed(fake).containers[change.container])


def _require(node: str) -> None:
    if node not in NODES:
        raise NodeNotFound("no such store", node=node)
