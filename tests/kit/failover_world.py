"""A simulated cluster of controllers and stores, which are killed, started again and replaced.

The world knows the processes and what outlives them: the services, and the frames of a store with a
journal of its own. A store whose disk is wiped comes back as another node.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from anabranch.common.contracts.cluster import (
    DRAINS_KEY,
    StoredDrains,
    node_from_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import WAITING_FOR_OPERATOR, Placement, PlacementState
from anabranch.common.model.hashing import container_of
from anabranch.controller.domain.cluster import placement_changes
from anabranch.segstore.adapters.memory_log import MemoryFrames
from kit.failover_clients import Clients
from kit.failover_connection import Serving
from kit.failover_controller import ControllerProcess
from kit.failover_referee import Referee
from kit.failover_services import Services
from kit.failover_store import StoreProcess
from kit.processes import Process, Processes
from kit.rng import Random
from kit.ways import Way

SUPERVISED_S = 1.0
"""After so long a process that ended by itself is started again."""


class World:
    """One run. `rates`: the speeds that clocks may have; `journals`: the nodes that have a journal
    of their own."""

    def __init__(
        self,
        rng: Random,
        *,
        store_count: int,
        container_count: int,
        rates: tuple[float, ...] = (1.0,),
        journals: frozenset[str] = frozenset(),
    ) -> None:
        self.rng = rng
        self.rates = rates
        self.processes = Processes()
        self.services = Services(self.processes, rng, container_count)
        self.referee = Referee(container_count)
        self.counts: Counter[str] = self.services.counts
        self.container_count = container_count
        self.stores: dict[str, StoreProcess] = {}
        self.controllers: dict[str, ControllerProcess] = {}
        self._former: list[StoreProcess] = []
        """Processes whose node another process has taken over."""
        self._frames: dict[str, MemoryFrames] = {}
        self._journals = journals
        self._down: set[str] = set()
        """Processes that are to stay dead for now, or for good."""
        self._node_count = store_count
        self.services.nodes.on_change = self._count_session
        self.services.placements.on_change = self._count_takeover
        self._placed: dict[str, Placement] = {}
        self.clients = Clients(self.processes.new("clients"), self, self.referee, rng)

    def start(self) -> None:
        """Start all controllers and stores."""
        for name in ("controller-1", "controller-2"):
            self.start_controller(name)
        for number in range(1, self._node_count + 1):
            self.start_store(f"node-{number}")

    # --- what clients reach -------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.processes.now_s

    def locate(self, segment: str, hear: Callable[[str], None]) -> None:
        """Ask a random controller; a dead, paused or ignorant one does not answer."""
        controller = self.controllers[self.rng.choice(sorted(self.controllers))]
        there, back = self.ways_to(controller.process)

        def answer() -> None:
            node = controller.locate(segment)
            if node:
                back.tell(lambda: hear(node))

        there.tell(answer)

    def serving(self) -> Mapping[str, Serving]:
        """The stores' present processes."""
        return self.stores

    def ways_to(self, process: Process) -> tuple[Way, Way]:
        """Fresh ways from the clients to a process, and back."""
        return self.services.way(process), self.services.way(self.clients.process)

    # --- processes ----------------------------------------------------------------------------

    def start_controller(self, name: str) -> None:
        """Start a controller, unless it runs."""
        known = self.controllers.get(name)
        if known is not None and not known.process.dead:
            return
        self._down.discard(name)
        started = self.controllers[name] = self._new_controller(name, self.rng.choice(self.rates))
        started.process.at_death.append(lambda: self._supervise(name, self.start_controller))

    def start_store(self, node: str) -> None:
        """Start a store, unless it runs."""
        known = self.stores.get(node)
        if known is not None and not known.process.dead:
            return
        self._down.discard(node)
        started = self.stores[node] = self._new_store(node, self.rng.choice(self.rates))
        started.process.at_death.append(lambda: self._supervise(node, self.start_store))

    def usurp_store(self, node: str) -> None:
        """Start another process of a store, which does not wait for the first one's end."""
        former = self.stores[node]
        rate = self.rng.choice(self.rates)
        started = self.stores[node] = self._new_store(node, rate, former_may_run=True)
        started.process.at_death.append(lambda: self._supervise(node, self.start_store))
        self._former.append(former)

    def _new_controller(self, name: str, rate: float) -> ControllerProcess:
        return ControllerProcess(self.services, name, rate)

    def _new_store(self, node: str, rate: float, *, former_may_run: bool = False) -> StoreProcess:
        frames = None
        if node in self._journals:
            frames = self._frames.setdefault(node, MemoryFrames(f"journal-{node}"))
        return StoreProcess(self.services, node, rate, frames, former_may_run=former_may_run)

    def _supervise(self, name: str, start: Callable[[str], None]) -> None:
        """Start a process again that ended by itself, unless another one has its place."""
        if name not in self._down:
            self.counts["processes that ended by themselves"] += 1

        def start_again() -> None:
            if name not in self._down:
                start(name)

        self.processes.later(SUPERVISED_S, start_again)

    def kill_controller(self, name: str, down_s: float) -> None:
        """Kill a controller, and start it again later."""
        self._down.add(name)
        self.controllers[name].process.kill()
        self.processes.later(down_s, lambda: self.start_controller(name))

    def kill_store(self, node: str, down_s: float) -> None:
        """Kill a store, and start it again later."""
        self._down.add(node)
        self.stores[node].process.kill()
        self.processes.later(down_s, lambda: self.start_store(node))

    def stop_store(self, node: str, down_s: float) -> None:
        """Stop a store in order, and start it again later."""
        store = self.stores[node]
        self._down.add(node)
        store.process.deliver(store.stop)
        store.process.at_death.append(
            lambda: self.processes.later(down_s, lambda: self.start_store(node))
        )

    def wipe_store(self, node: str, new_s: float) -> None:
        """Kill a store for good, with its disk; another node joins later."""
        assert node not in self._journals
        self._down.add(node)
        self.stores.pop(node).process.kill()
        self._node_count += 1
        name = f"node-{self._node_count}"
        self.processes.later(new_s, lambda: self.start_store(name))

    def lose_for_good(self, node: str) -> None:
        """Kill a store with its disk; no other node takes its place."""
        assert node not in self._journals
        self._down.add(node)
        self.stores.pop(node).process.kill()

    def everything(self) -> Iterator[StoreProcess | ControllerProcess]:
        """All present processes of the cluster."""
        yield from self.stores.values()
        yield from (one for one in self._former if not one.process.dead)
        yield from self.controllers.values()

    def is_wipeable(self, node: str) -> bool:
        """Whether nothing is lost with the node's disk."""
        return node not in self._journals

    # --- what operators do --------------------------------------------------------------------

    def placements(self) -> list[Placement]:
        """The placements as stored."""
        found = (
            self.services.placements.get(placement_key(container))
            for container in range(self.container_count)
        )
        return [placement_from_bytes(stored.value) for stored in found if stored is not None]

    def move(self, container: int, node: str) -> None:
        """Move a container, if that is possible now."""
        self._change(container, lambda found: placement_changes.move(found, node, self.stores))

    def unpin_all(self) -> None:
        """Let all containers be balanced."""
        for found in self.placements():
            self._change(found.container, placement_changes.unpin)

    def enable_all(self) -> None:
        """Enable the disabled containers. An offline one would be damaged, which never happens."""
        for found in self.placements():
            assert found.state is not PlacementState.OFFLINE, f"{found} is offline"
            if found.state in WAITING_FOR_OPERATOR:
                self.counts["containers that were enabled"] += 1
                self._change(found.container, placement_changes.enable)

    def _change(self, container: int, change: Callable[[Placement], Placement]) -> None:
        found = self.placements()
        try:
            changed = next(change(one) for one in found if one.container == container)
        except (AnabranchError, StopIteration):
            return
        self.services.placements.put(placement_key(container), placement_to_bytes(changed))

    def drain(self, nodes: tuple[str, ...]) -> None:
        """Drain exactly these stores."""
        self.services.cluster.put(DRAINS_KEY, StoredDrains(nodes=nodes).to_bytes())

    def confirm_losses(self) -> None:
        """Tell every controller that the missing stores are lost."""
        for controller in self.controllers.values():
            controller.process.deliver(lambda one=controller: one.members.confirm(()))  # type: ignore[misc]

    # --- counting -----------------------------------------------------------------------------

    def _count_session(self, changed: StoredObject) -> None:
        record = node_from_bytes(changed.value)
        self.counts["sessions that a controller ended"] += record.over

    def _count_takeover(self, changed: StoredObject) -> None:
        found = placement_from_bytes(changed.value)
        before = self._placed.get(changed.key)
        self._placed[changed.key] = found
        if before is not None and before.owner != found.owner:
            same = found.log_id and before.log_id == found.log_id
            self.counts["containers that failed over" if same else "containers that moved"] += 1

    # --- looking ------------------------------------------------------------------------------

    def all_open(self) -> bool:
        """Whether each container serves at a store that runs."""
        found = self.placements()
        return len(found) == self.container_count and all(
            one.state is PlacementState.OPEN and self._serves(one) for one in found
        )

    def _serves(self, placement: Placement) -> bool:
        store = self.stores.get(placement.owner)
        if store is None or store.process.dead:
            return False
        epochs = {
            opened.container.container: opened.container.container_epoch
            for opened in store.store.open_containers()
        }
        return epochs.get(placement.container) == placement.container_epoch

    def segments(self) -> tuple[str, ...]:
        """Names of segments, at least one in each container, and one more."""
        names: dict[int, str] = {}
        number = 0
        while len(names) < self.container_count:
            name = f"s/{number % 3}/{number}.#epoch.0"
            names.setdefault(container_of(name, self.container_count), name)
            number += 1
        return (*(names[container] for container in sorted(names)), f"s/9/{number}.#epoch.0")
