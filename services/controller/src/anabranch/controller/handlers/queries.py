"""Queries: answered from the mirror and the placements.

An answer that says "no" or "never again" (not found, sealed) is given only after the mirror has
folded everything that the subject's shard had stored when the question came.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import ValidationError

from anabranch.common.contracts import queries
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.parked import DropParked, ListParked, RedriveParked
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    OperationNotFound,
    ScopeNotFound,
    StreamNotFound,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import (
    ScopeName,
    StreamRef,
    scope_name,
    segment_name,
    stream_name,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.tracing import continued
from anabranch.controller.domain import operations
from anabranch.controller.domain.operations import Operation, Operations
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers import parked
from anabranch.controller.handlers.cluster_queries import CLUSTER_QUERIES, ClusterDesk
from anabranch.controller.ports import ParkedCommands
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.workflows.observed import Observer

ANSWERED = "answered"

_log = structlog.get_logger(__name__)


def _no_rate(_segment: str) -> queries.SegmentRate | None:
    return None


async def _not_here(_change: queries.PlacementChange) -> queries.ContainerDescription:
    raise InvalidRequest("this controller changes no placements")


@dataclass(frozen=True, slots=True)
class QueryDesk:
    """What answering needs.

    `locate` says who serves segments, in the order asked; `list_containers` where all are; `rate`
    how fast a segment is written, None if that is not known. `change_placement` is the only one
    that changes anything.
    """

    mirror: Mirror
    locate: Callable[[Iterable[str]], tuple[queries.SegmentLocation, ...]]
    list_containers: Callable[[], tuple[queries.ContainerDescription, ...]]
    observer: Observer = field(default_factory=Observer)
    rate: Callable[[str], queries.SegmentRate | None] = _no_rate
    list_nodes: Callable[[], tuple[queries.NodeDescription, ...]] = tuple
    change_placement: Callable[
        [queries.PlacementChange], Awaitable[queries.ContainerDescription]
    ] = _not_here
    parked: ParkedCommands | None = None
    cluster: ClusterDesk | None = None


async def list_scopes(desk: QueryDesk, query: queries.ListScopes) -> Contract:
    """The live scopes, sorted, a page at a time."""
    names = desk.mirror.scope_names(query.page_token, query.page_size + 1)
    page, following = _paged(names, query.page_size)
    return queries.ScopeList(scopes=page, next_page_token=following)


async def describe_scope(desk: QueryDesk, query: queries.DescribeScope) -> Contract:
    """One scope. Raises ScopeNotFound."""
    scope = await _scope(desk, scope_name(query.scope))
    return queries.ScopeDescription(scope=scope.name, incarnation=scope.incarnation)


async def list_streams(desk: QueryDesk, query: queries.ListStreams) -> Contract:
    """The scope's streams, sorted, a page at a time; half-created ones are left out."""
    scope = await _scope(desk, scope_name(query.scope))
    found: list[str] = []
    for name in desk.mirror.stream_names(ScopeName(scope.name), query.page_token):
        loaded = desk.mirror.stream(StreamRef(ScopeName(scope.name), name))
        if loaded is not None and loaded.state.status is not StreamState.CREATING:
            found.append(name)
        if len(found) > query.page_size:
            break
    page, following = _paged(found, query.page_size)
    return queries.StreamList(streams=page, next_page_token=following)


async def describe_stream(desk: QueryDesk, query: queries.DescribeStream) -> Contract:
    """One stream. Raises StreamNotFound, ScopeNotFound."""
    loaded = await _stream(desk, query.scope, query.stream)
    stream = loaded.state
    assert stream.ref is not None
    assert stream.state is not None
    return queries.StreamDescription(
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        incarnation=stream.incarnation,
        revision=loaded.revision,
        state=stream.state,
        segment_count=len(stream.segments),
        stream_epoch=stream.stream_epoch,
        created_ms=stream.created_ms,
    )


async def current_segments(desk: QueryDesk, query: queries.CurrentSegments) -> queries.SegmentList:
    """The present segments. Raises StreamNotFound, ScopeNotFound."""
    stream = (await _stream(desk, query.scope, query.stream)).state
    ref, status = stream.ref, stream.state
    assert ref is not None
    assert status is not None
    segments = tuple(
        queries.SegmentInStream(
            segment_id=s.segment_id,
            name=segment_name(ref, s.segment_id),
            key_start=s.keys.start,
            key_end=s.keys.end,
        )
        for s in stream.segments
    )
    return queries.SegmentList(
        incarnation=stream.incarnation,
        state=status,
        stream_epoch=stream.stream_epoch,
        segments=segments,
    )


async def segment_rates(desk: QueryDesk, query: queries.SegmentRates) -> Contract:
    """How fast the present segments are written. Raises StreamNotFound, ScopeNotFound."""
    found = await current_segments(
        desk, queries.CurrentSegments(scope=query.scope, stream=query.stream)
    )
    return queries.SegmentRateList(
        segments=tuple(
            queries.SegmentWithRate(**segment.model_dump(), rate=desk.rate(segment.name))
            for segment in found.segments
        )
    )


async def locate(desk: QueryDesk, query: queries.Locate) -> Contract:
    """Who serves the segments. Raises InvalidName."""
    return queries.Located(locations=desk.locate(query.segments))


async def list_containers(desk: QueryDesk, _query: queries.ListContainers) -> Contract:
    """Where every container is. Raises Unavailable."""
    return queries.ContainerList(containers=desk.list_containers())


async def list_nodes(desk: QueryDesk, _query: queries.ListNodes) -> Contract:
    """The segment stores. Raises Unavailable."""
    return queries.NodeList(nodes=desk.list_nodes())


async def change_placement(desk: QueryDesk, query: queries.PlacementChange) -> Contract:
    """What the change says. Raises what its decision refuses, Unavailable, OutcomeUnknown."""
    return queries.ContainerPlaced(container=await desk.change_placement(query))


async def get_operation(desk: QueryDesk, query: queries.GetOperation) -> Contract:
    """Where an accepted command stands. Raises OperationNotFound."""
    found = _operation(desk, query)
    if found is None:
        await _reach_head(desk, query)
        found = _operation(desk, query)
    if found is None:
        raise OperationNotFound(
            "no such operation, or it ended long ago", operation=query.operation
        )
    return queries.OperationFound(
        operation=found.operation, state=found.state.value, error=found.error
    )


def _of_parked(answer: Callable[[ParkedCommands, Any], Awaitable[Contract]]) -> Any:
    async def ask(desk: QueryDesk, query: queries.Query) -> Contract:
        if desk.parked is None:
            raise InvalidRequest("this controller knows no parked commands")
        return await answer(desk.parked, query)

    return ask


QUERIES: Mapping[str, tuple[type[queries.Query], Callable[[QueryDesk, Any], Awaitable[Contract]]]]
QUERIES = {
    "list_scopes": (queries.ListScopes, list_scopes),
    "describe_scope": (queries.DescribeScope, describe_scope),
    "list_streams": (queries.ListStreams, list_streams),
    "describe_stream": (queries.DescribeStream, describe_stream),
    "current_segments": (queries.CurrentSegments, current_segments),
    "segment_rates": (queries.SegmentRates, segment_rates),
    "locate": (queries.Locate, locate),
    "list_containers": (queries.ListContainers, list_containers),
    "operation": (queries.GetOperation, get_operation),
    "list_nodes": (queries.ListNodes, list_nodes),
    "move_container": (queries.MoveContainer, change_placement),
    "abandon_tail": (queries.AbandonTail, change_placement),
    "enable_container": (queries.EnableContainer, change_placement),
    "list_parked": (ListParked, _of_parked(parked.list_parked)),
    "redrive_parked": (RedriveParked, _of_parked(parked.redrive_parked)),
    "drop_parked": (DropParked, _of_parked(parked.drop_parked)),
    "unpin_container": (queries.UnpinContainer, change_placement),
    **CLUSTER_QUERIES,
}
"""Query name → (what is asked, who answers)."""


async def answer_query(desk: QueryDesk, name: str, body: bytes, trace_parent: str = "") -> bytes:
    """The encoded answer to the query `name`; errors become `QueryFailed`."""
    metrics = desk.observer.metrics
    began_s = metrics.now_s()
    with continued(desk.observer.tracer, f"controller query {name}", trace_parent):
        found = await _answer(desk, name, body)
    outcome = found.error.code if isinstance(found, queries.QueryFailed) else ANSWERED
    metrics.asked(name, outcome, began_s)
    return found.model_dump_json().encode()


async def _answer(desk: QueryDesk, name: str, body: bytes) -> Contract:
    contract, answer = QUERIES[name]
    try:
        query = _parsed(contract, body)
        if query.at_least is not None:
            await desk.mirror.at_least(query.at_least)
        return await answer(desk, query)
    except AnabranchError as error:
        return queries.QueryFailed(error=ErrorBody.of(error))
    except Exception:  # noqa: BLE001
        # The edge: a defect in answering one query must not end the service for all.
        _log.exception("a query could not be answered because of a defect", query=name)
        defect = AnabranchError("the controller could not answer because of a defect")
        return queries.QueryFailed(error=ErrorBody.of(defect))


def _parsed(contract: type[queries.Query], body: bytes) -> queries.Query:
    try:
        return contract.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest("the query is malformed", where=where, why=first["msg"]) from error


async def _scope(desk: QueryDesk, name: ScopeName) -> Scope:
    loaded = desk.mirror.scope(name)
    if loaded is None or not loaded.state.is_live:
        loaded = await desk.mirror.scope_at_head(name)
    if loaded is None or not loaded.state.is_live:
        raise ScopeNotFound("no such scope", scope=name)
    return loaded.state


async def _stream(desk: QueryDesk, scope: str, stream: str) -> Loaded[Stream]:
    ref = StreamRef(scope_name(scope), stream_name(stream))
    loaded = desk.mirror.stream(ref)
    if loaded is None or loaded.state.status is not StreamState.ACTIVE:
        loaded = await desk.mirror.stream_at_head(ref)
    if loaded is None or not loaded.state.is_live:
        await _scope(desk, ref.scope)
        raise StreamNotFound("no such stream", scope=scope, stream=stream)
    return loaded


def _operation(desk: QueryDesk, query: queries.GetOperation) -> Operation | None:
    loaded: Loaded[Scope] | Loaded[Stream] | None
    scope = scope_name(query.scope)
    if query.stream is None:
        loaded = desk.mirror.scope(scope)
    else:
        loaded = desk.mirror.stream(StreamRef(scope, stream_name(query.stream)))
    known: Operations = loaded.state.operations if loaded is not None else ()
    return operations.find(known, query.operation)


async def _reach_head(desk: QueryDesk, query: queries.GetOperation) -> None:
    scope = scope_name(query.scope)
    if query.stream is None:
        await desk.mirror.scope_at_head(scope)
    else:
        await desk.mirror.stream_at_head(StreamRef(scope, stream_name(query.stream)))


def _paged(names: list[str], size: int) -> tuple[tuple[str, ...], str]:
    """The page, and the token of the next one ("" on the last)."""
    page = tuple(names[:size])
    return page, page[-1] if len(names) > size else ""
