"""Registers a store with the cluster, and reads the number of containers at the start.

The store rewrites its record as a sign of life, and marks it *stopped* after a clean shutdown. The
record is never deleted, because containers may be placed on the store.
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
    """The node's record, rewritten at intervals; it replaces the record of an earlier start.

    `failed` is called if another store has taken the node's id.
    """

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
        """Announce until cancelled, or until another store takes the id."""
        try:
            await self._beats.run()
        except ProcessReplaced as error:
            self._failed(error)

    async def end(self) -> None:
        """Mark the record as stopped; call this after `run` has ended."""
        await self._beats.end(node_to_bytes(replace(self._node, stopped=True)))


async def container_count(cluster: ObjectStore, clock: Clock) -> int:
    """The cluster's number of containers, as soon as the controller has written it."""
    while True:
        try:
            found = await cluster.get(CONSTANTS_KEY)
            if found is not None:
                return ClusterConstants.parsed(found.value).containers
        except Unavailable:
            pass  # retried below: a store may start before its message server
        await clock.sleep(POLL_S)
