"""The world of replicated logs alone: stores, electors, the placements, and a small tier 2.

The stores run the real journals, copies and logs. What surrounds them is as small as possible: a
container is a list of operations, tier 2 is a list with a fence, and the electors know by
themselves, not always rightly, that an owner is gone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import LogCopy, Placement, PlacementState
from kit.process_objects import Bucket
from kit.processes import Process, Processes
from kit.replica_disks import Disks
from kit.replica_elector import Elector
from kit.replica_log_node import Node
from kit.replica_network import Network
from kit.rng import Random
from kit.stream_log_referee import Referee, Tiered
from kit.virtual_time import START_MS
from kit.ways import Way

SETTLED_S = 8.5
"""After so long, nothing that a dead process sent is on its way any more."""
SESSION_S = 3.0


@dataclass(slots=True)
class Placed:
    """One container: tier 2, the judge of its history, and the log that the manifests name."""

    tiered: Tiered = field(default_factory=Tiered)
    referee: Referee = field(default_factory=Referee)
    log_id: str = ""
    operation: int = 0
    acknowledged_s: float = -1.0
    clock: "Processes | None" = None

    def fence(self, container_epoch: int, log_id: str) -> list[int]:
        """Depose older owners in tier 2 → the operations there. Raises Deposed."""
        history = self.tiered.fence(container_epoch)
        self.log_id = log_id
        return history

    def new_operations(self, count: int) -> list[int]:
        """Operations that no other one equals."""
        self.operation += count
        return list(range(self.operation - count + 1, self.operation + 1))

    def acknowledged(self, container_epoch: int, first: int, operations: Sequence[int]) -> None:
        """An owner acknowledged operations from sequence number `first` on."""
        self.referee.acknowledge(container_epoch, first, operations)
        assert self.clock is not None
        self.acknowledged_s = self.clock.now_s

    def opened(self, container_epoch: int, history: list[int]) -> None:
        """An owner opened the log and found this history."""
        assert container_epoch not in self.referee.found, "two leaders of one container epoch"
        self.referee.opened(container_epoch, history)


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The copies that an ISR gained and lost."""

    added: tuple[LogCopy, ...]
    removed: tuple[LogCopy, ...]


def _ignored(_found: Placement, _change: IsrChange) -> bool:
    return False


class World:
    """One run. `replication`: how many stores keep each log."""

    def __init__(
        self,
        rng: Random,
        *,
        store_count: int,
        container_count: int,
        replication: int,
        isr_min: int,
        rates: tuple[float, ...],
    ) -> None:
        self.rng = rng
        self.rates = rates
        self.container_count = container_count
        self.replication = replication
        self.processes = Processes()
        self.counts: Counter[str] = Counter()
        self.network = Network(self.processes, rng, self.counts)
        self.disks = Disks(self.processes, rng, self.counts)
        self.placements = Bucket(lambda: START_MS + int(self.now_s * 1000), rng)
        self.placements.on_change = self._placement_changed
        self._isrs: dict[int, frozenset[LogCopy]] = {}
        self.at_isr_change: Callable[[Placement, IsrChange], bool] = _ignored
        """Called at each change of an ISR, until it returns True."""
        self.cut_at_start: dict[str, float] = {}
        """Nodes that do not reach the placements for so long after their next start."""
        self.suspected: set[str] = set()
        """Nodes that the electors take for dead."""
        self.placed = [Placed(clock=self.processes) for _ in range(container_count)]
        self.calm = False
        """Whether nothing goes wrong from now on, and owners serve for ever."""
        self._gone_s: dict[str, float] = {}
        """Since when nodes are down."""
        self._for_good: set[str] = set()
        """Nodes that must not be started."""
        self._numbers = 0
        self.nodes: dict[str, Node] = {}
        self.electors = {name: Elector(self, name) for name in ("controller-1", "controller-2")}
        names = [f"node-{number}" for number in range(1, store_count + 1)]
        for container in range(container_count):
            chosen = tuple(rng.sample(names, replication))
            self.put(Placement(container, chosen, isr_min=isr_min))
        for name in names:
            self.start(name)

    @property
    def now_s(self) -> float:
        return self.processes.now_s

    def next_number(self) -> int:
        """A number that nothing else in the run has."""
        self._numbers += 1
        return self._numbers

    def bucket_way(self, process: Process) -> Way:
        """A way of a process to the placements."""
        return Way(self.processes, process, self.rng, self.counts)

    def ways(self) -> list[Way]:
        """The ways of the present processes to the placements."""
        nodes = [node.way for node in self.nodes.values()]
        return [*nodes, *(elector.way for elector in self.electors.values())]

    # --- placements ---------------------------------------------------------------------------

    def put(self, placement: Placement) -> None:
        """Set a placement, as the simulation itself."""
        self.placements.put(placement_key(placement.container), placement_to_bytes(placement))

    def change_replicas(self, container: int, replicas: tuple[str, ...]) -> None:
        """Set the replica list of a container, whose owner stays."""
        found = self.all_placed()[container]
        if found.log_id and replicas[0] == found.owner:
            self.put(replace(found, replicas=replicas))

    def complete_replicas(self) -> None:
        """Have every log be kept by as many stores as it should."""
        for found in self.all_placed():
            others = [name for name in sorted(self.nodes) if name not in found.replicas]
            missing = self.replication - len(found.replicas)
            if missing > 0:
                self.change_replicas(found.container, (*found.replicas, *others[:missing]))

    def _placement_changed(self, changed: StoredObject) -> None:
        found = placement_from_bytes(changed.value)
        before = self._isrs.get(found.container, frozenset())
        now = self._isrs[found.container] = frozenset(found.isr)
        if before and now != before:
            change = IsrChange(tuple(now - before), tuple(before - now))
            self.counts["ISRs that grew"] += bool(change.added)
            self.counts["ISRs that shrank"] += bool(change.removed)
            if self.at_isr_change(found, change):
                self.at_isr_change = _ignored

    def all_placed(self) -> list[Placement]:
        """The placements as stored."""
        found = (self.placements.get(placement_key(c)) for c in range(self.container_count))
        return [placement_from_bytes(stored.value) for stored in found if stored is not None]

    def serves(self, found: Placement) -> bool:
        """Whether the container's owner serves under the epoch of the placement."""
        node = self.nodes.get(found.owner)
        if node is None or node.process.dead or found.state is not PlacementState.OPEN:
            return False
        return node.open.get(found.container) == found.container_epoch

    def all_served(self) -> bool:
        """Whether every container serves."""
        return all(map(self.serves, self.all_placed()))

    def whole(self) -> bool:
        """Whether every container serves, with all its replicas in the ISR."""
        return all(
            self.serves(found) and {copy.node_id for copy in found.isr} == set(found.replicas)
            for found in self.all_placed()
        )

    # --- nodes --------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a node's process, unless it runs or is dead for good."""
        known = self.nodes.get(name)
        if name in self._for_good or (known is not None and not known.process.dead):
            return
        self._gone_s.pop(name, None)
        node = self.nodes[name] = Node(self, name, self.rng.choice(self.rates))
        node.process.at_death.append(lambda: self._died(name))
        if name in self.cut_at_start:
            node.way.break_off()
            self.processes.later(self.cut_at_start.pop(name), node.way.mend)

    def _died(self, name: str) -> None:
        self._gone_s[name] = self.now_s
        self.disks.end_process(name)
        self.processes.later(0.5 + 8.0 * self.rng.random(), lambda: self.start(name))

    def forget_plans(self) -> None:
        """Let no fault wait for its moment any more."""
        self.at_isr_change = _ignored
        self.cut_at_start.clear()
        self.network.promises.at_promise = lambda _node: None
        self.network.promises.at_reset = lambda _node: None

    def kill(self, name: str, *, power: bool, everything: bool = False) -> None:
        """Kill a node; `power`: with its machine, whose disk may lose `everything` unsynced."""
        node = self.nodes[name]
        if node.process.dead:
            return
        node.silent = power
        node.process.kill()
        if power:
            self.disks.lose_power(name, everything=everything)

    def kill_for_good(self, name: str) -> None:
        """Kill a node, which does not come back."""
        self._for_good.add(name)
        self.kill(name, power=True)

    def wipe(self, name: str) -> None:
        """Kill a node; if nothing acknowledged is lost with it, it comes back with an empty disk.

        Everything that its process sent has arrived by then.
        """
        self._for_good.add(name)
        self.kill(name, power=True)

        def come_back() -> None:
            self._for_good.discard(name)
            if self._may_wipe(name):
                self.network.promises.forget(self.disks.copies_on(name))
                self.disks.wipe(name)
            self.start(name)

        self.processes.later(SETTLED_S + self.rng.random(), come_back)

    def bring_back(self) -> None:
        """Start what is dead, except what is dead for good."""
        for name in sorted(self.nodes):
            self.start(name)

    def is_gone(self, name: str) -> bool:
        """Whether a node's session is over, as electors and stores know after a while."""
        since_s = self._gone_s.get(name)
        if name in self.suspected:
            return True
        return since_s is not None and self.now_s - since_s > SESSION_S

    def _may_wipe(self, name: str) -> bool:
        """Whether each ISR has a copy on another disk."""
        return all(self._is_elsewhere(found, name) for found in self.all_placed())

    def _is_elsewhere(self, found: Placement, name: str) -> bool:
        if not found.isr:
            return not found.log_id
        return any(
            copy.node_id != name and self.disks.has_copy(copy.node_id, found.container, copy)
            for copy in found.isr
        )
