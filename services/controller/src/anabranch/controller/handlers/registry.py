"""The controller's queries in two registries, and the path of a request to its answer.

`QUERIES` only read; `ACTIONS` change something before the controller answers. A request is an
envelope that carries the query's name, and it always gets a reply: the answer or an error. An
answer that follows from the current state of a stream alone is kept, encoded, until that state
changes (`kept_answers.py`).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from pydantic import ValidationError

from anabranch.common.contracts import container_queries, queries
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.parked import DropParked, ListParked, RedriveParked
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import AnabranchError, InvalidRequest
from anabranch.common.runtime.tracing import continued
from anabranch.controller.handlers.desk import cluster, parked
from anabranch.controller.handlers.desk.desk import Follows, QueryDesk, Table, answer_of
from anabranch.controller.handlers.desk.kept_answers import Kept
from anabranch.controller.handlers.queries import cuts as cut_queries
from anabranch.controller.handlers.queries import groups as group_queries
from anabranch.controller.handlers.queries import lists as list_queries
from anabranch.controller.handlers.queries import operations as operation_queries
from anabranch.controller.handlers.queries import retention as retention_queries
from anabranch.controller.handlers.queries import scaling as scaling_queries
from anabranch.controller.handlers.queries import streams as stream_queries
from anabranch.controller.handlers.queries import tables as table_queries
from anabranch.controller.handlers.queries import times as time_queries
from anabranch.controller.handlers.queries import watermarks as watermark_queries
from anabranch.controller.handlers.queries import work as work_queries
from anabranch.controller.handlers.topics import tables as topic_tables
from anabranch.controller.handlers.transactions import queries as transaction_queries
from anabranch.controller.projections.points import reach_demanded

ANSWERED = "answered"

_log = structlog.get_logger(__name__)


async def locate(desk: QueryDesk, query: queries.Locate) -> Contract:
    """The store of each segment. Raises InvalidName."""
    return queries.Located(locations=desk.locate(query.segments))


async def list_containers(desk: QueryDesk, _query: queries.ListContainers) -> Contract:
    """The placement of every container. Raises Unavailable."""
    return queries.ContainerList(containers=desk.list_containers())


async def list_nodes(desk: QueryDesk, _query: queries.ListNodes) -> Contract:
    """The segment stores. Raises Unavailable."""
    return queries.NodeList(nodes=desk.list_nodes())


async def change_placement(desk: QueryDesk, query: container_queries.PlacementChange) -> Contract:
    """Change a container's placement. Raises the refusal, Unavailable, OutcomeUnknown."""
    return container_queries.ContainerPlaced(container=await desk.change_placement(query))


def _of_parked(answer: Callable[[parked.ParkedDesk, Any], Awaitable[Contract]]) -> Any:
    async def ask(desk: QueryDesk, query: queries.Query) -> Contract:
        return await answer(desk.parked, query)

    return ask


QUERIES: Table = {
    **cluster.QUERIES,
    **list_queries.QUERIES,
    **stream_queries.QUERIES,
    **cut_queries.QUERIES,
    **retention_queries.QUERIES,
    **scaling_queries.QUERIES,
    **operation_queries.QUERIES,
    **work_queries.QUERIES,
    **group_queries.QUERIES,
    **table_queries.QUERIES,
    **time_queries.QUERIES,
    **watermark_queries.QUERIES,
    **transaction_queries.QUERIES,
    **topic_tables.QUERIES,
    "locate": (queries.Locate, locate),
    "list_containers": (queries.ListContainers, list_containers),
    "list_nodes": (queries.ListNodes, list_nodes),
    "list_parked": (ListParked, _of_parked(parked.list_parked)),
}
"""Queries that only read: name → (message, handler)."""

ACTIONS: Table = {
    **cluster.ACTIONS,
    **time_queries.ACTIONS,
    **transaction_queries.ACTIONS,
    **topic_tables.ACTIONS,
    "move_container": (container_queries.MoveContainer, change_placement),
    "abandon_tail": (container_queries.AbandonTail, change_placement),
    "enable_container": (container_queries.EnableContainer, change_placement),
    "unpin_container": (container_queries.UnpinContainer, change_placement),
    "set_container_replicas": (container_queries.SetContainerReplicas, change_placement),
    "elect_leader": (container_queries.ElectLeader, change_placement),
    "redrive_parked": (RedriveParked, _of_parked(parked.redrive_parked)),
    "drop_parked": (DropParked, _of_parked(parked.drop_parked)),
}
"""Queries that change something: name → (message, handler)."""

ANSWERED_BY: Table = {**QUERIES, **ACTIONS}

SLOW = frozenset(
    {
        *ACTIONS, *topic_tables.SLOW,
        "tail_cut", "retention_plan", "list_work", "list_parked", "list_writer_marks",
        "watermark_status", "explain_scaling", "describe_segment",
    }
)  # fmt: skip
"""The queries that wait for other services before the controller answers."""


async def answer_query(desk: QueryDesk, name: str, request: Envelope) -> bytes:
    """The encoded answer to the query or action `name`; errors become `QueryFailed`."""
    metrics = desk.observer.metrics
    began_s = metrics.now_s()
    with continued(desk.observer.tracer, f"controller query {name}", request.trace_parent):
        outcome, encoded = await _answer(desk, name, request.body)
    metrics.asked(name, outcome, began_s)
    return encoded


async def _answer(desk: QueryDesk, name: str, body: bytes) -> tuple[str, bytes]:
    """The outcome for the metrics, and the encoded answer."""
    try:
        return ANSWERED, await _given_again(desk, name, body) or await _made(desk, name, body)
    except AnabranchError as error:
        return _failed(error)
    except Exception:  # noqa: BLE001
        # The service's edge: a defect in one query must not end the service for all callers.
        _log.exception("a query failed because of a defect", query=name)
        return _failed(
            AnabranchError(
                "the controller failed because of a defect",
                remedy="find the traceback in the controller's log",
            )
        )


async def _given_again(desk: QueryDesk, name: str, body: bytes) -> bytes | None:
    """The kept answer, if it is still true."""
    kept = desk.kept.find(name, body)
    if kept is None or not desk.mirror.is_present(kept.state):
        return None
    if kept.at_head:
        await desk.mirror.reach_head(shard_of_subject(kept.state.subject))
        if not desk.mirror.is_present(kept.state):
            return None
    return kept.answer


async def _made(desk: QueryDesk, name: str, body: bytes) -> bytes:
    contract, answer = ANSWERED_BY[name]
    query = _parsed(contract, body)
    for point in query.points():
        await reach_demanded(desk.mirror, point)
    found = await answer(desk, query)
    encoded = answer_of(found).model_dump_json().encode()
    if len(encoded) > queries.ANSWER_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "the answer would be too large",
            remedy="request a page of it, or a smaller part",
            query=name,
            size=len(encoded),
            limit=queries.ANSWER_SIZE_BYTES_MAX,
        )
    if isinstance(found, Follows):
        desk.kept.keep(name, body, Kept(found.state, encoded, found.at_head))
    return encoded


def _failed(error: AnabranchError) -> tuple[str, bytes]:
    failed = queries.QueryFailed(error=ErrorBody.of(error))
    return failed.error.code, failed.model_dump_json().encode()


def _parsed(contract: type[queries.Query], body: bytes) -> queries.Query:
    try:
        return contract.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest("the query is malformed", where=where, why=first["msg"]) from error
