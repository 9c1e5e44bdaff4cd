"""The settings of an embedded cluster, and their checks before anything starts."""

from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.up.choices import NATS_COUNTS, REPLICATION_MAX, Log
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.addresses import is_base_url
from anabranch.common.storage.location import MemoryLocation, parse_location

CONTAINER_COUNT_MAX = 1024
STORE_COUNT_MAX = 16
CONTROLLER_COUNT_MAX = 8


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The settings of an embedded cluster. Port 0 means any free one.

    Without a `data_dir` the cluster is ephemeral and keeps no data.
    """

    data_dir: Path | None
    nats_port: int = 0
    segstore_port: int = 0
    gateway_port: int = 0
    container_count: int = 4
    tier2_url: str = ""
    """Empty: a directory in `data_dir`."""
    otlp_endpoint: str = ""
    """The collector of the services' traces and metrics; empty for none."""
    store_count: int | None = None
    """The number of segment stores, of which all but the first take any free port; None: as many
    as the data directory has, one for a new one. Those of SPU groups besides `main` come on top."""
    redis: bool = True
    """Whether to start Redis if its program is found; without it, controllers share work by
    rendezvous.
    """
    controller_count: int = 1
    nats_count: int | None = None
    """The number of NATS servers; None: that of the data directory, one for a new one."""
    log: Log | None = None
    """The place of the containers' logs; None: that of the data directory, `journal` for a new
    one."""
    replication: int | None = None
    """The number of stores that have a copy of each log; None: that of the data directory, whose
    logs have no copies unless this was chosen."""

    @property
    def ephemeral(self) -> bool:
        return self.data_dir is None


def check(settings: UpSettings) -> None:
    """Raises InvalidSetting if these settings make no cluster."""
    for name, port in (
        ("nats-port", settings.nats_port),
        ("segstore-port", settings.segstore_port),
        ("gateway-port", settings.gateway_port),
    ):
        if not 0 <= port <= 65535:
            raise InvalidSetting("port is out of range", setting=name, port=port)
    if settings.otlp_endpoint and not is_base_url(settings.otlp_endpoint):
        raise InvalidSetting(
            "the OTLP endpoint is not a URL",
            remedy="write it as http://127.0.0.1:4318",
            setting="otlp-endpoint",
        )
    if not 1 <= settings.container_count <= CONTAINER_COUNT_MAX:
        raise InvalidSetting(
            f"container count must be 1 to {CONTAINER_COUNT_MAX}", count=settings.container_count
        )
    if settings.store_count is not None and not 1 <= settings.store_count <= STORE_COUNT_MAX:
        raise InvalidSetting(
            f"a cluster on one machine has 1 to {STORE_COUNT_MAX} stores",
            count=settings.store_count,
        )
    if not 1 <= settings.controller_count <= CONTROLLER_COUNT_MAX:
        raise InvalidSetting(
            f"a cluster on one machine has 1 to {CONTROLLER_COUNT_MAX} controllers",
            count=settings.controller_count,
        )
    if settings.nats_count not in (None, *NATS_COUNTS):
        raise InvalidSetting(
            "a cluster on one machine has 1 or 3 NATS servers", count=settings.nats_count
        )
    if settings.replication is not None:
        _check_replicas(settings, settings.replication)
    if settings.ephemeral and settings.log == "jetstream":
        raise InvalidSetting(
            "an ephemeral cluster keeps no logs, so none can be in JetStream",
            remedy="omit --log or --ephemeral",
        )
    if settings.ephemeral and (settings.store_count or 1) > 1:
        raise InvalidSetting(
            "several stores cannot share a tier 2 in memory",
            remedy="omit --spus or --ephemeral",
        )
    if settings.tier2_url:
        _check_tier2(settings)


def _check_replicas(settings: UpSettings, replication: int) -> None:
    if not 1 <= replication <= REPLICATION_MAX:
        raise InvalidSetting(
            f"a log has 1 to {REPLICATION_MAX} replicas", setting="replication", count=replication
        )
    if settings.log is not None:
        raise InvalidSetting(
            "logs with replicas are in the journals of several stores",
            remedy="omit --log or --replication",
            log=settings.log,
        )
    if settings.ephemeral:
        raise InvalidSetting(
            "an ephemeral cluster keeps no logs, so none has replicas",
            remedy="omit --replication or --ephemeral",
        )
    if settings.store_count is not None:
        check_replication(replication, settings.store_count)


def check_replication(replication: int, store_count: int) -> None:
    """Raises InvalidSetting if there are fewer stores than replicas of each log."""
    if store_count < replication:
        raise InvalidSetting(
            f"each log has {replication} replicas, which need as many stores",
            remedy=f"start the cluster with --spus {replication} or more",
            replication=replication,
            stores=store_count,
        )


def _check_tier2(settings: UpSettings) -> None:
    if settings.ephemeral:
        raise InvalidSetting(
            "an ephemeral cluster keeps nothing, not even in tier 2",
            remedy="omit --tier2 or --ephemeral",
        )
    if isinstance(parse_location(settings.tier2_url), MemoryLocation):
        raise InvalidSetting(
            "a durable cluster needs a durable tier 2",
            remedy="name a directory or a bucket, or use --ephemeral",
            tier2=settings.tier2_url,
        )
