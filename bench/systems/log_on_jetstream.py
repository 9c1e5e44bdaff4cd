"""The shapes of clusters whose containers have their logs on JetStream."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.cli.up import UpSettings

UNCHECKED: Mapping[str, str] = {
    "ANABRANCH_SEGSTORE_JOURNAL": "jetstream",
    "ANABRANCH_SEGSTORE_LOG_SYNC": "unchecked",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a cluster, and what its stores' environment has besides."""

    up: UpSettings
    environment: Mapping[str, str] = field(default_factory=dict)


def shared_logs(replicas: int, stores: int = 1, controllers: int = 1) -> Shape:
    """A cluster with as many NATS servers as replicas, which is 1 or 3."""
    up = UpSettings(data_dir=None, store_count=stores, controller_count=controllers)
    return Shape(up, UNCHECKED)
