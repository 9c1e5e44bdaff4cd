"""What a store tells the cluster about itself, and learns from it once, at start.

Its record keeps changing while it lives, and says *stopped* when it ended in order. It is never
deleted, because containers may be placed on the store.
"""

from collections.abc import Callable
from dataclasses import replace

from anabranch.common.contracts.cluster import (
    CONSTANTS_KEY,
    ClusterConstants,
    node_from_bytes,
    node_to_bytes,
)
from anabranch.common.errors import AnabranchError, ProcessReplaced, Unavailable
from anabranch.common.eventsourcing.beats import Beats
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.runtime.clock import Clock

POLL_S = 0.25


class Announcement:
    """The node's record, kept changing; it replaces the one of an earlier start. `failed` is told
    that another store has taken the node's id."""

    def __init__(
        self,
        nodes: ObjectStore,
        node: NodeRecord,
        clock: Clock,
        failed: Callable[[AnabranchError], None],
    ) -> None:
        self._node = node
        self._failed = failed
        self._beats = Beats(
            nodes,
            node.node_id,
            node.session,
            encode=lambda beat: node_to_bytes(replace(node, beat=beat)),
            session_in=lambda value: node_from_bytes(value).session,
            clock=clock,
        )

    async def run(self) -> None:
        """Announce until cancelled, or until the id is another's."""
        try:
            await self._beats.run()
        except ProcessReplaced as error:
            self._failed(error)

    async def end(self) -> None:
        """Say that the store ended in order; once `run` has ended."""
        await self._beats.end(node_to_bytes(replace(self._node, stopped=True)))


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
