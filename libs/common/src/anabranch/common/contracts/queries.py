"""Queries and their answers: request/reply on `subjects.query(<name>)`.

A request may demand `at_least` and, for other shards, `also_at_least`: the answering controller
first catches up to these points. An answer is either the model named in the request's docstring or
a `QueryFailed`; both carry `ok`. A negative answer (not found, sealed) is given only after the
controller has read the subject's head.

`QUERIES` names the questions that only read, `ACTIONS` the ones that change something; other
modules have more of both, and `control` has all of them. An answer has at most
`ANSWER_SIZE_BYTES_MAX`; a page ends early to stay within this size.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.place import Placed
from anabranch.common.model.cluster import Abandonment
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.stream import StreamConfig, StreamState

PAGE_SIZE_MAX = 1000
ANSWER_SIZE_BYTES_MAX = 1_000_000
"""Below the default `max_payload` of a NATS server."""


class Query(Contract):
    at_least: ReadToken | None = None
    also_at_least: tuple[ReadToken, ...] = Field(default=(), max_length=SHARD_COUNT)
    """Points in other shards, for a query that reads several."""

    def points(self) -> tuple[ReadToken, ...]:
        """All points that the query demands."""
        first = () if self.at_least is None else (self.at_least,)
        return (*first, *self.also_at_least)


class PagedQuery(Query):
    page_token: str = ""
    """Empty for the first page, else the previous answer's `next_page_token`."""
    page_size: int = Field(default=PAGE_SIZE_MAX, ge=1, le=PAGE_SIZE_MAX)


class QueryFailed(Contract):
    ok: Literal[False] = False
    error: ErrorBody


class ListScopes(PagedQuery):
    """→ ScopeList, sorted by name."""


class ScopeList(Contract):
    ok: Literal[True] = True
    scopes: tuple[str, ...]
    next_page_token: str = ""
    """Empty on the last page."""


class DescribeScope(Query):
    """→ ScopeDescription."""

    scope: str


class ScopeDescription(Contract):
    ok: Literal[True] = True
    scope: str
    incarnation: int


class ListStreams(PagedQuery):
    """→ StreamList of the scope's streams, without half-created ones, sorted by name.

    `tag`: list only the streams with this tag; empty: all. `details`: add their descriptions.
    """

    scope: str
    tag: str = ""
    details: bool = False


class DescribeStream(Query):
    """→ StreamDescription."""

    scope: str
    stream: str


class PendingIntent(Contract):
    """An intent that the stream has accepted and not yet finished.

    `since_ms`: the Unix time of its acceptance in milliseconds (0: not known). `step`: its present
    step; empty: it waits for the intents before it.
    """

    kind: str
    since_ms: int = 0
    step: str = ""


class StreamDescription(Contract):
    """A stream.

    `last_scaled_ms`: the Unix time of the last scale in milliseconds; None: it was never scaled.
    `has_head_cut`: the stream was truncated, and the query `head_cut` returns its beginning.
    `intents`: the unfinished intents, the present one first.
    """

    ok: Literal[True] = True
    scope: str
    """The name of its scope."""
    stream: str
    """Its name within the scope."""
    incarnation: int
    """Counts the streams that have had this name."""
    revision: int
    """The number of its last domain event; every change increases it."""
    state: StreamState
    """Its state when the controller answered."""
    segment_count: int
    """The number of segments of the present epoch."""
    stream_epoch: int
    """The number of the present epoch; every scale and roll increases it."""
    created_ms: int
    """The Unix time of its creation in milliseconds."""
    config: StreamConfig | None = None
    """The configuration; None: the controller is of an older release."""
    reference_epoch: int | None = None
    """The epoch whose segments the present ones duplicate; otherwise the present epoch."""
    last_scaled_ms: int | None = None
    has_head_cut: bool = False
    intents: tuple[PendingIntent, ...] = ()


class StreamList(Contract):
    """A page of streams.

    `descriptions`: if requested, the descriptions of the same streams in the same order. Streams of
    the page whose domain events cannot be read are then listed in `unreadable` instead.
    """

    ok: Literal[True] = True
    streams: tuple[str, ...]
    next_page_token: str = ""
    descriptions: tuple[StreamDescription, ...] | None = None
    unreadable: tuple[str, ...] = ()


class CurrentSegments(Query):
    """→ SegmentList of the present stream epoch, also of a sealed stream."""

    scope: str
    stream: str


class SegmentInStream(Contract):
    segment_id: int
    """The number of the segment in its stream; successors have higher numbers."""
    name: str
    """The full name, ``scope/stream/…``."""
    key_start: float
    """The first key hash that it takes; hashes lie in [0, 1)."""
    key_end: float
    """The end of its key hashes, exclusive; above `key_start`, at most 1."""


class SegmentList(Contract):
    ok: Literal[True] = True
    incarnation: int
    state: StreamState
    stream_epoch: int
    segments: tuple[SegmentInStream, ...]
    """Sorted by `key_start`, covering [0, 1) exactly."""


class SegmentRates(Query):
    """→ SegmentRateList of the present stream epoch."""

    scope: str
    stream: str


class SegmentRate(Contract):
    """The rate of appends, averaged over the last `over_ms` that the controller knows fully."""

    events_per_s: float
    bytes_per_s: float
    over_ms: int


class SegmentWithRate(SegmentInStream):
    rate: SegmentRate | None = None
    """None: not known, which differs from idle. Controllers learn rates from load reports."""


class SegmentRateList(Contract):
    ok: Literal[True] = True
    segments: tuple[SegmentWithRate, ...]
    """Sorted by `key_start`."""


class Locate(Query):
    """→ Located: the stores that serve these segments (full names, at most 1,000)."""

    segments: tuple[str, ...] = Field(max_length=1000)


class SegmentLocation(Contract):
    segment: str
    container: int
    container_epoch: int
    """0 if no store serves the container at the moment; `host` is then empty."""
    host: str = ""
    port: int = 0
    node_id: str = ""
    """The store that the container is placed on, whether or not it serves."""


class Located(Contract):
    ok: Literal[True] = True
    locations: tuple[SegmentLocation, ...]
    """In the order of the request."""


class ListContainers(Query):
    """→ ContainerList. Raises Unavailable until the controller has seen all placements."""


class ContainerDescription(Contract):
    """A `Placement` of a container, with the address of its store."""

    container: int
    """The number of the container, from 0."""
    state: Literal[
        "unassigned", "assigned", "electing", "open", "failed", "disabled", "offline", "unavailable"
    ]
    """Only an open container serves. `unavailable`: its store is down. `electing`: a controller
    looks for the replica that leads its log."""
    container_epoch: int = 0
    """Grows with every opening; stores refuse requests with an older epoch."""
    node_id: str = ""
    """The store that it is placed on; empty: none."""
    host: str = ""
    """The address of that store."""
    port: int = 0
    """The port of that store; `host` is empty while the node is not known to run."""
    restarts: int = 0
    """How often its store has reopened it after consecutive failures."""
    reason: str = ""
    """The reason why its store closed it; empty while it is open."""
    target: str = ""
    """The node that it is moving to."""
    abandoned: Abandonment | None = None
    """The last log that an operator abandoned, and the state that was safe then."""
    since_ms: int = 0
    """For an unavailable container: the time at which the controller saw its store go down."""
    pinned: bool = False
    """An operator has placed it: the leader does not move it until it is unpinned."""
    log: str = ""
    """The place of its log: `journal`, which only its store can open, or a place that stores share,
    such as `jetstream`; empty before its first opening."""
    lease: Literal["", "held", "lapsed"] = ""
    """Whether its store may answer reads of it: by the last beat of the store that the controller
    saw. Empty for a container that needs no lease."""
    replicas: tuple[str, ...] = ()
    """The stores that replicate its log, the leader first; empty for a log of another kind."""
    isr: tuple[str, ...] = ()
    """The stores whose copies of the log have every acknowledged event."""
    isr_min: int = 0
    """The fewest of these with which events are acknowledged."""
    wanted: tuple[str, ...] = ()
    """The replicas that an operator asked for, until these are the replicas."""


class ContainerList(Contract):
    ok: Literal[True] = True
    containers: tuple[ContainerDescription, ...]
    """All containers of the cluster, sorted by number."""


class ListNodes(Query):
    """→ NodeList. Raises Unavailable until the controller has seen all nodes."""


class NodeDescription(Contract):
    """A segment store that announced itself."""

    node_id: str
    """The id of the store."""
    host: str
    """The address at which it listens for clients."""
    port: int
    """The TCP port at that address."""
    live: bool = True
    """Whether the answering controller believes it alive."""
    since_ms: int = 0
    """The Unix time in milliseconds at which the answering controller saw it come or go."""
    session: str = ""
    """Drawn anew at every start of the process."""
    stopped: bool = False
    """It is down because it shut down cleanly."""
    containers: int = 0
    """The number of containers placed on it."""
    containers_open: int = 0
    """The number of containers that it has open."""
    containers_followed: int = 0
    """The number of containers whose logs it replicates without leading them."""
    rack: str = ""
    """The failure domain of its machine; empty: unknown."""
    log: str = "journal"
    """The place of its containers' logs: `journal`, or a place that stores share, such as
    `jetstream`."""
    over: bool = False
    """A controller ended its session, because it was silent for too long."""
    refused: bool = False
    """The cluster refuses the store, so it gets no containers; `refusal` says why."""
    refusal: str = ""
    """`join-token`: it does not have the join token of the cluster. `unregistered`: no SPU with its
    node id is registered."""
    draining: bool = False
    """An operator drains it: the leader moves its containers away and gives it none."""


class NodeList(Contract):
    ok: Literal[True] = True
    nodes: tuple[NodeDescription, ...]
    """Sorted by node id."""


class DrainStore(Query):
    """→ StoreDrained. The leader moves all containers away from the store, pinned ones too, and
    gives it none until `UndrainStore`. May be repeated. Raises NodeNotFound."""

    node_id: str


class UndrainStore(Query):
    """→ StoreDrained. The store may have containers again. May be repeated."""

    node_id: str


DrainChange = DrainStore | UndrainStore


class StoreDrained(Contract):
    """The store after the request; `node.containers` tells how many are still to move."""

    ok: Literal[True] = True
    node: NodeDescription


class GetOperation(Query, Placed):
    """→ OperationFound. Raises OperationNotFound if no aggregate remembers the operation.

    `scope`, `stream`, `group` and `table` name the aggregate to search, which spares the controller
    reading the heads of all shards before a negative answer; empty: any aggregate.
    """

    operation: str


class OperationFound(Placed):
    """An operation.

    `error`: the error of a failed operation. `kind`: the kind of its intent (create, scale,
    truncate, update, seal, delete); `since_ms`: the Unix time of the intent in milliseconds; both
    are empty if not remembered. For a running operation, `step` is the present step, `attempts` the
    number of its failures as the working controller last reported it, and `last_error` the last
    failure; the step is retried.

    `read_tokens`: a query that demands these points sees the operation's effects. They are several
    if it changed aggregates of several shards.
    """

    ok: Literal[True] = True
    operation: str
    """The id of the operation, equal to its command's id."""
    state: Literal["running", "succeeded", "failed"]
    """Its state when the controller answered."""
    error: ErrorBody | None = None
    kind: str = ""
    since_ms: int = 0
    step: str = ""
    attempts: int = 0
    last_error: ErrorBody | None = None
    read_tokens: tuple[ReadToken, ...] = ()


class Question(NamedTuple):
    """The types of a query and of its answer; a `QueryFailed` may come instead of the answer."""

    query: type[Query]
    answer: type[Contract]


QUERIES: Mapping[str, Question] = {
    "list_scopes": Question(ListScopes, ScopeList),
    "describe_scope": Question(DescribeScope, ScopeDescription),
    "list_streams": Question(ListStreams, StreamList),
    "describe_stream": Question(DescribeStream, StreamDescription),
    "current_segments": Question(CurrentSegments, SegmentList),
    "segment_rates": Question(SegmentRates, SegmentRateList),
    "locate": Question(Locate, Located),
    "list_containers": Question(ListContainers, ContainerList),
    "operation": Question(GetOperation, OperationFound),
    "list_nodes": Question(ListNodes, NodeList),
}
"""Questions that only read, by name."""

ACTIONS: Mapping[str, Question] = {
    "drain_store": Question(DrainStore, StoreDrained),
    "undrain_store": Question(UndrainStore, StoreDrained),
}
"""Questions that change something, by name."""
