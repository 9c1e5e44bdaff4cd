"""What goes wrong in a simulated cluster: each run draws some kinds of faults, and their moments."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from kit.failover_world import World
from kit.sim_stream import RELIABLE
from kit.stream_log_scenario import random_faults
from kit.ways import Way, WayFaults

PAUSE_S_MAX = 10.0
DOWN_S_MAX = 8.0
WIPED_MAX = 2


def _some_s(world: World, longest: float) -> float:
    """A time from half a second to `longest`; short ones are more likely."""
    return 0.5 + (longest - 0.5) * world.rng.random() ** 2


def _a_store(world: World) -> str | None:
    alive = [name for name, store in sorted(world.stores.items()) if not store.process.dead]
    return world.rng.choice(alive) if alive else None


def pause_store(world: World) -> None:
    """A store stands still while its clock goes on; then it wakes with everything in flight."""
    node = _a_store(world)
    if node is not None:
        process = world.stores[node].process
        process.pause()
        world.processes.later(_some_s(world, PAUSE_S_MAX), process.wake)


def kill_store(world: World) -> None:
    """A store is killed, and started again."""
    node = _a_store(world)
    if node is not None:
        world.kill_store(node, _some_s(world, DOWN_S_MAX))


def stop_store(world: World) -> None:
    """A store is stopped in order, and started again."""
    node = _a_store(world)
    if node is not None:
        world.stop_store(node, _some_s(world, DOWN_S_MAX))


def wipe_store(world: World) -> None:
    """A store is lost with its disk, and another one joins."""
    node = _a_store(world)
    lost = world.counts["wipe store"]
    if node is not None and world.is_wipeable(node) and lost <= WIPED_MAX:
        world.wipe_store(node, _some_s(world, DOWN_S_MAX))


def _cut(world: World, ways: tuple[Way, ...], longest: float) -> None:
    for way in ways:
        way.break_off()

    def mend() -> None:
        for way in ways:
            way.mend()

    world.processes.later(_some_s(world, longest), mend)


def cut_buckets(world: World) -> None:
    """A store is cut off from the buckets, but not from the logs."""
    node = _a_store(world)
    if node is not None:
        _cut(world, (world.stores[node].ways.buckets,), PAUSE_S_MAX)


def cut_logs(world: World) -> None:
    """A store is cut off from the logs, but not from the buckets."""
    node = _a_store(world)
    if node is not None:
        _cut(world, (world.stores[node].ways.logs,), PAUSE_S_MAX)


def cut_store(world: World) -> None:
    """A store is cut off from NATS."""
    node = _a_store(world)
    if node is not None:
        _cut(world, world.stores[node].ways.to_nats, PAUSE_S_MAX)


def cut_tier_two(world: World) -> None:
    """A store is cut off from tier 2."""
    node = _a_store(world)
    if node is not None:
        _cut(world, (world.stores[node].ways.tier_two,), PAUSE_S_MAX)


def nats_away(world: World) -> None:
    """Nobody reaches NATS."""
    ways = [way for process in world.everything() for way in process.ways.to_nats]
    _cut(world, tuple(ways), PAUSE_S_MAX)


def lossy_ways(world: World) -> None:
    """Messages of a store or a controller are lost, late or slow for a while."""
    process = world.rng.choice(list(world.everything()))
    faults = WayFaults(
        slow_s_max=world.rng.choice((0.002, 0.2, 0.8)),
        lost=world.rng.choice((0.0, 0.05, 0.2)),
        late=world.rng.choice((0.0, 0.1)),
    )
    for way in (process.ways.buckets, process.ways.logs, process.ways.tier_two):
        way.faults = faults

    def heal() -> None:
        for way in (process.ways.buckets, process.ways.logs, process.ways.tier_two):
            way.faults = WayFaults()

    world.processes.later(_some_s(world, PAUSE_S_MAX), heal)


def change_leader(world: World) -> None:
    """A log's stream has another leader, which does not know all proposals."""
    logs = sorted(world.services.servers.streams)
    if logs:
        world.services.servers.change_leader(world.rng.choice(logs))


def disturb_streams(world: World) -> None:
    """The servers lose, drop and delay messages of the logs for a while."""
    servers = world.services.servers
    servers.faults = replace(random_faults(world.rng), apply_s_max=0.05)

    def heal() -> None:
        servers.faults = RELIABLE

    world.processes.later(_some_s(world, PAUSE_S_MAX), heal)


def kill_controller(world: World) -> None:
    """A controller is killed, and started again."""
    name = world.rng.choice(sorted(world.controllers))
    if not world.controllers[name].process.dead:
        world.kill_controller(name, _some_s(world, DOWN_S_MAX))


def pause_controller(world: World) -> None:
    """A controller stands still, and wakes."""
    process = world.controllers[world.rng.choice(sorted(world.controllers))].process
    process.pause()
    world.processes.later(_some_s(world, PAUSE_S_MAX), process.wake)


def cut_controller(world: World) -> None:
    """A controller is cut off from NATS."""
    controller = world.controllers[world.rng.choice(sorted(world.controllers))]
    _cut(world, controller.ways.to_nats, PAUSE_S_MAX)


def move_container(world: World) -> None:
    """An operator moves a container."""
    node = world.rng.choice(sorted(world.stores))
    world.move(world.rng.randrange(world.container_count), node)
    world.processes.later(_some_s(world, PAUSE_S_MAX), world.unpin_all)


def drain_store(world: World) -> None:
    """An operator drains a store for a while."""
    world.drain((world.rng.choice(sorted(world.stores)),))
    world.processes.later(_some_s(world, PAUSE_S_MAX), lambda: world.drain(()))


FAULTS: Mapping[str, Callable[[World], None]] = {
    "pause store": pause_store,
    "kill store": kill_store,
    "stop store": stop_store,
    "wipe store": wipe_store,
    "cut store from buckets": cut_buckets,
    "cut store from logs": cut_logs,
    "cut store from NATS": cut_store,
    "cut store from tier 2": cut_tier_two,
    "NATS away": nats_away,
    "lossy ways": lossy_ways,
    "stream leader changes": change_leader,
    "disturbed streams": disturb_streams,
    "kill controller": kill_controller,
    "pause controller": pause_controller,
    "cut controller from NATS": cut_controller,
    "move container": move_container,
    "drain store": drain_store,
}


def disturb(world: World, kinds: list[str]) -> None:
    """One fault of one of these kinds."""
    kind = world.rng.choice(kinds)
    world.counts[kind] += 1
    FAULTS[kind](world)


def heal(world: World) -> None:
    """Mend everything, and let operators do what is theirs."""
    world.healing = True
    world.services.servers.faults = RELIABLE
    for process in world.everything():
        process.ways.mend()
        for way in (process.ways.buckets, process.ways.logs, process.ways.tier_two):
            way.faults = WayFaults()
        process.process.wake()
    for name in list(world.controllers):
        world.start_controller(name)
    for node in list(world.stores):
        world.start_store(node)
    world.drain(())
    world.unpin_all()
