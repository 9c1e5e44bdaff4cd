"""Changes of placements that operators request: read, decide, compare-and-set, on any controller.

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
from anabranch.common.contracts.queries import (
    AbandonTail,
    ContainerDescription,
    EnableContainer,
    MoveContainer,
    PlacementChange,
    UnpinContainer,
)
from anabranch.common.errors import InvalidRequest, RevisionConflict, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain import placement_changes as decide

ATTEMPTS_MAX = 8

_log = structlog.get_logger(__name__)


class PlacementChanges:
    """Moves, abandons, enables and unpins containers. Every call is idempotent."""

    def __init__(
        self, objects: ObjectStore, known: Placements, container_count: int, clock: Clock
    ) -> None:
        self._objects = objects
        self._known = known
        self._container_count = container_count
        self._clock = clock

    async def perform(self, change: PlacementChange) -> ContainerDescription:
        """Perform the change; returns the container's placement afterwards.

        Raises NodeNotFound, Conflict, InvalidRequest, Unavailable, OutcomeUnknown.
        """
        known, now_ms = self._known, self._clock.now_ms()
        match change:
            case MoveContainer(container=container, node_id=node):
                return await self._change(
                    "move", container, lambda found: decide.move(found, node, known.nodes)
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
            case _:
                assert_never(change)

    async def _change(
        self, what: str, container: int, change: Callable[[Placement], Placement]
    ) -> ContainerDescription:
        if not 0 <= container < self._container_count:
            raise InvalidRequest(
                f"containers are numbered 0 to {self._container_count - 1}", container=container
            )
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
