"""What goes wrong around replicated logs: each run draws some kinds of faults, and moments.

Some faults wait for a moment at which they matter: an ISR changes, or a store promises.
"""

from collections.abc import Callable, Mapping

from anabranch.common.model.cluster import Placement
from kit.replica_disks import QUICK_S
from kit.replica_log_world import IsrChange, World
from kit.replica_network import NetworkFaults
from kit.rng import Random
from kit.ways import Way, WayFaults


def _some_s(rng: Random, longest: float) -> float:
    return rng.uniform(*rng.choice(((0.1, 1.0), (1.0, 4.0), (4.0, longest))))


def _alive(world: World) -> str:
    """A node that lives; "" if none does."""
    alive = [name for name, node in sorted(world.nodes.items()) if not node.process.dead]
    return world.rng.choice(alive) if alive else ""


def kill_store(world: World) -> bool:
    """A store is killed, often with its machine."""
    name = _alive(world)
    if name:
        world.kill(name, power=world.rng.random() < 0.7)
    return bool(name)


def wipe_store(world: World) -> bool:
    """A store is lost with its disk."""
    name = _alive(world)
    if name:
        world.wipe(name)
    return bool(name)


def power_failure(world: World) -> bool:
    """All machines lose their power."""
    for name in sorted(world.nodes):
        if not world.nodes[name].process.dead:
            world.kill(name, power=True)
    return True


def pause_store(world: World) -> bool:
    """A store stands still while its clock goes on."""
    name = _alive(world)
    if name:
        world.nodes[name].process.pause_in(
            world.rng.choice((0, 0, 1, 2, 5)), _some_s(world.rng, 10.0)
        )
    return bool(name)


def pause_elector(world: World) -> bool:
    """An elector stands still."""
    elector = world.electors[world.rng.choice(sorted(world.electors))]
    elector.process.pause_in(world.rng.choice((0, 0, 1, 2, 5)), _some_s(world.rng, 10.0))
    return True


def partition(world: World) -> bool:
    """Some do not reach some others, perhaps in one direction only."""
    rng, names = world.rng, [*sorted(world.nodes), *sorted(world.electors)]
    chosen = rng.sample(sorted(world.nodes), rng.choice((1, 1, 2)))
    others = [name for name in names if name not in chosen and rng.random() < 0.7]
    pairs = [(one, other) for one in chosen for other in others]
    ways = rng.choice(("there", "back", "both"))
    cuts = pairs if ways != "back" else []
    cuts = cuts + ([(other, one) for one, other in pairs] if ways != "there" else [])
    for source, target in cuts:
        world.network.cut(source, target)

    def mend() -> None:
        for source, target in cuts:
            world.network.mend(source, target)

    world.processes.later(_some_s(rng, 12.0), mend)
    return bool(cuts)


def lossy_network(world: World) -> bool:
    """Messages between stores are lost with their connections, or slow."""
    rng = world.rng
    world.network.set_faults(
        NetworkFaults(rng.choice((0.0, 0.01, 0.05)), rng.choice((0.002, 0.2, 1.0)))
    )
    world.processes.later(_some_s(rng, 10.0), lambda: world.network.set_faults(NetworkFaults()))
    return True


def _a_way(world: World) -> Way:
    return world.rng.choice(world.ways())


def cut_from_placements(world: World) -> bool:
    """A store or an elector does not reach the placements."""
    way = _a_way(world)
    way.break_off()
    world.processes.later(_some_s(world.rng, 10.0), way.mend)
    return True


def lossy_placements(world: World) -> bool:
    """Requests to the placements, and answers, are lost, late or slow."""
    way, rng = _a_way(world), world.rng
    way.faults = WayFaults(
        slow_s_max=rng.choice((0.002, 0.3)), lost=rng.choice((0.0, 0.1, 0.3)),
        late=rng.choice((0.0, 0.2)),
    )  # fmt: skip

    def heal() -> None:
        way.faults = WayFaults()

    world.processes.later(_some_s(rng, 12.0), heal)
    return True


def slow_disk(world: World) -> bool:
    """The syncs of a store take long."""
    node = world.disks.of(world.rng.choice(sorted(world.nodes)))
    node.slow_s_max = world.rng.choice((0.2, 1.0, 4.0))

    def heal() -> None:
        node.slow_s_max = QUICK_S

    world.processes.later(_some_s(world.rng, 8.0), heal)
    return True


def zombie_leader(world: World) -> bool:
    """A leader that lives and reaches its followers is taken for dead, and does not hear of it."""
    found = world.rng.choice(world.all_placed())
    node = world.nodes[found.owner]
    node.way.break_off()
    world.suspected.add(node.name)

    def heal() -> None:
        world.suspected.discard(node.name)
        node.way.mend()

    world.processes.later(_some_s(world.rng, 10.0), heal)
    return True


def crash_after_promise(world: World) -> bool:
    """A store that promised something to an elector loses its power soon after, and does not reach
    the placements when it comes back. The leader does not hear of the election."""

    def crash(name: str) -> None:
        world.cut_at_start[name] = _some_s(world.rng, 8.0)
        _crash_soon(world, name)

    world.network.promises.at_promise = crash
    return zombie_leader(world)


def newest_member_alone(world: World) -> bool:
    """When a copy was added to an ISR, every other member crashes, and perhaps its own store; a
    disk is slow meanwhile."""
    spared = world.rng.random() < 0.5

    def crash(found: Placement, change: IsrChange) -> bool:
        if not change.added:
            return False
        for copy in found.isr:
            if copy != change.added[0] or not spared:
                _crash_soon(world, copy.node_id)
        return True

    world.at_isr_change = crash
    return slow_disk(world)


def new_copy_alone(world: World) -> bool:
    """When a copy was created again, every other store crashes."""

    def crash(name: str) -> None:
        for other in sorted(world.nodes):
            if other != name:
                _crash_soon(world, other)

    world.network.promises.at_reset = crash
    return wipe_store(world) if world.rng.random() < 0.3 else True


def leader_lost_at_change(world: World) -> bool:
    """When an ISR changed, its leader crashes."""

    def crash(found: Placement, _change: IsrChange) -> bool:
        _crash_soon(world, found.owner)
        return True

    world.at_isr_change = crash
    return True


def change_unanswered(world: World) -> bool:
    """When an ISR changed, its leader does not hear of it."""

    def cut(found: Placement, _change: IsrChange) -> bool:
        way = world.nodes[found.owner].way
        way.break_off()
        world.processes.later(_some_s(world.rng, 8.0), way.mend)
        return True

    world.at_isr_change = cut
    return True


def _crash_soon(world: World, name: str) -> None:
    seconds = world.rng.random() * world.rng.choice((0.0, 0.002, 0.05))
    world.processes.later(seconds, lambda: world.kill(name, power=True))


def change_replicas(world: World) -> bool:
    """A replica is replaced by another store, or leaves, or comes back."""
    rng, found = world.rng, world.rng.choice(world.all_placed())
    others = [name for name in sorted(world.nodes) if name != found.owner]
    count = rng.randint(1, min(len(others), world.replication))
    world.change_replicas(found.container, (found.owner, *rng.sample(others, count)))
    return True


FAULTS: Mapping[str, Callable[[World], bool]] = {
    "kill store": kill_store,
    "wipe store": wipe_store,
    "power failure": power_failure,
    "pause store": pause_store,
    "pause elector": pause_elector,
    "partition": partition,
    "lossy network": lossy_network,
    "cut from placements": cut_from_placements,
    "lossy placements": lossy_placements,
    "slow disk": slow_disk,
    "zombie leader": zombie_leader,
    "crash after a promise": crash_after_promise,
    "newest member alone": newest_member_alone,
    "new copy alone": new_copy_alone,
    "leader lost at a change": leader_lost_at_change,
    "change unanswered": change_unanswered,
    "change of replicas": change_replicas,
}
