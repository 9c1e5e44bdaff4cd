"""Stores that replicate logs in a cluster, under random faults, judged by their clients.

The story is that of `failover_scenario`: the same controllers, stores and clients. At its end all
machines lose their power, with everything that was not synced; then the clients read again.

In *plain* runs the only fault is the death of one store, and its writers must continue soon.
"""

from collections.abc import Mapping

from kit.failover_scenario import CLOCKS, FAULTS_S, PACES_S, RECOVERY_S_MAX, Story
from kit.replica_log_scenario import agree
from kit.replicas_faults import disturb, drawn_kinds, heal
from kit.replicas_world import ReplicaWorld
from kit.rng import Random, seeded

SETTINGS = ((2, 2, 1), (3, 2, 0), (3, 3, 2), (3, 3, 2), (3, 3, 1), (4, 3, 2), (4, 3, 0))
"""(stores, replication factor, least members of the ISR, 0: more than half)"""
CONTINUE_S_MAX = 5.0
POWER_S = 1.0


class ReplicaStory(Story):
    """One run."""

    def __init__(self, rng: Random, world: ReplicaWorld, *, calm: bool) -> None:
        super().__init__(rng, world, calm=calm)
        self._replicas = world

    def disturb(self, kinds: list[str]) -> None:
        """See `Story`."""
        world = self._replicas
        until_s = world.now_s + FAULTS_S
        pace_s = self._rng.choice(PACES_S)
        while world.now_s < until_s:
            world.processes.run_for(self._rng.random() * pace_s)
            disturb(world, kinds)

    def kill_one(self) -> None:
        """See `Story`; writers wait for the whole fail-over for a bounded time."""
        super().kill_one()
        took_ms = self._replicas.counts["milliseconds of plain fail-overs"]
        assert took_ms <= 1000 * CONTINUE_S_MAX, f"writers waited for {took_ms} ms"

    def heal(self) -> None:
        """See `Story`."""
        heal(self._replicas)

    def fail_power(self) -> None:
        """Let all machines stop, and lose everything that was not synced."""
        self._replicas.fail_power(POWER_S, everything=True)
        self._replicas.processes.run_for(POWER_S)

    def compare_copies(self) -> None:
        """The copies of each log agree."""
        world = self._replicas
        for found in world.placements():
            histories = {}
            for copy in found.isr:
                kept = world.stores[copy.node_id].parts.copies._copies.get(found.container)
                assert kept is not None, f"{copy} is gone"
                assert kept.copy_id == copy.copy_id, f"{copy} was created again"
                histories[copy.node_id] = kept.history
            agree(histories)
            world.counts["histories of copies compared"] += len(histories)


def random_replicas(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    rng = seeded(seed)
    plain = seed % 10 == 0
    stores, replication, isr_min = (3, 3, 2) if plain else rng.choice(SETTINGS)
    world = ReplicaWorld(
        rng,
        store_count=stores,
        container_count=rng.randint(1, 3),
        replication=replication,
        isr_min=isr_min,
        rates=CLOCKS[0] if plain else rng.choice(CLOCKS),
    )
    world.start()
    try:
        story = ReplicaStory(rng, world, calm=plain)
        story.begin()
        if plain:
            story.kill_one()
        else:
            story.disturb(drawn_kinds(rng))
        story.recover()
        story.compare_copies()
        story.fail_power()
        story.recover()
        story.check()
    finally:
        world.processes.end()
    world.counts.update(world.referee.counts)
    return world.counts


__all__ = ["RECOVERY_S_MAX", "random_replicas"]
