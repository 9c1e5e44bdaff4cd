"""What differs between trials, as data: the log of the cluster, its servers, and its faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anabranch.cli.up import UpSettings
from kit.failover.plan import Kind

STORES = 3
CONTROLLERS = 2
CONTAINERS = 6
TIER_TWO = "tier2"
"""The directory of tier 2, beside the cluster's: a store whose data is wiped leaves it alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of a trial. `weights`: the kinds of its faults, and how often each is drawn.

    `replication`: the stores that have a copy of each log; 0: the logs are not in the stores.
    `stores_up_min`: how many stores are up at any time.
    """

    nats_servers: int
    log: Literal["jetstream"] | None
    replication: int
    stores_up_min: int
    weights: Mapping[Kind, int]

    def settings(self, directory: Path) -> UpSettings:
        """The settings of `anabranch up`."""
        return UpSettings(
            data_dir=directory / "cluster",
            tier2_url=(directory / TIER_TWO).resolve().as_uri(),
            store_count=STORES,
            controller_count=CONTROLLERS,
            container_count=CONTAINERS,
            nats_count=self.nats_servers,
            log=self.log,
            replication=self.replication or None,
        )


JETSTREAM = Shape(
    nats_servers=3,
    log="jetstream",
    replication=0,
    stores_up_min=1,
    weights={
        Kind.KILL_STORE: 4,
        Kind.STOP_STORE: 4,
        Kind.WIPE_STORE: 3,
        Kind.KILL_NATS: 2,
        Kind.STOP_NATS: 2,
        Kind.KILL_CONTROLLER: 1,
        Kind.KILL_MACHINE: 2,
    },
)
REPLICATED = Shape(
    nats_servers=1,
    log=None,
    replication=STORES,
    stores_up_min=1,
    weights={
        Kind.KILL_STORE: 5,
        Kind.STOP_STORE: 5,
        Kind.WIPE_STORE: 2,
        Kind.WIPE_JOURNAL: 4,
        Kind.KILL_NATS: 1,
        Kind.STOP_NATS: 1,
        Kind.KILL_CONTROLLER: 2,
        Kind.KILL_MACHINE: 1,
    },
)
"""With one NATS server, each of its faults takes all of NATS away.

With one store up, faults of two stores overlap, as a lost event requires: a follower is paused, and
the leader loses its disk. As two in-sync copies are needed for an acknowledgement, writers may then
wait for as long as faults overlap. With two stores up, the waits are those of single failures.
"""
SHAPES = {"jetstream": JETSTREAM, "replicated": REPLICATED}
