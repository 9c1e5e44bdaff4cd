"""Nodes and the placement of containers on them: the objects kept in the object store."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens for the data protocol."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A segment store that announced itself. `journal_id` names its durable log."""

    node_id: str
    endpoint: Endpoint
    journal_id: str


class PlacementState(StrEnum):
    """ASSIGNED: a store shall open it; OPEN: it serves under `container_epoch`."""

    ASSIGNED = "assigned"
    OPEN = "open"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Placement:
    """Who owns a container.

    `container_epoch` is taken by compare-and-set at every open, so it only grows; `log_id` is
    empty until the container's first open finished creating its log and its first manifest.
    """

    container: int
    replicas: tuple[str, ...]
    container_epoch: int = 0
    log_id: str = ""
    state: PlacementState = PlacementState.ASSIGNED
    restarts: int = 0
    reason: str = ""
