"""The newest record numbers and sizes of partitions, from the live reports of their leaders.

Owns: by container, the store and the container epoch of the newest report, and the numbers of each
segment; by store, whether it refuses records because its storage is used up. Nothing of it is
stored: a controller that starts knows the numbers after one full report.

A number counts only while the placement of the container names the store that reported it as the
owner, under the same container epoch. Placements and reports come by different ways, so a report
under a newer epoch is kept until the placement shows that epoch; one under an older epoch is
dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.contracts.live import FULL_S, LiveContainer, LiveReport
from anabranch.common.model.cluster import Placement
from anabranch.common.model.topics import CONTAINER_LIMIT, TOPIC_CONTAINER_MIN
from anabranch.common.runtime.clock import Clock

SILENT_S_MAX = 3 * FULL_S
"""A store that reported nothing for so long is not out of storage as far as known."""


class Numbers(NamedTuple):
    """A partition as its leader reports it: see `LivePartition`."""

    base: int
    leo: int
    size_bytes: int


NOTHING = Numbers(0, 0, 0)
"""Of a partition without records, which are many."""


@dataclass(slots=True)
class _Container:
    """The newest report's store and container epoch, and the numbers by segment name."""

    node_id: str
    epoch: int
    segments: dict[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Store:
    """The last report of a store. `at_s`: monotonic."""

    session: str
    sequence: int
    out_of_storage: bool
    used_bytes: int
    at_s: float


class LiveNumbers:
    """The numbers of partitions. `placements()` are the present ones."""

    def __init__(self, placements: Callable[[], Mapping[int, Placement]], clock: Clock) -> None:
        self._placements = placements
        self._clock = clock
        self._containers: dict[int, _Container] = {}
        self._stores: dict[str, _Store] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_storage_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener(node id)` whenever a store's storage is used up, or has room again."""
        self._listeners.append(listener)

    def learn(self, report: LiveReport) -> None:
        """Keep the contents of the report, unless a newer one of its store is known."""
        before = self._stores.get(report.node_id)
        is_same_session = before is not None and before.session == report.session
        if before is not None and is_same_session and report.sequence <= before.sequence:
            return
        was_full = before is not None and before.out_of_storage
        self._stores[report.node_id] = _Store(
            report.session,
            report.sequence,
            report.out_of_storage,
            report.used_bytes,
            self._clock.monotonic(),
        )
        for container in report.containers:
            self._learn_container(report.node_id, container)
        if was_full != report.out_of_storage:
            for listener in self._listeners:
                listener(report.node_id)

    def _learn_container(self, node_id: str, found: LiveContainer) -> None:
        if not TOPIC_CONTAINER_MIN <= found.container < CONTAINER_LIMIT:
            return
        if self._is_outdated(node_id, found):
            return
        held = self._containers.get(found.container)
        if held is None or held.epoch < found.container_epoch or held.node_id != node_id:
            held = _Container(node_id, found.container_epoch)
            self._containers[found.container] = held
        for one in found.partitions:
            numbers = Numbers(one.base, one.leo, one.size_bytes)
            held.segments[one.segment] = NOTHING if numbers == NOTHING else numbers

    def _is_outdated(self, node_id: str, found: LiveContainer) -> bool:
        """Whether the store does not serve the container under this epoch any more."""
        epoch = found.container_epoch
        placed = self._placements().get(found.container)
        if placed is not None and epoch <= placed.container_epoch:
            return epoch < placed.container_epoch or placed.owner != node_id
        held = self._containers.get(found.container)
        return held is not None and epoch < held.epoch

    def of(self, container: int, segment: str) -> Numbers | None:
        """The numbers of a partition; None: its present leader has not reported them yet."""
        held, placed = self._containers.get(container), self._placements().get(container)
        if held is None or placed is None:
            return None
        if (held.node_id, held.epoch) != (placed.owner, placed.container_epoch):
            return None
        return held.segments.get(segment)

    def used_bytes(self, node_id: str) -> int | None:
        """The bytes of the partitions that this store leads; None: it has not reported them."""
        found = self._stores.get(node_id)
        return None if found is None else found.used_bytes

    def out_of_storage(self) -> frozenset[str]:
        """The stores that refuse records of topics, because their storage size is used up."""
        heard_s = self._clock.monotonic() - SILENT_S_MAX
        return frozenset(
            name
            for name, found in self._stores.items()
            if found.out_of_storage and found.at_s >= heard_s
        )

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the numbers of the segments for which `is_gone(name)` is true."""
        for number, held in list(self._containers.items()):
            for name in [one for one in held.segments if is_gone(one)]:
                del held.segments[name]
            if not held.segments:
                del self._containers[number]
