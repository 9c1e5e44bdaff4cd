"""List every aggregate with a next step: the step, its age, and its obstacles.

Every controller knows the pending work from its mirror; only the controller that runs it knows its
progress. The controller that answers therefore sends the same query to all others and merges their
progress into its page. Each of their pages covers at least the names of a whole page, because they
list a subset of the same aggregates.
"""

from collections.abc import Iterator

import structlog
from pydantic import ValidationError

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.operation_queries import (
    OPERATIONS_TOLD_MAX,
    ListWork,
    Work,
    WorkList,
)
from anabranch.common.contracts.place import place_of
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.model.names import scope_name
from anabranch.common.workflow.progress import StepProgress
from anabranch.controller.domain.kinds import kind_of, pending_work
from anabranch.controller.handlers.desk.desk import QueryDesk, Table
from anabranch.controller.handlers.desk.pages import page_of

PEERS_DEADLINE_S = 1.0

_log = structlog.get_logger(__name__)


async def list_work(desk: QueryDesk, query: ListWork) -> Contract:
    """Every aggregate with a next step, sorted by name. A page token is the last name of a page."""
    if query.scope:
        scope_name(query.scope)
    page, more = page_of(_listed(desk, query), query.page_size)
    token = _name(page[-1]) if more else ""
    if query.only_here or not page:
        return WorkList(work=page, next_page_token=token)
    told = await _told_by_others(desk, query)
    return WorkList(
        work=tuple(work if work.controller else told.get(_name(work), work) for work in page),
        next_page_token=token,
    )


def _listed(desk: QueryDesk, query: ListWork) -> Iterator[Work]:
    progress = {step.subject: step for step in desk.progress()}
    for name, subject in sorted(_with_work(desk, query.scope)):
        tried = progress.get(subject)
        if name <= query.page_token or (query.only_here and tried is None):
            continue
        work = _work(desk, subject)
        if work is not None:
            yield work if tried is None else _tried(work, tried, desk.controller_id)


def _with_work(desk: QueryDesk, scope: str) -> Iterator[tuple[str, str]]:
    """Name and subject of every aggregate with a next step, in the scope if one is given."""
    for subject in desk.mirror.with_work():
        kind, loaded = kind_of(subject), desk.mirror.known(subject)
        if kind is None or loaded is None:
            continue
        place = kind.place(loaded.state)
        if not scope or place.scope == scope:
            yield place.name, subject


def _tried(work: Work, tried: StepProgress, controller_id: str) -> Work:
    return work.model_copy(
        update={
            "step": tried.step,
            "attempts": tried.attempts,
            "trying_since_ms": tried.since_ms,
            "last_error": ErrorBody.of(tried.error) if tried.error else None,
            "waits_for": tried.reason,
            "controller": controller_id,
        }
    )


def _work(desk: QueryDesk, subject: str) -> Work | None:
    kind, loaded = kind_of(subject), desk.mirror.known(subject)
    if kind is None or loaded is None:
        return None
    pending = pending_work(kind, loaded.state, desk.mirror.seen)
    if pending is None:
        return None
    return Work(
        **pending.place._asdict(),
        kind=pending.wish.kind,
        step=pending.step,
        since_ms=pending.wish.since_ms,
        bucket=shard_of_subject(subject),
        operations=pending.wish.commands[:OPERATIONS_TOLD_MAX],
    )


async def _told_by_others(desk: QueryDesk, query: ListWork) -> dict[str, Work]:
    """The work of other controllers, by name."""
    question = query.model_copy(update={"only_here": True, "at_least": None})
    answers = await desk.ask_peers(
        "list_work", question.model_dump_json().encode(), PEERS_DEADLINE_S
    )
    told: dict[str, Work] = {}
    for controller, answer in answers:
        try:
            found = WorkList.model_validate_json(answer)
        except ValidationError:
            _log.warning("no answer from a controller about its work", controller=controller)
            continue
        for work in found.work:
            told[_name(work)] = work.model_copy(update={"controller": controller})
    return told


def _name(work: Work) -> str:
    return place_of(work).name


QUERIES: Table = {"list_work": (ListWork, list_work)}
