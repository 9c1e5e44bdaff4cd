"""Members, placements and constants as the object store holds them: JSON with a schema number.

Keys: a node's record under its node id in `subjects.NODES_BUCKET`, a controller's under its id in
`subjects.CONTROLLERS_BUCKET`, a container's placement under `placement_key` in
`subjects.PLACEMENTS_BUCKET`, the cluster's constants under `CONSTANTS_KEY` and its leader under
`LEADER_KEY` in `subjects.CLUSTER_BUCKET`, with the drained stores under `DRAINS_KEY`.
"""

import json
from typing import ClassVar, Self

from pydantic import ValidationError

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import Corrupt, FormatTooNew
from anabranch.common.model.cluster import (
    Abandonment,
    ControllerRecord,
    Endpoint,
    LeaderRecord,
    LogCopy,
    NodeRecord,
    Placement,
    PlacementState,
    VoidLogs,
)

CONSTANTS_KEY = "constants"
LEADER_KEY = "leader"
DRAINS_KEY = "drains"


def placement_key(container: int) -> str:
    """The key of a container's placement."""
    return str(container)


class _StoredObject(Contract):
    """A value with a schema number; an object with a newer number raises FormatTooNew."""

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
            raise Corrupt(
                f"a stored {cls.__name__} is damaged",
                remedy="restore the metadata: `anabranch controller restore URL`",
            ) from error


class StoredNode(_StoredObject):
    """A `NodeRecord`. Older releases ignore the fields that they do not know."""

    node_id: str
    host: str
    port: int
    journal_id: str
    session: str = ""
    beat: int = 0
    stopped: bool = False
    over: bool = False
    lease_s: float = 0.0
    rack: str = ""
    proof: str = ""
    peer_host: str = ""
    peer_port: int = 0
    unregistered: bool = False
    spu_group: str = ""


class StoredController(_StoredObject):
    """A `ControllerRecord`."""

    controller_id: str
    session: str
    beat: int = 0
    host: str = ""
    pid: int = 0
    started_ms: int = 0


class StoredLeader(_StoredObject):
    """A `LeaderRecord`."""

    controller_id: str
    session: str
    term: int


class StoredPlacement(_StoredObject):
    """A `Placement`. Schema 2 added moving, abandoning, and the states that wait for an operator or
    a store; schema 3 added pinning, schema 4 the home of the log, schema 5 replicated logs."""

    schema_supported: ClassVar[int] = 5
    schema_number: int = 5
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
    pinned: bool = False
    log_home: str = ""
    isr: tuple[LogCopy, ...] = ()
    isr_min: int = 0
    wanted: tuple[str, ...] = ()


class StoredDrains(_StoredObject):
    """The node ids of the stores that an operator drains, sorted; stored under `DRAINS_KEY`."""

    nodes: tuple[str, ...] = ()


class ClusterConstants(_StoredObject):
    """The constants of a cluster, fixed at its first start; all stored data depends on them."""

    shards: int
    buckets: int
    containers: int


class ShardHeads(_StoredObject):
    """The highest sequence that any controller has folded, by shard; stored under `HEADS_KEY`."""

    heads: tuple[int, ...]


def node_to_bytes(node: NodeRecord) -> bytes:
    """The record as stored."""
    return StoredNode(
        node_id=node.node_id,
        host=node.endpoint.host,
        port=node.endpoint.port,
        journal_id=node.journal_id,
        session=node.session,
        beat=node.beat,
        stopped=node.stopped,
        over=node.over,
        lease_s=node.lease_s,
        rack=node.rack,
        proof=node.proof,
        peer_host=node.peer.host if node.peer else "",
        peer_port=node.peer.port if node.peer else 0,
        unregistered=node.unregistered,
        spu_group=node.spu_group,
    ).to_bytes()


def node_from_bytes(data: bytes) -> NodeRecord:
    """Inverse of `node_to_bytes`. Raises FormatTooNew, Corrupt."""
    stored = StoredNode.parsed(data)
    return NodeRecord(
        stored.node_id,
        Endpoint(stored.host, stored.port),
        stored.journal_id,
        stored.session,
        stored.beat,
        stored.stopped,
        stored.over,
        stored.lease_s,
        stored.rack,
        stored.proof,
        Endpoint(stored.peer_host, stored.peer_port) if stored.peer_port else None,
        stored.unregistered,
        stored.spu_group,
    )


def controller_to_bytes(controller: ControllerRecord) -> bytes:
    """The record as stored."""
    return StoredController(
        controller_id=controller.controller_id,
        session=controller.session,
        beat=controller.beat,
        host=controller.host,
        pid=controller.pid,
        started_ms=controller.started_ms,
    ).to_bytes()


def controller_from_bytes(data: bytes) -> ControllerRecord:
    """Inverse of `controller_to_bytes`. Raises FormatTooNew, Corrupt."""
    stored = StoredController.parsed(data)
    return ControllerRecord(
        stored.controller_id,
        stored.session,
        stored.beat,
        stored.host,
        stored.pid,
        stored.started_ms,
    )


def leader_to_bytes(leader: LeaderRecord) -> bytes:
    """The record as stored."""
    return StoredLeader(
        controller_id=leader.controller_id, session=leader.session, term=leader.term
    ).to_bytes()


def leader_from_bytes(data: bytes) -> LeaderRecord:
    """Inverse of `leader_to_bytes`. Raises FormatTooNew, Corrupt."""
    stored = StoredLeader.parsed(data)
    return LeaderRecord(stored.controller_id, stored.session, stored.term)


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
        pinned=placement.pinned,
        log_home=placement.log_home,
        isr=placement.isr,
        isr_min=placement.isr_min,
        wanted=placement.wanted,
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
        pinned=stored.pinned,
        log_home=stored.log_home,
        isr=stored.isr,
        isr_min=stored.isr_min,
        wanted=stored.wanted,
    )
