"""Nodes and the placement of containers on them: the objects kept in the object store."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which a server listens for the data protocol."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A segment store that announced itself.

    `stopped` and `over` end the session: the store shut down cleanly, or a controller declared it
    dead. A record without a session is from a release that had none.
    """

    node_id: str
    endpoint: Endpoint
    journal_id: str
    """The place of its logs: its own journal, or servers that stores share, such as `JETSTREAM`."""
    session: str = ""
    """Drawn at every start of the process, and again after a session that is over."""
    beat: int = 0
    """Grows for as long as the store lives."""
    stopped: bool = False
    over: bool = False
    lease_s: float = 0.0
    """How long after it sent a confirmed beat the store relies on its session; 0: it never does."""
    rack: str = ""
    """The failure domain of its machine; "" if unknown."""
    proof: str = ""
    """Proves that the store has the join token of the cluster: see `model.joining`."""
    peer: Endpoint | None = None
    """The address for stores that replicate logs to this one; None if it keeps no copies."""
    unregistered: bool = False
    """With `over`: the session is over because no SPU with the store's node id is registered. The
    store begins no other session before there is one."""
    spu_group: str = ""
    """The SPU group whose provisioner started the store; "": it may become a custom SPU."""


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    """A controller that announced itself; `session` and `beat` as in a `NodeRecord`."""

    controller_id: str
    session: str
    beat: int = 0
    host: str = ""
    pid: int = 0
    started_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """The leading controller and its session. `term` counts the leaders of the cluster."""

    controller_id: str
    session: str
    term: int


JETSTREAM = "jetstream"
"""The shared place of logs that are streams of NATS JetStream."""
REPLICATED = "replicated"
"""The place of logs that stores replicate among each other: ADR 14."""


class PlacementState(StrEnum):
    """The state of a container on the store that it is placed on.

    ASSIGNED: the store opens it, or is about to. OPEN: it serves under `container_epoch`. FAILED:
    it ended, and the store opens it again by itself. DISABLED: it failed too often in a row.
    OFFLINE: its stored bytes are damaged, or its log or tier 2 is missing. The last two wait for an
    operator. ELECTING: its log is replicated, and a controller looks for the replica that leads; no
    store opens it.
    """

    ASSIGNED = "assigned"
    ELECTING = "electing"
    OPEN = "open"
    FAILED = "failed"
    DISABLED = "disabled"
    OFFLINE = "offline"


WAITING_FOR_OPERATOR = frozenset({PlacementState.DISABLED, PlacementState.OFFLINE})


@dataclass(frozen=True, slots=True)
class VoidLogs:
    """Logs that do not count: opened under container epochs above `after`, up to `through`.

    They never served, or, with a time `abandoned_ms`, an operator has given up their contents. A
    store may then continue from tier 2 although its newest manifest names such a log as open.
    """

    after: int
    through: int
    abandoned_ms: int = 0


@dataclass(frozen=True, slots=True)
class Abandonment:
    """A log was given up: its operations after `applied_sequence` may be lost."""

    log_id: str
    applied_sequence: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class LogCopy:
    """One life of a replicated log in the journal of one store."""

    node_id: str
    copy_id: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The owner of a container.

    The owner takes `container_epoch` by compare-and-set at every open, so it only grows. `log_id`
    is set before the owner serves, once its log and its first manifest exist, and emptied when the
    container changes its owner: an empty one proves that no store has served the container since.
    `previous_log` is its value at that time; if it is set, tier 2 must not be empty. `target` is
    the node to which the owner must release the container. `pinned`: an operator has placed it, so
    it is not balanced.
    """

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
    """The last abandonment, as found by the store that opened the container after it."""
    pinned: bool = False
    log_home: str = ""
    """The place of the log `log_id` that stores share, such as `JETSTREAM`; "" if the log is in the
    owner's journal. Any store with this place can open the container, but a `REPLICATED` log only
    those with a copy in `isr`."""
    isr: tuple[LogCopy, ...] = ()
    """The copies of a replicated log that have every acknowledged message; changed by the owner of
    the container epoch alone. Empty for other logs, and until a replicated one is first opened."""
    isr_min: int = 0
    """The fewest copies in `isr` with which appends are acknowledged; 0 for other logs."""
    wanted: tuple[str, ...] = ()
    """The replicas that an operator asked for, until `replicas` has them; () if none are due."""

    @property
    def owner(self) -> str:
        """The node that opens and serves the container: the first replica; "" if there is none."""
        return self.replicas[0] if self.replicas else ""
