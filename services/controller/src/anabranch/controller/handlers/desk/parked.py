"""Queries about parked commands and work; any controller can answer them.

Parked commands are in a stream that all controllers read. Parked work is in the memory of the
controller that met the defect, so the controller that answers asks the others.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from pydantic import ValidationError

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.parked import (
    WORK_TOLD_MAX,
    DropParked,
    ListParked,
    ParkedChanged,
    ParkedDescription,
    ParkedList,
    RedriveParked,
)
from anabranch.common.workflow.containment import FOLD, Contained, Containment, aggregate_name
from anabranch.controller.domain.parking import ParkedCommand
from anabranch.controller.ports import AskPeers, ParkedCommands
from anabranch.controller.projections.mirror import Mirror

BODY_LENGTH_MAX = 1024
"""Characters of a command's body in a list: a whole page must fit into a message."""
WORK_ERROR_LENGTH_MAX = 200
PEERS_DEADLINE_S = 2.0
RELOADS_MAX = 3
"""An aggregate may change again while it is reloaded."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedDesk:
    """The dependencies of queries about parked things.

    `commands` holds the parked commands; `containment` holds the work that this controller,
    `controller_id`, parked. `resume(subject)` resumes the work of an aggregate; `ask_peers` sends a
    query to the other controllers.
    """

    commands: ParkedCommands
    containment: Containment
    resume: Callable[[str], Awaitable[None]]
    ask_peers: AskPeers
    controller_id: str


async def list_parked(desk: ParkedDesk, query: ListParked) -> Contract:
    """List parked work on the first page, then a page of commands. Raises Unavailable."""
    work = [] if query.page_token else _work_here(desk)
    if query.only_here:
        return ParkedList(commands=tuple(work[:WORK_TOLD_MAX]))
    if not query.page_token:
        work += await _work_elsewhere(desk)
    found = await desk.commands.page(int(query.page_token or 0), query.page_size + 1)
    page = found[: query.page_size]
    more = len(found) > len(page)
    commands = [_described(command) for _, command in page]
    return ParkedList(
        commands=(*work[:WORK_TOLD_MAX], *commands),
        next_page_token=str(page[-1][0]) if more else "",
    )


async def redrive_parked(desk: ParkedDesk, query: RedriveParked) -> Contract:
    """Publish a command again, or resume an aggregate's work on all controllers. Raises
    Unavailable.
    """
    name = query.command_id
    if ":" not in name:
        done = await desk.commands.redrive(name)
    else:
        done = await _redrive_here(desk, name)
        if not query.only_here:
            done = await _redrive_elsewhere(desk, query) or done
    return ParkedChanged(command_id=name, was_parked=done)


async def drop_parked(desk: ParkedDesk, query: DropParked) -> Contract:
    """Remove a command. Raises Unavailable.

    Parked work cannot be dropped, because the aggregate's state still requires it.
    """
    done = ":" not in query.command_id and await desk.commands.drop(query.command_id)
    return ParkedChanged(command_id=query.command_id, was_parked=done)


async def resume(
    containment: Containment, mirror: Mirror, wake: Callable[[str], None], subject: str
) -> None:
    """Resume all parked work on an aggregate. Raises Unavailable."""
    containment.forgive_everything_but(FOLD, subject)
    for _ in range(RELOADS_MAX):
        if await mirror.reload(subject):
            containment.forgive(FOLD, subject)
            break
    if subject in mirror.with_work():
        wake(subject)


def _work_here(desk: ParkedDesk) -> list[ParkedDescription]:
    return [_work(one, desk.controller_id) for one in desk.containment.all() if one.parked]


async def _redrive_here(desk: ParkedDesk, name: str) -> bool:
    subjects = {
        one.subject
        for one in desk.containment.all()
        if one.parked and aggregate_name(one.subject) == name
    }
    for subject in sorted(subjects):
        _log.info("resumed parked work", subject=subject)
        await desk.resume(subject)
    return bool(subjects)


async def _work_elsewhere(desk: ParkedDesk) -> list[ParkedDescription]:
    """The work that other controllers parked; each of them lists a fold that fails everywhere."""
    found: list[ParkedDescription] = []
    question = ListParked(only_here=True).model_dump_json().encode()
    for controller, answer in await desk.ask_peers("list_parked", question, PEERS_DEADLINE_S):
        try:
            found += ParkedList.model_validate_json(answer).commands
        except ValidationError:
            _log.warning("no answer from a controller about its parked work", controller=controller)
    return [one for one in found if one.part != "command"]


async def _redrive_elsewhere(desk: ParkedDesk, query: RedriveParked) -> bool:
    question = query.model_copy(update={"only_here": True, "at_least": None})
    body, was_parked = question.model_dump_json().encode(), False
    for controller, answer in await desk.ask_peers("redrive_parked", body, PEERS_DEADLINE_S):
        try:
            was_parked |= ParkedChanged.model_validate_json(answer).was_parked
        except ValidationError:
            _log.warning("no answer from a controller to a redrive", controller=controller)
    return was_parked


def _work(one: Contained, controller: str) -> ParkedDescription:
    subject = one.subject.split(".")
    is_aggregate = aggregate_name(one.subject) != one.subject
    return ParkedDescription(
        command_id=aggregate_name(one.subject),
        bucket=int(subject[2]) if is_aggregate else 0,
        subject=one.subject,
        attempts=one.count,
        first_ms=one.first_ms,
        last_ms=one.last_ms,
        error=one.error[:WORK_ERROR_LENGTH_MAX],
        body="",
        part=one.part,
        controller=controller,
    )


def _described(command: ParkedCommand) -> ParkedDescription:
    return ParkedDescription(
        command_id=command.command_id,
        bucket=command.bucket,
        subject=command.subject,
        attempts=command.attempts,
        first_ms=command.first_ms,
        last_ms=command.last_ms,
        error=command.error,
        body=command.body.decode(errors="replace")[:BODY_LENGTH_MAX],
    )
