"""The cluster of a trial: what `anabranch up` starts with three stores and three NATS servers."""

from pathlib import Path
from typing import Literal

from anabranch.cli.up import UpSettings

STORES = 3
CONTROLLERS = 2
NATS_SERVERS = 3
CONTAINERS = 6
Log = Literal["jetstream", "replicated"]
"""Where the logs are: on the NATS servers, or replicated by the stores."""
TIER_TWO = "tier2"
"""The directory of tier 2, beside the cluster's: a store whose data is wiped leaves it alone."""


def trial_settings(directory: Path, log: Log = "jetstream") -> UpSettings:
    """The settings of `anabranch up`."""
    return UpSettings(
        data_dir=directory / "cluster",
        tier2_url=(directory / TIER_TWO).resolve().as_uri(),
        store_count=STORES,
        controller_count=CONTROLLERS,
        container_count=CONTAINERS,
        nats_count=NATS_SERVERS,
        log="jetstream" if log == "jetstream" else None,
        replication=STORES if log == "replicated" else None,
    )
