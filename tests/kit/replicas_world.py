"""A simulated cluster whose stores replicate logs: it has disks, and a network between stores.

The disk of a node outlives its processes. A store that is killed may lose its machine's power, and
with it what was not synced. A disk is lost only if each ISR has another copy.
"""

from collections.abc import Iterator, Sequence

from anabranch.common.contracts.cluster import node_from_bytes
from anabranch.common.model.cluster import Placement
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.domain.cluster.placement_changes import set_replicas
from anabranch.controller.ports import Candidates
from kit.failover_controller import ControllerProcess
from kit.failover_services import Services
from kit.failover_world import World
from kit.replica_candidates import SimCandidates
from kit.replica_disks import Disks
from kit.replica_log_world import SETTLED_S
from kit.replica_network import Network
from kit.replicas_store import ReplicaStore
from kit.rng import Random

OPERATOR_S = 2.0
"""After so long, operators notice what is lost."""


class ReplicaController(ControllerProcess):
    """One life of a controller, which asks the stores' copies over the network."""

    def __init__(
        self,
        services: Services,
        network: Network,
        name: str,
        rate: float,
        replication: Replication,
    ) -> None:
        self._network = network
        self._name = name
        super().__init__(services, name, rate, replication)

    def _candidates(self) -> Candidates:
        return SimCandidates(self._network, self._name, self.process)


class ReplicaWorld(World):
    """One run. `replication`: how many stores keep each log."""

    stores: dict[str, ReplicaStore]  # type: ignore[assignment]

    def __init__(
        self,
        rng: Random,
        *,
        store_count: int,
        container_count: int,
        replication: int,
        isr_min: int,
        rates: tuple[float, ...] = (1.0,),
    ) -> None:
        super().__init__(rng, store_count=store_count, container_count=container_count, rates=rates)
        self.replication = replication
        self.wish = Replication(replication, isr_min)
        self.network = Network(self.processes, rng, self.counts)
        self.disks = Disks(self.processes, rng, self.counts)
        self.lost_nodes: set[str] = set()
        """Nodes that never come back."""
        self._wiping: set[str] = set()
        """Nodes that are down until their disk may be lost."""

    # --- processes ----------------------------------------------------------------------------

    def _new_controller(self, name: str, rate: float) -> ControllerProcess:
        return ReplicaController(self.services, self.network, name, rate, self.wish)

    def _new_store(self, node: str, rate: float, *, former_may_run: bool = False) -> ReplicaStore:
        return ReplicaStore(
            self.services, self.network, self.disks, node, rate,
            is_gone=self.is_gone, former_may_run=former_may_run,
        )  # fmt: skip

    def start_store(self, node: str) -> None:
        """See `World`; not a lost node, or one that waits for the loss of its disk."""
        if node not in self._wiping | self.lost_nodes:
            super().start_store(node)

    def is_gone(self, node: str) -> bool:
        """Whether a store's session is over."""
        stored = self.services.nodes.get(node)
        if stored is None:
            return False
        record = node_from_bytes(stored.value)
        return record.over or record.stopped

    def lives_of(self, node: str) -> Iterator[ReplicaStore]:
        """The living processes of a node."""
        for store in (self.stores[node], *self._former):
            if store.node_id == node and not store.process.dead:
                assert isinstance(store, ReplicaStore)
                yield store

    def lose_power(self, node: str, *, everything: bool = False) -> None:
        """The node's machine stops, and loses what was not synced, or a part of it."""
        for store in list(self.lives_of(node)):
            store.silent = True
            store.process.kill()
        self.disks.lose_power(node, everything=everything)

    def kill_store(self, node: str, down_s: float) -> None:
        """See `World`; often the machine stops, too."""
        self._down.add(node)
        if self.rng.random() < 0.6:
            self.lose_power(node)
        else:
            self.stores[node].process.kill()
        self.processes.later(down_s, lambda: self.start_store(node))

    def fail_power(self, down_s: float, *, everything: bool = False) -> None:
        """All machines of stores stop, and start again."""
        for node in sorted(self.stores):
            self._down.add(node)
            self.lose_power(node, everything=everything)
            self.processes.later(down_s, lambda node=node: self.start_store(node))  # type: ignore[misc]

    def wipe_store(self, node: str, new_s: float) -> None:
        """Kill a store. If each ISR has a copy elsewhere, its disk is lost, and it comes back with
        an empty one, or another node takes its place."""
        self._down.add(node)
        self._wiping.add(node)
        self.lose_power(node)

        def come_back() -> None:
            self._wiping.discard(node)
            if not self._may_lose(node):
                self.counts["disks that had to be kept"] += 1
                self.start_store(node)
                return
            self.network.promises.forget(self.disks.copies_on(node))
            self.disks.wipe(node)
            if self.rng.random() < 0.6:
                self.start_store(node)
                return
            self.lost_nodes.add(node)
            del self.stores[node]
            self._node_count += 1
            self.start_store(f"node-{self._node_count}")
            self.processes.later(OPERATOR_S, self._replace_lost)

        self.processes.later(SETTLED_S + new_s, come_back)

    def want(self, container: int, wanted: Sequence[str]) -> None:
        """Have these stores replicate the container's log, if that is possible now."""
        nodes = frozenset(self.stores)
        self._change(container, lambda found: set_replicas(found, wanted, nodes, nodes, self.wish))

    def _replace_lost(self) -> None:
        """An operator has living stores take the places of lost ones, until that is done.

        A list that is wanted may name a store that was lost after an operator had written it. No
        controller may conclude that its disk is gone, so an operator corrects this list, too."""
        waiting = [
            found.container
            for found in self.placements()
            if not self.lost_nodes.isdisjoint((*found.replicas, *found.wanted))
        ]
        for container in waiting:
            self._change(container, self._without_lost)
        if waiting:
            self.processes.later(OPERATOR_S, self._replace_lost)

    def _without_lost(self, found: Placement) -> Placement:
        kept = [node for node in found.replicas if node not in self.lost_nodes]
        others = [node for node in sorted(self.stores) if node not in kept]
        wanted = [*kept, *others][: self.replication]
        if found.wanted and self.lost_nodes.isdisjoint(found.wanted):
            return found
        nodes = frozenset(self.stores)
        return set_replicas(found, wanted, nodes, nodes, self.wish)

    def lose_for_good(self, node: str) -> None:
        """Kill a store with its machine, which does not come back."""
        self._down.add(node)
        self.lose_power(node)
        self.lost_nodes.add(node)
        del self.stores[node]

    def _may_lose(self, node: str) -> bool:
        """Whether each ISR has a copy on another disk."""
        return all(
            any(
                copy.node_id != node and self.disks.has_copy(copy.node_id, found.container, copy)
                for copy in found.isr
            )
            if found.isr
            else not found.log_id
            for found in self.placements()
        )

    # --- looking ------------------------------------------------------------------------------

    def all_open(self) -> bool:
        """Whether each container serves at a store that runs, with all its living replicas."""
        return super().all_open() and all(map(self._is_whole, self.placements()))

    def _is_whole(self, found: Placement) -> bool:
        members = {copy.node_id for copy in found.isr}
        wanted = set(found.replicas) - self.lost_nodes
        return not found.wanted and members == wanted
