"""One life of a simulated store, repeated with a crash at each of its disk calls.

A crash comes before, in the middle of, or after a call; every crash then ends in several ways
(process killed; power lost with the unsynced lost, kept, or torn), and the machine is started
twice more each time.
"""

from kit.rng import seeded
from kit.simdisk import (
    KEEP_CONTENTS,
    KEEP_NAMES,
    LOSE_ALL,
    RandomSurvival,
    Survival,
    When,
)
from kit.store_check import check_everything
from kit.store_world import Script, World

Ending = Survival | None
"""None: the process was killed, the machine lives."""


def crashed_world(
    life: Script, on_tier_disk: bool, call: int, when: When, sync_s: float | None = None
) -> World:
    """The world after the life died at that call of one disk."""
    world = World(sync_s=sync_s)
    disk = world.tier_disk if on_tier_disk else world.journal_disk
    disk.crash_at(call, when)
    assert not world.run(life), "the life did not reach the call that should end it"
    return world


def endings(seed: int) -> list[Ending]:
    return [None, LOSE_ALL, KEEP_NAMES, KEEP_CONTENTS, RandomSurvival(seeded(seed))]


def restart_twice(world: World, ending: Ending) -> None:
    """End the machine in this way, and start it twice."""
    for _ in range(2):
        if ending is None:
            world.kill()
        else:
            world.power_loss(ending)
        assert world.run(check_everything)


def disk_calls(life: Script, sync_s: float | None = None) -> tuple[int, int]:
    """How many calls of (journal disk, tier-2 disk) a whole life makes."""
    world = World(sync_s=sync_s)
    assert world.run(life)
    return world.journal_disk.calls, world.tier_disk.calls


def crash_everywhere(life: Script, share: int, shares: int, sync_s: float | None = None) -> int:
    """Crash at one in `shares` of all calls, in every way. Returns how many states were opened.

    `sync_s`: a writer process writes the journal, and takes as long; None: inline.
    """
    states = 0
    for on_tier_disk, calls in enumerate(disk_calls(life, sync_s)):
        for call in range(1 + share, calls + 1, shares):
            for when in ("before", "during", "after"):
                world = crashed_world(life, bool(on_tier_disk), call, when, sync_s)
                for ending in endings(call):
                    restart_twice(world.fork(), ending)
                    states += 2
    return states
