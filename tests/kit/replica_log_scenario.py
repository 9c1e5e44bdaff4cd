"""Replicated logs alone, under random faults: real copies and leaders, hand-made elections.

    start ──► owners write, flush and lose their logs, faults ──► heal ──► every log is served, with
      all replicas in its ISR, in bounded time ──► all machines lose their power ──► the same again
      ──► the copies agree

In *plain* runs the only fault is the death of one store, and its logs must be written to soon.
"""

from collections.abc import Callable, Mapping

from anabranch.segstore.domain.log.replica.history import History
from kit.replica_disks import QUICK_S
from kit.replica_log_world import World
from kit.replica_network import NetworkFaults
from kit.rng import Random, seeded
from kit.ways import Way, WayFaults

FAULTS_S = 20.0
BEGIN_S_MAX = 30.0
RECOVERY_S_MAX = 60.0
CONTINUE_S_MAX = 6.5
"""The silence after which a store is dead, and an election."""
PACES_S = (1.0, 3.0, 8.0)
CLOCKS = ((1.0,), (0.9, 1.0, 1.1))
SETTINGS = ((2, 2, 1), (3, 2, 1), (3, 2, 2), (3, 3, 2), (3, 3, 2), (3, 3, 1), (4, 3, 2), (4, 3, 3))
"""(stores, replication factor, least members of the ISR)"""


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
    everything = [*world.nodes.values(), *world.electors.values()]
    return world.rng.choice(everything).way


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
}


class Story:
    """One run."""

    def __init__(self, rng: Random, world: World) -> None:
        self._rng = rng
        self._world = world

    def begin(self) -> None:
        """Wait until every log is served by its first owner."""
        world = self._world
        assert world.processes.run(world.all_served, BEGIN_S_MAX), "the logs are not served"
        world.processes.run_for(1.0)

    def disturb(self, kinds: list[str]) -> None:
        """Let things go wrong for a while."""
        world = self._world
        until_s = world.now_s + FAULTS_S
        pace_s = self._rng.choice(PACES_S)
        while world.now_s < until_s:
            world.processes.run_for(self._rng.random() * pace_s)
            kind = self._rng.choice(kinds)
            world.counts[kind] += FAULTS[kind](world)

    def kill_one(self) -> None:
        """Kill one store for good, and require that its logs are written to soon."""
        world = self._world
        assert world.processes.run(world.whole, RECOVERY_S_MAX), "the ISRs are not whole"
        world.kill_for_good(self._rng.choice(sorted(world.nodes)))
        self._require_progress(CONTINUE_S_MAX)
        world.counts["plain fail-overs of logs"] += 1

    def heal(self) -> None:
        """Mend everything."""
        world = self._world
        world.calm = True
        world.network.heal()
        for part in (*world.nodes.values(), *world.electors.values()):
            part.way.faults = WayFaults()
            part.way.mend()
            part.process.wake()
        world.disks.heal()

    def recover(self) -> None:
        """Require that every log is served by all its replicas in bounded time."""
        world = self._world
        assert world.processes.run(world.whole, RECOVERY_S_MAX), (
            f"not everything is served by all replicas: {world.all_placed()}"
        )
        self._require_progress(RECOVERY_S_MAX)

    def _require_progress(self, seconds: float) -> None:
        world, since_s = self._world, self._world.now_s

        def going() -> bool:
            return all(placed.acknowledged_s > since_s for placed in world.placed)

        assert world.processes.run(going, seconds), f"no progress: {world.all_placed()}"

    def lose_everything_unsynced(self) -> None:
        """All machines lose their power, with all that was not synced."""
        world = self._world
        for name in sorted(world.nodes):
            if not world.nodes[name].process.dead:
                world.kill(name, power=True, everything=True)

    def check(self) -> None:
        """The copies of each log agree."""
        world = self._world
        for found in world.all_placed():
            histories = {}
            for copy in found.isr:
                kept = world.nodes[copy.node_id].parts.copies._copies.get(found.container)
                assert kept is not None, f"{copy} is gone"
                assert kept.copy_id == copy.copy_id, f"{copy} was created again"
                histories[copy.node_id] = kept.history
            agree(histories)
            world.counts["histories of copies compared"] += len(histories)


def agree(histories: Mapping[str, History]) -> None:
    """Raises AssertionError if two copies have different messages at one position."""
    known: dict[tuple[int, int], tuple[str, object]] = {}
    for node, history in histories.items():
        for counted in history.after(history.base):
            other, link = known.setdefault(counted.position, (node, counted.link))
            assert link == counted.link, (
                f"{node} and {other} differ at {counted.position}: {counted.link}, {link}"
            )


def random_replicated_log(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    rng = seeded(seed)
    plain = seed % 10 == 0
    stores, replication, isr_min = (3, 3, 2) if plain else rng.choice(SETTINGS)
    world = World(
        rng,
        store_count=stores,
        container_count=rng.randint(1, 3),
        replication=replication,
        isr_min=isr_min,
        rates=CLOCKS[0] if plain else rng.choice(CLOCKS),
    )
    world.calm = plain
    try:
        story = Story(rng, world)
        story.begin()
        if plain:
            story.kill_one()
        else:
            story.disturb(sorted(rng.sample(sorted(FAULTS), rng.choice((1, 2, 3, 4)))))
            story.heal()
            story.recover()
            story.lose_everything_unsynced()
            story.recover()
            story.check()
    finally:
        world.processes.end()
    world.counts["openings of replicated logs"] = sum(
        len(placed.referee.found) for placed in world.placed
    )
    world.counts["acknowledged operations in replicated logs"] = sum(
        len(placed.referee.acknowledged) for placed in world.placed
    )
    return world.counts
