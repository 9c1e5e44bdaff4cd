"""Which store shall own which container. Pure.

Every container without a placement goes to the registered store that has the fewest; a
container that has a placement is never moved on its own account, whatever becomes of its store,
because its log is there; operators move it by `placement_changes.py`.
"""

from collections.abc import Collection, Mapping, Sequence

from anabranch.common.contracts.queries import ContainerDescription
from anabranch.common.model.cluster import Endpoint, NodeRecord, Placement, PlacementState


def assign(
    container_count: int, placements: Mapping[int, Placement], nodes: Collection[str]
) -> Sequence[Placement]:
    """The placements to be created, in container order; none while no store is registered."""
    if not nodes:
        return ()
    load = dict.fromkeys(sorted(nodes), 0)
    for placement in placements.values():
        for node in placement.replicas[:1]:
            if node in load:
                load[node] += 1
    created = []
    for container in range(container_count):
        if container in placements:
            continue
        chosen = min(load, key=lambda node: (load[node], node))
        load[chosen] += 1
        created.append(Placement(container=container, replicas=(chosen,)))
    return created


def serving(
    placement: Placement | None, nodes: Mapping[str, NodeRecord]
) -> tuple[int, Endpoint | None]:
    """(container epoch, endpoint) of the store that serves the container; (0, None) if none."""
    if placement is None or placement.state is not PlacementState.OPEN:
        return 0, None
    owner = nodes.get(placement.replicas[0]) if placement.replicas else None
    if owner is None:
        return 0, None
    return placement.container_epoch, owner.endpoint


def describe(
    container_count: int, placements: Mapping[int, Placement], nodes: Mapping[str, NodeRecord]
) -> tuple[ContainerDescription, ...]:
    """Every container of the cluster, by number."""
    return tuple(
        describe_one(container, placements.get(container), nodes)
        for container in range(container_count)
    )


def describe_one(
    container: int, placement: Placement | None, nodes: Mapping[str, NodeRecord]
) -> ContainerDescription:
    """One container, placed or not."""
    if placement is None:
        return ContainerDescription(container=container, state="unassigned")
    node_id = placement.replicas[0] if placement.replicas else ""
    node = nodes.get(node_id)
    return ContainerDescription(
        container=container,
        state=placement.state.value,
        container_epoch=placement.container_epoch,
        node_id=node_id,
        host=node.endpoint.host if node is not None else "",
        port=node.endpoint.port if node is not None else 0,
        restarts=placement.restarts,
        reason=placement.reason,
        target=placement.target,
        abandoned=placement.abandoned,
    )
