"""What a store tells the cluster about itself, and learns from it once, at start."""

from anabranch.common.contracts.cluster import CONSTANTS_KEY, ClusterConstants, node_to_bytes
from anabranch.common.errors import Conflict, OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.flusher import back_off_s

POLL_S = 0.25


async def register_node(nodes: ObjectStore, node: NodeRecord, clock: Clock) -> None:
    """Write the node's record, replacing the one of an earlier start; retries until it is there."""
    failures = 0
    while True:
        try:
            found = await nodes.get(node.node_id)
            value = node_to_bytes(node)
            if found is None:
                await nodes.create(node.node_id, value)
            elif found.value != value:
                await nodes.update(node.node_id, value, found.revision)
            return
        except (Conflict, Unavailable, OutcomeUnknown):
            failures += 1
            await clock.sleep(back_off_s(failures))


async def container_count(cluster: ObjectStore, clock: Clock) -> int:
    """The cluster's number of containers, once the controller has written it."""
    while True:
        try:
            found = await cluster.get(CONSTANTS_KEY)
            if found is not None:
                return ClusterConstants.parsed(found.value).containers
        except Unavailable:
            pass  # asked again below: a store may start before its message server
        await clock.sleep(POLL_S)
