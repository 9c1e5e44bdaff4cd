"""The cluster of a trial: what `anabranch up` starts with three stores and three NATS servers."""

from pathlib import Path

from anabranch.cli.up import UpSettings

STORES = 3
CONTROLLERS = 2
NATS_SERVERS = 3
CONTAINERS = 6
TIER_TWO = "tier2"
"""The directory of tier 2, beside the cluster's: a store whose data is wiped leaves it alone."""


def trial_settings(directory: Path) -> UpSettings:
    """The settings of `anabranch up`."""
    return UpSettings(
        data_dir=directory / "cluster",
        tier2_url=(directory / TIER_TWO).resolve().as_uri(),
        store_count=STORES,
        controller_count=CONTROLLERS,
        container_count=CONTAINERS,
        nats_count=NATS_SERVERS,
        log="jetstream",
    )
