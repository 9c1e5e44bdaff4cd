"""Replicated logs alone, under random faults: real copies and leaders, hand-made elections.

    start ──► owners write, flush and lose their logs, faults ──► heal ──► every log is served, with
      all replicas in its ISR, in bounded time ──► all machines lose their power ──► the same again
      ──► the copies agree

In *plain* runs the only fault is the death of one store, and its logs must be written to soon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.segstore.domain.log.replica.history import History
from kit.replica_log_faults import FAULTS
from kit.replica_log_world import World
from kit.rng import Random, seeded
from kit.ways import WayFaults

FAULTS_S = 20.0
BEGIN_S_MAX = 30.0
RECOVERY_S_MAX = 60.0
CONTINUE_S_MAX = 6.5
"""The silence after which a store is dead, and an election."""
PACES_S = (1.0, 3.0, 8.0)
CLOCKS = ((1.0,), (0.9, 1.0, 1.1))
SETTINGS = ((2, 2, 1), (3, 2, 1), (3, 2, 2), (3, 3, 2), (3, 3, 2), (3, 3, 1), (4, 3, 2), (4, 3, 3))
"""(stores, replication factor, least members of the ISR)"""


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

    def disturb(self, kinds: Sequence[str]) -> None:
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
        world.suspected.clear()
        world.forget_plans()
        world.complete_replicas()
        world.network.heal()
        for way in world.ways():
            way.faults = WayFaults()
            way.mend()
            way.process.wake()
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


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a seed draws before its run."""

    stores: int
    replication: int
    isr_min: int
    container_count: int
    rates: tuple[float, ...]
    kinds: Sequence[str]
    """The kinds of its faults; none in a plain run."""


def drawn(seed: int, rng: Random) -> Drawn:
    """The first choices of a seed."""
    if seed % 10 == 0:
        return Drawn(3, 3, 2, rng.randint(1, 3), CLOCKS[0], ())
    kinds = sorted(rng.sample(sorted(FAULTS), rng.choice((1, 2, 3, 4))))
    return Drawn(*rng.choice(SETTINGS), rng.randint(1, 3), rng.choice(CLOCKS), kinds)


def random_replicated_log(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    rng = seeded(seed)
    chosen = drawn(seed, rng)
    world = World(
        rng,
        store_count=chosen.stores,
        container_count=chosen.container_count,
        replication=chosen.replication,
        isr_min=chosen.isr_min,
        rates=chosen.rates,
    )
    world.calm = not chosen.kinds
    try:
        _tell(Story(rng, world), chosen.kinds)
    finally:
        world.processes.end()
    referees = [placed.referee for placed in world.placed]
    world.counts["openings of replicated logs"] = sum(len(one.found) for one in referees)
    world.counts["acknowledged operations in replicated logs"] = sum(
        len(one.acknowledged) for one in referees
    )
    return world.counts


def _tell(story: Story, kinds: Sequence[str]) -> None:
    story.begin()
    if not kinds:
        story.kill_one()
        return
    story.disturb(kinds)
    story.heal()
    story.recover()
    story.lose_everything_unsynced()
    story.recover()
    story.check()
