"""What goes wrong in a simulated cluster: each run draws some kinds of faults, and moments."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from kit.failover_services import Ways
from kit.failover_store import StoreProcess
from kit.failover_world import World
from kit.processes import Process
from kit.rng import Random
from kit.sim_stream import RELIABLE
from kit.stream_log_scenario import random_faults
from kit.ways import Way, WayFaults

PAUSE_S_MAX = 10.0
DOWN_S_MAX = 8.0
WIPED_MAX = 2


def _some_s(world: World, longest: float) -> float:
    """A time from half a second to `longest`; half of them are too long for a lease."""
    return world.rng.uniform(*world.rng.choice(((0.5, 4.0), (4.0, longest))))


def _a_store(world: World) -> StoreProcess | None:
    """A store that lives, if any does."""
    alive = [name for name, store in sorted(world.stores.items()) if not store.process.dead]
    return world.stores[world.rng.choice(alive)] if alive else None


def _pause(world: World, process: Process, ways: Ways) -> None:
    """Pause at any moment, or just after something arrived, such as the answer to a beat, often
    before the task that waits for it goes on.

    The servers may close a connection whose client takes nothing, so watches may lag afterwards.
    """
    turns, seconds = world.rng.choice((0, 0, 0, 1, 2, 5)), _some_s(world, PAUSE_S_MAX)

    def begin() -> None:
        process.pause_in(turns, seconds)
        if world.rng.random() < 0.5:
            ways.watches.break_off()
            world.processes.later(seconds + 5.0 * world.rng.random(), ways.watches.mend)

    if world.rng.random() < 0.5:
        begin()
    else:
        ways.buckets.at_next_arrival = begin


def pause_store(world: World) -> bool:
    """A store stands still while its clock goes on; then it wakes with everything in flight."""
    store = _a_store(world)
    if store is None:
        return False
    _pause(world, store.process, store.ways)
    return True


def kill_store(world: World) -> bool:
    """A store is killed, and started again."""
    store = _a_store(world)
    if store is None:
        return False
    world.kill_store(store.node_id, _some_s(world, DOWN_S_MAX))
    return True


def stop_store(world: World) -> bool:
    """A store is stopped in order, and started again."""
    store = _a_store(world)
    if store is None:
        return False
    world.stop_store(store.node_id, _some_s(world, DOWN_S_MAX))
    return True


def wipe_store(world: World) -> bool:
    """A store is lost with its disk, and another one joins."""
    store = _a_store(world)
    lost = world.counts["wipe store"]
    if store is None or not world.is_wipeable(store.node_id) or lost >= WIPED_MAX:
        return False
    world.wipe_store(store.node_id, _some_s(world, DOWN_S_MAX))
    return True


def usurp_store(world: World) -> bool:
    """Another process takes the place of a store that lives, and may be paused."""
    store = _a_store(world)
    if store is None or store.frames is not None:
        return False
    if world.rng.random() < 0.5:
        _pause(world, store.process, store.ways)
    world.usurp_store(store.node_id)
    return True


def _cut(world: World, ways: tuple[Way, ...]) -> bool:
    """Cut the ways for a while. What is watched may take longer to come back, as watches are
    resumed after the connection is."""
    for way in ways:
        way.break_off()

    seconds = _some_s(world, PAUSE_S_MAX)
    for way in ways:
        resumed_s = world.rng.choice((0.0, 0.5, 5.0)) * world.rng.random() if way.watched else 0.0
        world.processes.later(seconds + resumed_s, way.mend)
    return bool(ways)


def cut_buckets(world: World) -> bool:
    """A store is cut off from the buckets, but not from the logs."""
    store = _a_store(world)
    return store is not None and _cut(world, store.ways.to_buckets)


def cut_logs(world: World) -> bool:
    """A store is cut off from the logs, but not from the buckets."""
    store = _a_store(world)
    return store is not None and _cut(world, (store.ways.logs,))


def cut_store(world: World) -> bool:
    """A store is cut off from NATS."""
    store = _a_store(world)
    return store is not None and _cut(world, store.ways.to_nats)


def cut_tier_two(world: World) -> bool:
    """A store is cut off from tier 2."""
    store = _a_store(world)
    return store is not None and _cut(world, (store.ways.tier_two,))


def nats_away(world: World) -> bool:
    """Nobody reaches NATS."""
    ways = [way for process in world.everything() for way in process.ways.to_nats]
    return _cut(world, tuple(ways))


def lossy_ways(world: World) -> bool:
    """Messages of a store or a controller are lost, late or slow for a while."""
    process = world.rng.choice(list(world.everything()))
    faults = WayFaults(
        slow_s_max=world.rng.choice((0.002, 0.2, 0.8)),
        lost=world.rng.choice((0.0, 0.05, 0.2)),
        late=world.rng.choice((0.0, 0.1)),
    )
    process.ways.set_faults(faults)
    world.processes.later(_some_s(world, PAUSE_S_MAX), lambda: process.ways.set_faults(WayFaults()))
    return True


def lagging_watches(world: World) -> bool:
    """A store or a controller sees changes late for a while."""
    ways = world.rng.choice(list(world.everything())).ways
    ways.watches.faults = WayFaults(slow_s_max=world.rng.choice((1.0, 4.0, 10.0)))

    def heal() -> None:
        ways.watches.faults = WayFaults()

    world.processes.later(_some_s(world, PAUSE_S_MAX), heal)
    return True


def change_leader(world: World) -> bool:
    """A log's stream has another leader, which does not know all proposals."""
    logs = sorted(world.services.servers.streams)
    if logs:
        world.services.servers.change_leader(world.rng.choice(logs))
    return bool(logs)


def disturb_streams(world: World) -> bool:
    """The servers lose, drop and delay messages of the logs for a while."""
    servers = world.services.servers
    servers.faults = replace(random_faults(world.rng), apply_s_max=0.05)

    def heal() -> None:
        servers.faults = RELIABLE

    world.processes.later(_some_s(world, PAUSE_S_MAX), heal)
    return True


def kill_controller(world: World) -> bool:
    """A controller is killed, and started again."""
    name = world.rng.choice(sorted(world.controllers))
    if world.controllers[name].process.dead:
        return False
    world.kill_controller(name, _some_s(world, DOWN_S_MAX))
    return True


def pause_controller(world: World) -> bool:
    """A controller stands still, and wakes."""
    controller = world.controllers[world.rng.choice(sorted(world.controllers))]
    if controller.process.dead:
        return False
    _pause(world, controller.process, controller.ways)
    return True


def cut_controller(world: World) -> bool:
    """A controller is cut off from NATS."""
    controller = world.controllers[world.rng.choice(sorted(world.controllers))]
    return _cut(world, controller.ways.to_nats)


def move_container(world: World) -> bool:
    """An operator moves a container."""
    if not world.stores:
        return False
    node = world.rng.choice(sorted(world.stores))
    world.move(world.rng.randrange(world.container_count), node)
    world.processes.later(_some_s(world, PAUSE_S_MAX), world.unpin_all)
    return True


def drain_store(world: World) -> bool:
    """An operator drains a store for a while."""
    if not world.stores:
        return False
    world.drain((world.rng.choice(sorted(world.stores)),))
    world.processes.later(_some_s(world, PAUSE_S_MAX), lambda: world.drain(()))
    return True


FAULTS: Mapping[str, Callable[[World], bool]] = {
    "pause store": pause_store,
    "kill store": kill_store,
    "stop store": stop_store,
    "wipe store": wipe_store,
    "usurp store": usurp_store,
    "cut store from buckets": cut_buckets,
    "cut store from logs": cut_logs,
    "cut store from NATS": cut_store,
    "cut store from tier 2": cut_tier_two,
    "NATS away": nats_away,
    "lossy ways": lossy_ways,
    "lagging watches": lagging_watches,
    "stream leader changes": change_leader,
    "disturbed streams": disturb_streams,
    "kill controller": kill_controller,
    "pause controller": pause_controller,
    "cut controller from NATS": cut_controller,
    "move container": move_container,
    "drain store": drain_store,
}


ISOLATING = (
    "pause store",
    "kill store",
    "wipe store",
    "usurp store",
    "cut store from buckets",
    "cut store from NATS",
)
"""Faults after which other stores may take over. Each run has one of them."""


def drawn_kinds(rng: Random) -> list[str]:
    """The kinds of faults of one run."""
    return sorted(
        {rng.choice(ISOLATING), *rng.sample(sorted(FAULTS), rng.choice((0, 0, 1, 2, 3, 4)))}
    )


def disturb(world: World, kinds: list[str]) -> None:
    """One fault of one of these kinds."""
    kind = world.rng.choice(kinds)
    world.counts[kind] += FAULTS[kind](world)


def heal(world: World) -> None:
    """Mend everything, and let operators do what is theirs."""
    world.services.servers.faults = RELIABLE
    for process in world.everything():
        process.ways.mend()
        process.process.wake()
    for name in list(world.controllers):
        world.start_controller(name)
    for node in list(world.stores):
        world.start_store(node)
    world.drain(())
    world.unpin_all()
