"""Which blow comes next: drawn from a seed, with no knowledge of the cluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from kit.rng import Random

PARTS = ("segstore",) * 7 + ("controller", "nats", "controller")
PAUSE_S_MAX = 1.2
PAUSE_S_IN_RECOVERY_MAX = 0.5
FREEZE_S_MAX = 1.5
SHARE_IN_RECOVERY = 0.2
SHARE_OF_FREEZES = 0.2


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a part after a pause. `in_recovery`: without waiting until the blow before it is
    recovered from."""

    part: str
    pause_s: float
    in_recovery: bool


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP the store after a pause, and SIGCONT it `for_s` seconds later."""

    pause_s: float
    for_s: float


Blow = Kill | Freeze


def blows(rng: Random, kills: int) -> Iterator[Blow]:
    """So many kills, with freezes between them. Never two kills in recovery one after the other:
    a part that is never ready is, rightly, given up."""
    in_recovery = True
    for number in range(kills):
        if rng.random() < SHARE_OF_FREEZES:
            yield Freeze(rng.random() * PAUSE_S_MAX, rng.random() * FREEZE_S_MAX)
        in_recovery = number > 0 and not in_recovery and rng.random() < SHARE_IN_RECOVERY
        pause_s = rng.random() * (PAUSE_S_IN_RECOVERY_MAX if in_recovery else PAUSE_S_MAX)
        yield Kill(rng.choice(PARTS) if number else "segstore", pause_s, in_recovery)
