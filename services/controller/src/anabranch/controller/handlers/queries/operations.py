"""Queries for one accepted command by its id, and for a list of them.

Only the controller that runs an operation knows its attempts and errors; `list_work` asks all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.common.contracts import operation_queries as asked
from anabranch.common.contracts import queries
from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.commands import OperationState
from anabranch.common.contracts.place import place_of
from anabranch.common.contracts.subjects import (
    events_of,
    shard_of_subject,
    token,
)
from anabranch.common.errors import OperationNotFound
from anabranch.common.model.names import any_stream_name, scope_name
from anabranch.common.workflow.progress import StepProgress
from anabranch.controller.domain import operations
from anabranch.controller.domain.kinds import Kind, kind_of, nothing_seen, pending_work
from anabranch.controller.domain.operations import Operation
from anabranch.controller.handlers.desk.desk import QueryDesk, Table
from anabranch.controller.handlers.desk.pages import page_of
from anabranch.controller.projections.mirror import Known
from anabranch.controller.projections.points import points_at, points_of_heads

LOOKED_AT_MAX = 20_000
"""Per page, so that no query delays the others; if few operations match, pages are short."""

Progress = Mapping[str, StepProgress]
"""By subject."""


async def get_operation(desk: QueryDesk, query: queries.GetOperation) -> Contract:
    """The state of an accepted command. Raises OperationNotFound."""
    subject = _subject(query)
    found = _find(desk, query.operation, subject)
    if found is None:
        if subject is not None:
            await desk.mirror.reach_head(shard_of_subject(subject))
        else:
            await desk.mirror.reach_heads()
        found = _find(desk, query.operation, subject)
    if found is None:
        raise OperationNotFound(
            "no such operation, or it ended long ago", operation=query.operation
        )
    loaded, operation = found
    told = _told(loaded, operation, _progress(desk))
    if operation.state is OperationState.RUNNING:
        return told
    return told.model_copy(update={"read_tokens": await _points_after(desk, loaded)})


async def _points_after(desk: QueryDesk, loaded: Known) -> tuple[ReadToken, ...]:
    """Points that include everything that the operation has changed, once it ended in this state.

    The work of a scope or a reader group changes streams of other shards before its own last event.
    These changes are therefore stored by the time that this function reads the heads of all shards.
    Raises Unavailable.
    """
    if _kind_of(loaded).is_whole:
        shard = shard_of_subject(loaded.subject)
        return (ReadToken(shard=shard, sequence=loaded.sequence),)
    return await points_of_heads(desk.mirror)


async def list_operations(desk: QueryDesk, query: asked.ListOperations) -> Contract:
    """The operations that aggregates remember, by id. A page token is the last id examined."""
    if query.scope:
        scope_name(query.scope)
    reached = points_at(desk.mirror.reached())
    progress = _progress(desk)
    looked = _Looked()
    page, more = page_of(
        (_told(loaded, operation, progress) for loaded, operation in _listed(desk, query, looked)),
        query.page_size,
    )
    following = page[-1].operation if more else looked.stopped_at
    return asked.OperationList(operations=page, next_page_token=following, read_tokens=reached)


@dataclass
class _Looked:
    """`stopped_at` is the last id examined if the limit ended the page, else empty."""

    stopped_at: str = ""


def _subject(query: queries.GetOperation) -> str | None:
    """The subject of the aggregate that the query names, if any. Raises InvalidName."""
    if not query.scope:
        return None
    scope_name(query.scope)
    place = place_of(query)
    if place.part_name is not None:
        any_stream_name(place.part_name)
    return events_of(place)


def _find(desk: QueryDesk, operation: str, subject: str | None) -> tuple[Known, Operation] | None:
    """The operation, in the given aggregate or (None) in the one that the index names."""
    subject = subject or desk.mirror.operations.subject_of(operation)
    loaded = None if subject is None else desk.mirror.known(subject)
    return None if loaded is None else _remembered(loaded, operation)


def _remembered(loaded: Known, operation: str) -> tuple[Known, Operation] | None:
    found = operations.find(_kind_of(loaded).operations(loaded.state), operation)
    return None if found is None else (loaded, found)


def _listed(
    desk: QueryDesk, query: asked.ListOperations, looked: _Looked
) -> Iterator[tuple[Known, Operation]]:
    index = desk.mirror.operations
    scope = token(query.scope)
    for count, (operation, subject) in enumerate(index.following(query.page_token), 1):
        is_of_scope = not scope or subject.split(".")[4] == scope
        if is_of_scope and index.is_in(query.state, operation):
            found = _find(desk, operation, subject)
            if found is not None:  # its aggregate is readable
                yield found
        if count == LOOKED_AT_MAX:
            looked.stopped_at = operation
            return


def _progress(desk: QueryDesk) -> Progress:
    return {step.subject: step for step in desk.progress()}


def _told(loaded: Known, operation: Operation, progress: Progress) -> queries.OperationFound:
    kind = _kind_of(loaded)
    place = kind.place(loaded.state)
    found = queries.OperationFound(
        operation=operation.operation,
        state=operation.state.value,
        error=operation.error,
        kind=operation.kind,
        **{name: value for name, value in place._asdict().items() if name != "transaction"},
        since_ms=operation.since_ms,
    )
    if operation.state is not OperationState.RUNNING:
        return found
    work = pending_work(kind, loaded.state, nothing_seen)
    if work is None or operation.operation not in work.wish.commands:
        return found  # it ended, or waits for earlier work
    tried = progress.get(loaded.subject)
    return found.model_copy(
        update={
            "step": work.step,
            "attempts": tried.attempts if tried is not None else 0,
            "last_error": ErrorBody.of(tried.error) if tried and tried.error else None,
        }
    )


def _kind_of(loaded: Known) -> Kind[Any, Any]:
    kind = kind_of(loaded.subject)
    assert kind is not None, "only aggregates remember operations"
    return kind


QUERIES: Table = {
    "operation": (queries.GetOperation, get_operation),
    "list_operations": (asked.ListOperations, list_operations),
}
