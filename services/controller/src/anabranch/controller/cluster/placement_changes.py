"""Changes of placements that operators request: read, decide, compare-and-set, on any controller.

An unclean election is a change, too: see `elections.py`.

Owns nothing. A controller's view of the nodes may be outdated. This does no harm, because a node
that is gone already is no worse than a node that goes a moment later.
"""

from collections.abc import Callable
from typing import assert_never

import structlog

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.contracts.container_queries import (
    AbandonTail,
    ElectLeader,
    EnableContainer,
    MoveContainer,
    PlacementChange,
    SetContainerReplicas,
    UnpinContainer,
)
from anabranch.common.contracts.queries import (
    ContainerDescription,
)
from anabranch.common.errors import RevisionConflict, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import REPLICATED, Placement
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.elections import Elections
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.cluster import placement_changes as decide
from anabranch.controller.domain.cluster.placement_actions import Replication

ATTEMPTS_MAX = 8

_log = structlog.get_logger(__name__)


class PlacementChanges:
    """Moves, abandons, enables and unpins containers, and changes their replicas and leaders.

    Every call is idempotent, except that an unclean election needs a container without a leader.
    """

    def __init__(
        self,
        objects: ObjectStore,
        known: Placements,
        elections: Elections,
        clock: Clock,
        *,
        replication: Replication,
    ) -> None:
        self._elections = elections
        self._replication = replication
        self._objects = objects
        self._known = known
        self._clock = clock

    async def perform(self, change: PlacementChange) -> ContainerDescription:
        """Perform the change; returns the container's placement afterwards.

        Raises NodeNotFound, Conflict, InvalidRequest, Unavailable, OutcomeUnknown.
        """
        known, now_ms = self._known, self._clock.now_ms()
        match change:
            case MoveContainer(container=container, node_id=node):
                return await self._change(
                    "move",
                    container,
                    lambda found: decide.move(found, node, known.nodes, self._replicating()),
                )
            case AbandonTail(container=container, node_id=node):
                return await self._change(
                    "abandon",
                    container,
                    lambda found: decide.abandon(found, node, known.nodes, now_ms),
                )
            case EnableContainer(container=container):
                return await self._change("enable", container, decide.enable)
            case UnpinContainer(container=container):
                return await self._change("unpin", container, decide.unpin)
            case SetContainerReplicas(container=container, replicas=replicas):
                return await self._change(
                    "replicas",
                    container,
                    lambda found: decide.set_replicas(
                        found, replicas, known.nodes, self._replicating(), self._replication
                    ),
                )
            case ElectLeader(container=container, node_id=node):
                self._known.check_number(container)
                elected = await self._elections.hold_unclean(container, node)
                return known.describe_placed(elected)
            case _:
                assert_never(change)

    def _replicating(self) -> list[str]:
        nodes = self._known.nodes.items()
        return [name for name, node in nodes if node.journal_id == REPLICATED]

    async def _change(
        self, what: str, container: int, change: Callable[[Placement], Placement]
    ) -> ContainerDescription:
        self._known.check_number(container)
        key = placement_key(container)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._objects.get(key)
            if stored is None or not stored.value:
                raise Unavailable("the container has no placement yet", container=container)
            found = placement_from_bytes(stored.value)
            changed = change(found)
            if changed != found:
                try:
                    await self._objects.update(key, placement_to_bytes(changed), stored.revision)
                except RevisionConflict:
                    continue
                _log.info(
                    "changed a placement", change=what, container=container,
                    node=changed.owner, target=changed.target,
                )  # fmt: skip
            return self._known.describe_placed(changed)
        raise Unavailable("the placement changes too often", container=container)
