"""What goes wrong in a simulated cluster whose stores replicate logs.

Faults of stores, controllers and NATS are those of `failover_faults`; the disks and the network
between stores have some of their own.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kit.failover_faults import FAULTS as FAILOVER_FAULTS
from kit.failover_faults import PAUSE_S_MAX
from kit.failover_faults import heal as heal_cluster
from kit.replica_disks import QUICK_S
from kit.replica_network import NetworkFaults
from kit.replicas_world import ReplicaWorld
from kit.rng import Random

if TYPE_CHECKING:
    from kit.failover_world import World

PACES_S_MAX = 12.0


def _some_s(rng: Random) -> float:
    return rng.uniform(*rng.choice(((0.1, 1.0), (1.0, 4.0), (4.0, PAUSE_S_MAX))))


def _cut(world: ReplicaWorld, pairs: list[tuple[str, str]]) -> bool:
    """Cut pairs of names in one direction, or in both, for a while."""
    direction = world.rng.choice(("there", "back", "both"))
    back = [(target, source) for source, target in pairs]
    cuts = {"there": pairs, "back": back, "both": pairs + back}[direction]
    for source, target in cuts:
        world.network.cut(source, target)

    def mend() -> None:
        for source, target in cuts:
            world.network.mend(source, target)

    world.processes.later(_some_s(world.rng), mend)
    return bool(cuts)


def partition_stores(world: ReplicaWorld) -> bool:
    """Some stores do not reach some others, perhaps in one direction only."""
    rng, names = world.rng, sorted(world.stores)
    if len(names) < 2:
        return False
    chosen = rng.sample(names, rng.choice((1, 1, 2)) if len(names) > 2 else 1)
    others = [name for name in names if name not in chosen and rng.random() < 0.8]
    return _cut(world, [(one, other) for one in chosen for other in others])


def isolate_store(world: ReplicaWorld) -> bool:
    """A store reaches neither NATS nor other stores, but clients reach it."""
    alive = [store for _, store in sorted(world.stores.items()) if not store.process.dead]
    if not alive:
        return False
    store = world.rng.choice(alive)
    others = [*sorted(world.stores), *sorted(world.controllers)]
    pairs = [(store.node_id, other) for other in others if other != store.node_id]
    pairs += [(target, source) for source, target in pairs]
    for source, target in pairs:
        world.network.cut(source, target)
    for way in store.ways.to_nats:
        way.break_off()

    def mend() -> None:
        for source, target in pairs:
            world.network.mend(source, target)
        for way in store.ways.to_nats:
            way.mend()

    world.processes.later(_some_s(world.rng), mend)
    return True


def cut_from_controllers(world: ReplicaWorld) -> bool:
    """A store and the controllers do not reach each other, or only in one direction."""
    if not world.stores:
        return False
    name = world.rng.choice(sorted(world.stores))
    return _cut(world, [(name, controller) for controller in sorted(world.controllers)])


def lossy_network(world: ReplicaWorld) -> bool:
    """Messages between stores are lost, with their connections, or slow."""
    rng = world.rng
    lost, slow_s_max = rng.choice((0.0, 0.01, 0.05)), rng.choice((0.002, 0.2, 1.0))
    world.network.set_faults(NetworkFaults(lost, slow_s_max))
    world.processes.later(_some_s(rng), lambda: world.network.set_faults(NetworkFaults()))
    return True


def slow_disk(world: ReplicaWorld) -> bool:
    """The syncs of a store take long."""
    if not world.stores:
        return False
    node = world.disks.of(world.rng.choice(sorted(world.stores)))
    node.slow_s_max = world.rng.choice((0.2, 1.0, 4.0))

    def heal() -> None:
        node.slow_s_max = QUICK_S

    world.processes.later(_some_s(world.rng), heal)
    return True


def set_replicas(world: ReplicaWorld) -> bool:
    """An operator has other stores replicate a log."""
    rng, names = world.rng, sorted(world.stores)
    if not names:
        return False
    count = rng.randint(1, min(len(names), world.replication + 1))
    world.want(rng.randrange(world.container_count), rng.sample(names, count))
    return True


def power_failure(world: ReplicaWorld) -> bool:
    """The machines of all stores stop at once."""
    world.fail_power(_some_s(world.rng))
    return True


Fault = Callable[[ReplicaWorld], bool]

NOT_OURS = ("cut store from logs", "stream leader changes", "disturbed streams")
"""Faults of logs on JetStream."""
FAULTS: Mapping[str, Fault] = {
    **{name: fault for name, fault in FAILOVER_FAULTS.items() if name not in NOT_OURS},
    "partition stores": partition_stores,
    "isolate store": isolate_store,
    "cut store from controllers": cut_from_controllers,
    "lossy network": lossy_network,
    "slow disk": slow_disk,
    "power failure": power_failure,
    "set replicas": set_replicas,
}
ISOLATING = (
    "pause store",
    "kill store",
    "wipe store",
    "cut store from buckets",
    "cut store from NATS",
    "partition stores",
    "isolate store",
    "power failure",
)
"""Faults after which other stores may take over. Each run has one of them."""


def drawn_kinds(rng: Random) -> list[str]:
    """The kinds of faults of one run."""
    return sorted({rng.choice(ISOLATING), *rng.sample(sorted(FAULTS), rng.choice((0, 1, 2, 3, 4)))})


def disturb(world: ReplicaWorld, kinds: list[str]) -> None:
    """One fault of one of these kinds."""
    kind = world.rng.choice(kinds)
    world.counts[kind] += FAULTS[kind](world)


def heal(world: ReplicaWorld) -> None:
    """Mend everything, and let operators do what is theirs."""
    world.network.heal()
    world.disks.heal()
    heal_cluster(world)


__all__ = ["World", "disturb", "drawn_kinds", "heal"]
