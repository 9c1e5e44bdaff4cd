"""The containers that a process serves, found by segment.

A container is open here, assigned here but not open, or not here. The doors look the container up
for every request, so they stop reaching a container as soon as it ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.errors import AnabranchError, InvalidRequest, Unavailable, WrongHost
from anabranch.common.model.cluster import PlacementState
from anabranch.common.model.hashing import container_of
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.tables.serving import TableLoops
from anabranch.segstore.shell.tables.tables import Tables
from anabranch.segstore.shell.tiering.collector import Collector
from anabranch.segstore.shell.tiering.flusher import Flusher

SHOWN_COUNT_MAX = 8


@dataclass(frozen=True, slots=True)
class OpenContainer:
    """A container that serves, with its tier 2, its tables, and the loops that flush and
    collect."""

    container: Container
    tier_two: TierTwo
    flusher: Flusher
    collector: Collector
    table_loops: TableLoops

    @property
    def tables(self) -> Tables:
        """The container's table segments."""
        return self.table_loops.tables


class Store:
    """The containers of one process. `container_count` is the cluster's."""

    def __init__(
        self,
        container_count: int,
        *,
        on_changed: Callable[[], object],
        metrics: StoreMetrics,
        catch_up: CatchUp,
    ) -> None:
        self.container_count = container_count
        self.metrics = metrics
        self.catch_up = catch_up
        """The parts that the reads of all connections share."""
        self._on_changed = on_changed
        self._open: dict[int, OpenContainer] = {}
        self._assigned: set[int] = set()
        self._elsewhere: set[int] = set()
        self._states: dict[int, PlacementState] = {}
        self.stopping = False

    def assign(self, container: int) -> None:
        """Add a container to be opened here. Until it is open, requests get Unavailable."""
        self._assigned.add(container)
        self._elsewhere.discard(container)
        self._on_changed()

    def unassign(self, container: int) -> None:
        """Note that another store owns the container."""
        self._assigned.discard(container)
        self._elsewhere.add(container)
        self._states.pop(container, None)
        self._on_changed()

    def note_state(self, container: int, state: PlacementState) -> None:
        """Note the state of a container that does not serve."""
        self._states[container] = state

    def count_states(self) -> Mapping[tuple[str, ...], int]:
        """The number of assigned containers in each state."""
        counts: dict[tuple[str, ...], int] = {(state.value,): 0 for state in PlacementState}
        for container in self._assigned:
            noted = self._states.get(container, PlacementState.ASSIGNED)
            state = PlacementState.OPEN if container in self._open else noted
            counts[state.value,] += 1
        return counts

    def opened(self, opened: OpenContainer) -> None:
        """Serve the container from now on."""
        self._open[opened.container.container] = opened
        self._on_changed()

    def closed(self, opened: OpenContainer) -> None:
        """Stop serving the container; harmless to repeat."""
        number = opened.container.container
        if self._open.get(number) is opened:
            del self._open[number]
            self._on_changed()

    def end_all(self, error: AnabranchError) -> None:
        """End every container that serves."""
        for opened in self.open_containers():
            opened.container.fail(error)

    def end(self, container: int, error: AnabranchError) -> None:
        """End the container if it serves."""
        opened = self._open.get(container)
        if opened is not None:
            opened.container.fail(error)

    def end_below(self, container: int, container_epoch: int, error: AnabranchError) -> None:
        """End the container if it serves under a lower epoch."""
        opened = self._open.get(container)
        if opened is not None and opened.container.container_epoch < container_epoch:
            opened.container.fail(error)

    def open_containers(self) -> tuple[OpenContainer, ...]:
        """All containers that serve."""
        return tuple(self._open.values())

    @property
    def open_numbers(self) -> frozenset[int]:
        """The numbers of all containers that serve here."""
        return frozenset(self._open)

    @property
    def assigned(self) -> frozenset[int]:
        """The numbers of all containers assigned here."""
        return frozenset(self._assigned)

    @property
    def missing(self) -> str:
        """The reason why the store is not ready; empty if every container of streams and tables has
        a known owner, and all containers of this store are open.
        """
        closed = sorted(self._assigned - self._open.keys())
        if closed:
            shown = ", ".join(map(str, closed[:SHOWN_COUNT_MAX]))
            more = ", …" if closed[SHOWN_COUNT_MAX:] else ""
            count = f"{len(closed)} of {len(self._assigned)}"
            return f"{count} containers are not open: {shown}{more}"
        numbers = range(self.container_count)
        placed = sum(number in numbers for number in (*self._assigned, *self._elsewhere))
        if placed < self.container_count:
            return f"the controller has placed {placed} of {self.container_count} containers"
        return ""

    def find(self, segment: str, container_epoch: int) -> OpenContainer:
        """The container of a segment; `container_epoch` 0 accepts any.

        Raises WrongHost, Unavailable.
        """
        found = self.by_number(container_of(segment, self.container_count))
        served = found.container.container_epoch
        if container_epoch not in (0, served):
            raise WrongHost(
                "the container has another epoch",
                segment=segment,
                asked=container_epoch,
                served=served,
            )
        return found

    def check_together(self, segments: Sequence[str]) -> None:
        """Raises InvalidRequest unless all segments are in one container."""
        if len(segments) < 2:
            return
        first, *others = segments
        container = container_of(first, self.container_count)
        for other in others:
            if container_of(other, self.container_count) != container:
                raise InvalidRequest(
                    "the segments are not in one container",
                    remedy="name segments of one parent, or of a stream that keeps them together",
                    segment=first, other=other,
                )  # fmt: skip

    def by_number(self, container: int) -> OpenContainer:
        """Raises WrongHost, Unavailable."""
        found = self._open.get(container)
        if found is not None and not self.stopping:
            return found
        if self.stopping or container in self._assigned:
            raise Unavailable("the container is not open at the moment", container=container)
        raise WrongHost("the container is not assigned to this store", container=container)
