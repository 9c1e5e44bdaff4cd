"""The local copy of the placements, and the location of a segment's store.

Owns: the placements as last seen by the watch of their bucket.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import structlog

from anabranch.common.contracts.cluster import placement_from_bytes
from anabranch.common.contracts.queries import ContainerDescription, SegmentLocation
from anabranch.common.errors import Corrupt, InvalidRequest, Retry, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import NodeRecord, Placement
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.domain.cluster.descriptions import describe, describe_one, serving
from anabranch.controller.domain.cluster.topic_placement import topic_containers

RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class KnownStores(Protocol):
    """A view of the segment stores."""

    @property
    def complete(self) -> bool:
        """Whether every stored record has been seen."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeRecord]: ...

    @property
    def down_since(self) -> Mapping[str, int]:
        """The dead stores by node id, and since when they are dead; Unix milliseconds."""
        ...

    @property
    def leased(self) -> frozenset[str]:
        """The stores whose last beat is younger than their lease."""
        ...


class Placements:
    """The placements as far as this controller knows."""

    def __init__(
        self,
        stores: KnownStores,
        placements: ObjectStore,
        container_count: int,
        clock: Clock,
        *,
        containment: Containment,
        topics: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`topics` returns the numbers of the containers of topics that are to be placed."""
        self._containment = containment
        self._topics = topics
        self._stores = stores
        self._placement_store = placements
        self._container_count = container_count
        self._clock = clock
        self._placements: dict[int, Placement] = {}
        self._listed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        return self._stores.nodes

    @property
    def placements(self) -> Mapping[int, Placement]:
        return self._placements

    @property
    def complete(self) -> bool:
        """Whether every stored placement has been seen."""
        return self._listed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a placement changes."""
        self._listeners.append(listener)

    async def serve(self) -> None:
        """Watch the placements until cancelled."""
        await self._watch()

    def locate(self, segments: Iterable[str]) -> tuple[SegmentLocation, ...]:
        """The store of each segment, in the given order. Raises InvalidName."""
        return tuple(self._locate(segment) for segment in segments)

    def _locate(self, segment: str) -> SegmentLocation:
        parse_segment_name(segment)
        container = container_of(segment, self._container_count)
        placement = self._placements.get(container)
        node = placement.owner if placement is not None else ""
        epoch, endpoint = serving(placement, self._stores.nodes)
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

    def numbers(self) -> list[int]:
        """The numbers of all containers: of streams and tables, and then of topics."""
        topics = topic_containers(self._placements, self._topics())
        return [*range(self._container_count), *topics]

    def check_number(self, container: int) -> None:
        """Raises InvalidRequest unless a container has this number."""
        if 0 <= container < self._container_count or container in self._placements:
            return
        if container not in self._topics():
            raise InvalidRequest(
                f"containers are numbered 0 to {self._container_count - 1}; topics have others, "
                f"from {TOPIC_CONTAINER_MIN} on",
                container=container,
            )

    def list_containers(self) -> tuple[ContainerDescription, ...]:
        """Every container, by number. Raises Unavailable until all records have been seen."""
        if not self._listed or not self._stores.complete:
            raise Unavailable("the controller has not seen all placements yet")
        return describe(
            self.numbers(),
            self._placements,
            self._stores.nodes,
            self._stores.down_since,
            self._stores.leased,
        )

    def describe_placed(self, placement: Placement) -> ContainerDescription:
        """The description of a container with this placement."""
        return describe_one(
            placement.container,
            placement,
            self._stores.nodes,
            self._stores.down_since,
            self._stores.leased,
        )

    async def _watch(self) -> None:
        while True:
            try:
                async for found in self._placement_store.watch():
                    if found is None:
                        self._listed = True
                    else:
                        with self._containment.contained(JOB, f"placement {found.key}", park_at=0):
                            _learn_or_report(self._learn, found)
                    for listener in self._listeners:
                        listener()
            except Retry as error:
                _log.warning("the watch of the placements was interrupted", error=str(error))
            await self._clock.sleep(RETRY_S)

    def _learn(self, found: StoredObject) -> None:
        if not found.key.isdecimal():
            return
        # A deleted or unreadable placement must not be trusted any more.
        container = int(found.key)
        self._placements.pop(container, None)
        if found.value:
            self._placements[container] = placement_from_bytes(found.value)


def _learn_or_report(learn: Callable[[StoredObject], None], found: StoredObject) -> None:
    try:
        learn(found)
    except Corrupt as error:
        _log.error(
            "a stored object cannot be read",
            key=found.key,
            error=str(error),
            remedy=error.remedy_for("command"),
        )
