"""Which fault comes next: drawn from a seed, with no knowledge of the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from kit.rng import Random

STOPPED_S = (0.5, 8.0)
DOWN_S = (0.5, 10.0)
PAUSE_S = (1.0, 6.0)
SHARE_RESTARTED_AT_ONCE = 0.3


class Kind(Enum):
    """What happens to which parts."""

    KILL_STORE = "store killed"
    STOP_STORE = "store stopped and continued"
    WIPE_STORE = "store killed and wiped"
    WIPE_JOURNAL = "store killed, and its journal wiped"
    KILL_NATS = "NATS server killed"
    STOP_NATS = "NATS server stopped and continued"
    KILL_CONTROLLER = "controller killed"
    KILL_MACHINE = "store and NATS server killed"

    @property
    def strikes_store(self) -> bool:
        return self.wipes or self in (Kind.KILL_STORE, Kind.STOP_STORE, Kind.KILL_MACHINE)

    @property
    def strikes_nats(self) -> bool:
        return self in (Kind.KILL_NATS, Kind.STOP_NATS, Kind.KILL_MACHINE)

    @property
    def strikes_controller(self) -> bool:
        return self is Kind.KILL_CONTROLLER

    @property
    def wipes(self) -> bool:
        """Whether the store loses what it has on its disk: all of it, or all but its node id."""
        return self in (Kind.WIPE_STORE, Kind.WIPE_JOURNAL)

    @property
    def stops(self) -> bool:
        """Whether the process is paused, not killed."""
        return self in (Kind.STOP_STORE, Kind.STOP_NATS)


@dataclass(frozen=True, slots=True)
class Fault:
    """After `pause_s`, the parts are down, or stopped, for `lasts_s`.

    `store`, `nats`, `controller`: shares from 0 up to 1 that choose among the parts that are up.
    """

    kind: Kind
    pause_s: float
    lasts_s: float
    store: float
    nats: float
    controller: float


def faults(rng: Random, weights: Mapping[Kind, int]) -> Iterator[Fault]:
    """Endless; the first ones are one of each kind, so that a short trial has all of them.

    `weights`: how often each kind is drawn, relative to the others.
    """
    kinds = list(weights)
    rng.shuffle(kinds)
    yield from (_drawn(rng, kind) for kind in kinds)
    while True:
        [kind] = rng.choices(list(weights), list(weights.values()))
        yield _drawn(rng, kind)


def _drawn(rng: Random, kind: Kind) -> Fault:
    at_once = not kind.stops and not kind.wipes
    if at_once and rng.random() < SHARE_RESTARTED_AT_ONCE:
        lasts_s = 0.0
    else:
        lasts_s = rng.uniform(*(STOPPED_S if kind.stops else DOWN_S))
    return Fault(
        kind, rng.uniform(*PAUSE_S), lasts_s, rng.random(), rng.random(), rng.random()
    )  # fmt: skip


def chosen(share: float, up: list[str]) -> str | None:
    """The part at a share of those that are up; None if none is."""
    return up[int(share * len(up))] if up else None
