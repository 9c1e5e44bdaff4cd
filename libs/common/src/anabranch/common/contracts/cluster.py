"""Nodes and placements as they are stored in the object store: JSON with a schema number.

Keys: a node's record under its node id in `subjects.NODES_BUCKET`, a container's placement
under `placement_key` in `subjects.PLACEMENTS_BUCKET`, the cluster's constants under
`CONSTANTS_KEY` in `subjects.CLUSTER_BUCKET`.
"""

import json
from typing import ClassVar, Self

from pydantic import ValidationError

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import Corrupt, FormatTooNew
from anabranch.common.model.cluster import (
    Abandonment,
    Endpoint,
    NodeRecord,
    Placement,
    PlacementState,
    VoidLogs,
)

CONSTANTS_KEY = "constants"


def placement_key(container: int) -> str:
    """The key of a container's placement."""
    return str(container)


class _StoredObject(Contract):
    """A value with a schema number: newer ones are refused by name."""

    schema_supported: ClassVar[int] = 1
    schema_number: int = 1

    def to_bytes(self) -> bytes:
        """The object as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def parsed(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`. Raises FormatTooNew, Corrupt."""
        try:
            found = json.loads(data).get("schema_number", 1)
            if isinstance(found, int) and found > cls.schema_supported:
                raise FormatTooNew(
                    f"a stored {cls.__name__} was written by a newer release",
                    found=found,
                    supported=cls.schema_supported,
                )
            return cls.model_validate_json(data)
        except (ValidationError, ValueError, AttributeError, RecursionError) as error:
            raise Corrupt(f"a stored {cls.__name__} is damaged") from error


class StoredNode(_StoredObject):
    """A `NodeRecord`."""

    node_id: str
    host: str
    port: int
    journal_id: str


class StoredPlacement(_StoredObject):
    """A `Placement`. Schema 2 added moving, abandoning, and the states that wait for somebody."""

    schema_supported: ClassVar[int] = 2
    schema_number: int = 2
    container: int
    replicas: tuple[str, ...]
    container_epoch: int = 0
    log_id: str = ""
    state: PlacementState = PlacementState.ASSIGNED
    restarts: int = 0
    reason: str = ""
    target: str = ""
    previous_log: str = ""
    void: VoidLogs | None = None
    abandoned: Abandonment | None = None


class ClusterConstants(_StoredObject):
    """What is decided once, at a cluster's first start, and shapes all stored data."""

    shards: int
    buckets: int
    containers: int


class ShardHeads(_StoredObject):
    """By shard, the highest sequence that any controller has folded; under `HEADS_KEY`."""

    heads: tuple[int, ...]


def node_to_bytes(node: NodeRecord) -> bytes:
    """The record as stored."""
    return StoredNode(
        node_id=node.node_id,
        host=node.endpoint.host,
        port=node.endpoint.port,
        journal_id=node.journal_id,
    ).to_bytes()


def node_from_bytes(data: bytes) -> NodeRecord:
    """Inverse of `node_to_bytes`. Raises FormatTooNew, Corrupt."""
    stored = StoredNode.parsed(data)
    return NodeRecord(stored.node_id, Endpoint(stored.host, stored.port), stored.journal_id)


def placement_to_bytes(placement: Placement) -> bytes:
    """The placement as stored."""
    return StoredPlacement(
        container=placement.container,
        replicas=placement.replicas,
        container_epoch=placement.container_epoch,
        log_id=placement.log_id,
        state=placement.state,
        restarts=placement.restarts,
        reason=placement.reason,
        target=placement.target,
        previous_log=placement.previous_log,
        void=placement.void,
        abandoned=placement.abandoned,
    ).to_bytes()


def placement_from_bytes(data: bytes) -> Placement:
    """Inverse of `placement_to_bytes`. Raises FormatTooNew, Corrupt."""
    stored = StoredPlacement.parsed(data)
    return Placement(
        container=stored.container,
        replicas=stored.replicas,
        container_epoch=stored.container_epoch,
        log_id=stored.log_id,
        state=stored.state,
        restarts=stored.restarts,
        reason=stored.reason,
        target=stored.target,
        previous_log=stored.previous_log,
        void=stored.void,
        abandoned=stored.abandoned,
    )
