"""The dependencies of answering queries, and the rules for answers about a stream.

The mirror may be behind the event store, so a negative or final answer (not found, sealed, no
successors) could be wrong. Such an answer is given only after the mirror has folded everything that
the subject's shard had stored when the query arrived. Any other answer is given at once.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from anabranch.common.contracts import queries
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.container_queries import PlacementChange
from anabranch.common.errors import (
    Invalid,
    NotFound,
    ScopeNotFound,
    StreamNotFound,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamRef, any_stream_name, scope_name
from anabranch.common.model.stream import StreamState
from anabranch.common.workflow.progress import StepProgress
from anabranch.controller.domain.policies.watermark import LastLook
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.cluster import ClusterDesk
from anabranch.controller.handlers.desk.kept_answers import KeptAnswers
from anabranch.controller.handlers.desk.parked import ParkedDesk
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.desk.transactions import TransactionDesk
from anabranch.controller.ports import AskPeers, WriterTimes
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.scaling import ScalingStates
from anabranch.controller.projections.watermark_log import WatermarkLog
from anabranch.controller.workflows.observed import Observer


class AboutStream(Protocol):
    """A query about one stream."""

    @property
    def scope(self) -> str: ...

    @property
    def stream(self) -> str: ...


A = TypeVar("A", bound=Contract)
Q = TypeVar("Q", bound=AboutStream)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDesk:
    """The dependencies of answering queries. Parts marked with * can change something.

    Streams and other aggregates:
        `mirror`: all aggregates as folded so far; `history(stream)`: all epochs of a stream;
        `kept`: encoded answers that are reused while they are true.
    Segment stores:
        `locate(segments)`: the store of each segment, in the order of the request;
        `list_containers()` and `list_nodes()`: all containers and all stores; `rate(segment)`: the
        segment's write rate, None if unknown; `scaling`: the findings of auto-scaling about the
        streams that this controller looks after; `segment_lengths(segments)`: as in `TailCuts`;
        `change_placement`*: moves a container, or abandons its lost tail.
    Transactions and writers:
        `transactions`*: begins and ends them; `writer_times`*: the times that writers noted, None
        without Redis; `watermark_log`: the watermarks of streams; `last_look(stream, incarnation)`:
        what was found of a stream whose watermark this controller advances, else None.
    Operations:
        `progress()`: the steps that this controller, `controller_id`, works on; `ask_peers`: sends
        a query to all other controllers; `parked`*: work that a defect stopped; `cluster`*: members
        and holds; `topics`*: SPUs, SPU groups, topics and partitions.
    `now_ms()` is the time by the event store's clock, or by this machine's while that is unknown.
    `observer` collects metrics and traces.
    """

    mirror: Mirror
    history: Callable[[Stream], Awaitable[History]]
    kept: KeptAnswers
    locate: Callable[[Iterable[str]], tuple[queries.SegmentLocation, ...]]
    list_containers: Callable[[], tuple[queries.ContainerDescription, ...]]
    list_nodes: Callable[[], tuple[queries.NodeDescription, ...]]
    rate: Callable[[str], queries.SegmentRate | None]
    scaling: ScalingStates
    segment_lengths: Callable[[Sequence[str]], Awaitable[Sequence[int]]]
    change_placement: Callable[[PlacementChange], Awaitable[queries.ContainerDescription]]
    transactions: TransactionDesk
    writer_times: WriterTimes | None
    watermark_log: WatermarkLog
    last_look: Callable[[StreamRef, int], LastLook | None]
    progress: Callable[[], Sequence[StepProgress]]
    controller_id: str
    ask_peers: AskPeers
    parked: ParkedDesk
    cluster: ClusterDesk
    topics: TopicDesk
    now_ms: Callable[[], int]
    observer: Observer


class Follows(NamedTuple):
    """An answer that follows from one state of a stream alone and is valid while that is current.

    If `at_head`, the answer may be reused only after the mirror has reached the head.
    """

    answer: Contract
    state: Loaded[Stream]
    at_head: bool


Answered = Contract | Follows
Handler = Callable[[QueryDesk, Q], Awaitable[Answered]]
Table = Mapping[str, tuple[type[queries.Query], Callable[[QueryDesk, Any], Awaitable[Answered]]]]
"""Query name → (message, handler)."""


def answer_of(answered: Answered) -> Contract:
    """The answer itself."""
    return answered.answer if isinstance(answered, Follows) else answered


async def found_scope(desk: QueryDesk, name: ScopeName) -> Scope:
    """The scope. Raises ScopeNotFound."""
    loaded = desk.mirror.scope(name)
    if loaded is None or not loaded.state.is_live:
        loaded = await desk.mirror.scope_at_head(name)
    if loaded is None or not loaded.state.is_live:
        raise ScopeNotFound("no such scope", scope=name)
    return loaded.state


async def stream_at_head(desk: QueryDesk, query: AboutStream) -> Loaded[Stream]:
    """The stream with everything stored by now. Raises StreamNotFound, ScopeNotFound."""
    ref = StreamRef(scope_name(query.scope), any_stream_name(query.stream))
    loaded = await desk.mirror.stream_at_head(ref)
    if loaded is None or not loaded.state.is_live:
        await found_scope(desk, ref.scope)
        raise StreamNotFound("no such stream", stream=f"{query.scope}/{query.stream}")
    return loaded


def active_stream(desk: QueryDesk, query: AboutStream) -> Loaded[Stream] | None:
    """The stream as folded so far, if it is active; any other state needs an answer at the head."""
    ref = StreamRef(scope_name(query.scope), any_stream_name(query.stream))
    loaded = desk.mirror.stream(ref)
    is_active = loaded is not None and loaded.state.status is StreamState.ACTIVE
    return loaded if is_active else None


async def meant_stream(
    desk: QueryDesk, query: AboutStream, incarnation: int | None
) -> Loaded[Stream]:
    """The stream, in the given incarnation (None: the current one).

    Raises ScopeNotFound, and StreamNotFound, also if the stream has another incarnation.
    """
    seen = active_stream(desk, query)
    if seen is not None and incarnation in (None, seen.state.incarnation):
        return seen
    return await meant_at_head(desk, query, incarnation)


async def meant_at_head(
    desk: QueryDesk, query: AboutStream, incarnation: int | None
) -> Loaded[Stream]:
    """Like `meant_stream`, with everything stored by now."""
    found = await stream_at_head(desk, query)
    if incarnation not in (None, found.state.incarnation):
        raise StreamNotFound(
            "the stream has another incarnation by now",
            stream=f"{query.scope}/{query.stream}",
            incarnation=incarnation,
        )
    return found


def from_state(answer: Callable[[Loaded[Stream], Q], A]) -> Handler[Q]:
    """Answer from the folded state; if `answer` refuses, answer from the state at the head."""

    async def handle(desk: QueryDesk, query: Q) -> Answered:
        seen = active_stream(desk, query)
        if seen is not None:
            try:
                return Follows(answer(seen, query), seen, at_head=False)
            except (NotFound, Invalid):
                pass  # a negative answer
        head = await stream_at_head(desk, query)
        return Follows(answer(head, query), head, at_head=True)

    return handle


def _always(_answer: Contract) -> bool:
    return True


def from_history(
    answer: Callable[[Stream, History, Q], A], is_sure: Callable[[A], bool] = _always
) -> Handler[Q]:
    """Answer from state and history; at the head if `answer` refuses or `is_sure` is false."""

    async def handle(desk: QueryDesk, query: Q) -> Answered:
        seen = active_stream(desk, query)
        if seen is not None:
            history = await desk.history(seen.state)
            try:
                found = answer(seen.state, history, query)
            except (NotFound, Invalid):
                pass  # a negative answer
            else:
                if is_sure(found):
                    return Follows(found, seen, at_head=False)
        head = await stream_at_head(desk, query)
        found = answer(head.state, await desk.history(head.state), query)
        return Follows(found, head, at_head=seen is None or not is_sure(found))

    return handle
