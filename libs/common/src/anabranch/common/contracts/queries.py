"""Queries and their answers: request/reply on `subjects.query(<name>)`.

A request may demand `at_least` and, for other shards, `also_at_least`: the answering controller
first catches up to these points. An answer is either the model named in the request's docstring or
a `QueryFailed`; both carry `ok`. Negative answers (not found, sealed) are given only after reading
the subject's head.

`QUERIES` names the questions that only read, `ACTIONS` those that change something; other modules
have more of both, and `control` has all of them.
An answer has at most `ANSWER_SIZE_BYTES_MAX`; pages end early where they would be larger.
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
"""What the NATS server's usual `max_payload` lets through."""


class Query(Contract):
    at_least: ReadToken | None = None
    also_at_least: tuple[ReadToken, ...] = Field(default=(), max_length=SHARD_COUNT)
    """Points in other shards, for a query that reads several."""

    def points(self) -> tuple[ReadToken, ...]:
        """All that is demanded."""
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
    """→ StreamList of the scope's streams that are not half-created, sorted by name.

    `tag`: only those that carry it; empty: all. `details`: with their descriptions.
    """

    scope: str
    tag: str = ""
    details: bool = False


class DescribeStream(Query):
    """→ StreamDescription."""

    scope: str
    stream: str


class PendingIntent(Contract):
    """What a stream has accepted and not yet finished, since when, in Unix milliseconds (0: not
    known). `step`: what is being done for it; empty: it waits for the ones before it."""

    kind: str
    since_ms: int = 0
    step: str = ""


class StreamDescription(Contract):
    """`last_scaled_ms`: None if it never was. `has_head_cut`: it was truncated, so it begins where
    `head_cut` says. `intents`: what it is doing first."""

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
    """None where the controller is of an older release."""
    reference_epoch: int | None = None
    """The epoch whose segments the present ones duplicate; otherwise the present epoch."""
    last_scaled_ms: int | None = None
    has_head_cut: bool = False
    intents: tuple[PendingIntent, ...] = ()


class StreamList(Contract):
    """`descriptions`: of the same streams in the same order, if they were asked for. Then streams
    that lie within the page and whose domain events cannot be read are `unreadable` instead."""

    ok: Literal[True] = True
    streams: tuple[str, ...]
    next_page_token: str = ""
    descriptions: tuple[StreamDescription, ...] | None = None
    unreadable: tuple[str, ...] = ()


class CurrentSegments(Query):
    """→ SegmentList of the present stream epoch; readable also when the stream is sealed."""

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
    """What was appended, averaged over the last `over_ms` of which the controller knows all."""

    events_per_s: float
    bytes_per_s: float
    over_ms: int


class SegmentWithRate(SegmentInStream):
    rate: SegmentRate | None = None
    """None: not known, which is not the same as idle. A controller learns of load as it comes."""


class SegmentRateList(Contract):
    ok: Literal[True] = True
    segments: tuple[SegmentWithRate, ...]
    """Sorted by `key_start`."""


class Locate(Query):
    """→ Located: who serves these segments (full names, at most 1,000)."""

    segments: tuple[str, ...] = Field(max_length=1000)


class SegmentLocation(Contract):
    segment: str
    container: int
    container_epoch: int
    """0 when no store serves the container at the moment; `host` is then empty."""
    host: str = ""
    port: int = 0
    node_id: str = ""
    """The store that the container is placed on, whether or not it serves."""


class Located(Contract):
    ok: Literal[True] = True
    locations: tuple[SegmentLocation, ...]
    """In the order asked."""


class ListContainers(Query):
    """→ ContainerList; Unavailable until the controller has seen all placements."""


class ContainerDescription(Contract):
    """Where a container is placed; a `Placement` with its store's address."""

    container: int
    """The number of the container, from 0."""
    state: Literal["unassigned", "assigned", "open", "failed", "disabled", "offline", "unavailable"]
    """Only an open container serves. `unavailable`: its store is down."""
    container_epoch: int = 0
    """Grows with every opening; stores refuse requests of an older one."""
    node_id: str = ""
    """The store that it is placed on; empty: none."""
    host: str = ""
    """The address of that store."""
    port: int = 0
    """`host` is empty while the node is not known to run."""
    restarts: int = 0
    """How often its store opened it again after failures in a row."""
    reason: str = ""
    """The reason why its store closed it; empty while it is open."""
    target: str = ""
    """The node that it is moving to."""
    abandoned: Abandonment | None = None
    """The last log of it that was given up, and what was safe then."""
    since_ms: int = 0
    """Of an unavailable container: when its store went, as the controller saw it."""
    pinned: bool = False
    """An operator has placed it: it is not balanced until it is unpinned."""


class ContainerList(Contract):
    ok: Literal[True] = True
    containers: tuple[ContainerDescription, ...]
    """All of the cluster, by number."""


class ListNodes(Query):
    """→ NodeList; Unavailable until the controller has seen all nodes."""


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
    """Since when it is alive, or down, as the answering controller saw it; Unix milliseconds."""
    session: str = ""
    """Drawn anew at every start of the process."""
    stopped: bool = False
    """It is down because it ended in order."""
    containers: int = 0
    """Placed on it."""
    containers_open: int = 0
    """The number of containers that it has open."""


class NodeList(Contract):
    ok: Literal[True] = True
    nodes: tuple[NodeDescription, ...]
    """By node id."""


class MoveContainer(Query):
    """→ ContainerPlaced: it is the node's, or on its way there (`target`); ask again to see.

    It stays there until it is unpinned, however uneven the stores' loads are. Changes a placement,
    at once and by compare-and-set; so do the next three. All may be repeated.
    """

    container: int
    node_id: str


class AbandonTail(Query):
    """→ ContainerPlaced: the container is the node's, although its log is open elsewhere.

    What its former store acknowledged and did not move to tier 2 is lost.
    """

    container: int
    node_id: str


class EnableContainer(Query):
    """→ ContainerPlaced: a disabled or offline container is opened again where it is."""

    container: int


class UnpinContainer(Query):
    """→ ContainerPlaced: the container may be balanced again."""

    container: int


PlacementChange = MoveContainer | AbandonTail | EnableContainer | UnpinContainer


class ContainerPlaced(Contract):
    ok: Literal[True] = True
    container: ContainerDescription


class GetOperation(Query, Placed):
    """→ OperationFound; OperationNotFound when no aggregate remembers it.

    `scope`, `stream` and `group` say where to look, which spares the controller from reading the
    heads of all shards before it answers no; empty: anywhere.
    """

    operation: str


class OperationFound(Placed):
    """`error`: what it failed with. `kind`: what is done for it (create, scale, truncate, update,
    seal, delete); `since_ms`: since when, in Unix milliseconds; both empty where not remembered.
    Of a running one, `step`: what is being done now, `attempts`: how often that did not succeed
    (as the controller that works on it last told), and `last_error`: why; it is repeated.

    `read_tokens`: a query that demands these points sees what the operation has done. They are
    several if it changed aggregates of several shards."""

    ok: Literal[True] = True
    operation: str
    """The id of the operation, which is that of its command."""
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
    """What is asked and what is answered; a `QueryFailed` may come instead."""

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
    "move_container": Question(MoveContainer, ContainerPlaced),
    "abandon_tail": Question(AbandonTail, ContainerPlaced),
    "enable_container": Question(EnableContainer, ContainerPlaced),
    "unpin_container": Question(UnpinContainer, ContainerPlaced),
}
"""Questions that change something, by name."""
