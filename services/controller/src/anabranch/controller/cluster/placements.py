"""The local copy of nodes and placements, and the assignment of what has no owner.

Owns: what the watches of the two buckets have shown so far. Compares states, never reacts to
single changes: whenever something changed, and every few seconds, whatever lacks a placement
gets one by create-only, so two controllers that assign at once cannot disagree.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from anabranch.common.contracts.cluster import (
    node_from_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.contracts.queries import (
    ContainerDescription,
    NodeDescription,
    SegmentLocation,
)
from anabranch.common.errors import Corrupt, ObjectExists, Retry, Unavailable, Unknown
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import NodeRecord, Placement
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import parse_segment_name
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.placement import assign, describe, serving

RECONCILE_S = 5.0
RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class Placements:
    """Where containers are, as far as known here."""

    def __init__(
        self, nodes: ObjectStore, placements: ObjectStore, container_count: int, clock: Clock
    ) -> None:
        self._node_store = nodes
        self._placement_store = placements
        self._container_count = container_count
        self._clock = clock
        self._nodes: dict[str, NodeRecord] = {}
        self._placements: dict[int, Placement] = {}
        self._listed = {"nodes": False, "placements": False}
        self._changed = asyncio.Event()

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        return self._nodes

    @property
    def placements(self) -> Mapping[int, Placement]:
        return self._placements

    async def serve(self) -> None:
        """Watch and assign until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch("nodes", self._node_store, self._learn_node))
            group.create_task(
                self._watch("placements", self._placement_store, self._learn_placement)
            )
            group.create_task(self._reconcile())

    def locate(self, segments: Iterable[str]) -> tuple[SegmentLocation, ...]:
        """Who serves the segments, in the order asked. Raises InvalidName."""
        return tuple(self._locate(segment) for segment in segments)

    def _locate(self, segment: str) -> SegmentLocation:
        parse_segment_name(segment)
        container = container_of(segment, self._container_count)
        placement = self._placements.get(container)
        node = placement.replicas[0] if placement is not None and placement.replicas else ""
        epoch, endpoint = serving(placement, self._nodes)
        if endpoint is None:
            return SegmentLocation(
                segment=segment, container=container, container_epoch=0, node_id=node
            )
        return SegmentLocation(
            segment=segment,
            container=container,
            container_epoch=epoch,
            host=endpoint.host,
            port=endpoint.port,
            node_id=node,
        )

    def list_containers(self) -> tuple[ContainerDescription, ...]:
        """Every container, by number. Raises Unavailable until all placements were seen."""
        if not all(self._listed.values()):
            raise Unavailable("the controller has not seen all placements yet")
        return describe(self._container_count, self._placements, self._nodes)

    def list_nodes(self) -> tuple[NodeDescription, ...]:
        """Every segment store, by node id. Raises Unavailable until all were seen."""
        if not self._listed["nodes"]:
            raise Unavailable("the controller has not seen all nodes yet")
        return tuple(
            NodeDescription(node_id=name, host=node.endpoint.host, port=node.endpoint.port)
            for name, node in sorted(self._nodes.items())
        )

    async def _watch(
        self, name: str, store: ObjectStore, learn: Callable[[StoredObject], None]
    ) -> None:
        while True:
            try:
                async for found in store.watch():
                    if found is None:
                        self._listed[name] = True
                    else:
                        _learn_or_report(learn, found)
                    self._changed.set()
            except Retry as error:
                _log.warning("a watch was interrupted", bucket=name, error=str(error))
            await self._clock.sleep(RETRY_S)

    def _learn_node(self, found: StoredObject) -> None:
        # What is gone or unreadable must not be trusted any more.
        self._nodes.pop(found.key, None)
        if found.value:
            self._nodes[found.key] = node_from_bytes(found.value)

    def _learn_placement(self, found: StoredObject) -> None:
        if not found.key.isdecimal():
            return
        container = int(found.key)
        self._placements.pop(container, None)
        if found.value:
            self._placements[container] = placement_from_bytes(found.value)

    async def _reconcile(self) -> None:
        while True:
            self._changed.clear()
            try:
                if all(self._listed.values()):
                    await self._assign_missing()
            except (Retry, Unknown) as error:
                _log.warning("assigning containers will be repeated", error=str(error))
            try:
                async with asyncio.timeout(RECONCILE_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _assign_missing(self) -> None:
        for placement in assign(self._container_count, self._placements, self._nodes):
            try:
                await self._placement_store.create(
                    placement_key(placement.container), placement_to_bytes(placement)
                )
            except ObjectExists:
                continue  # another controller was faster; the watch will show its choice
            _log.info(
                "a container was assigned",
                container=placement.container,
                node=placement.replicas[0],
            )


def _learn_or_report(learn: Callable[[StoredObject], None], found: StoredObject) -> None:
    try:
        learn(found)
    except Corrupt as error:
        _log.error(
            "a stored object cannot be read",
            key=found.key,
            error=str(error),
            remedy=error.remedy,
        )
