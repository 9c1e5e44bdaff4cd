"""Handle commands from the work queue: load at the head, decide, append the intent, answer.

A command is done as soon as its decision is durable; a runner performs the work that follows from
it. The same command may arrive twice if its acknowledgement was lost. The aggregate remembers the
command's id, so the second delivery gets the same answer. A message ends in one of three ways:

* The controller answers `Accepted` or `Rejected`, and the message is finished.
* The message is not a command. If it names a reply inbox, the controller answers `Rejected`; the
  message is finished.
* The stores do not answer. The handler raises `TryAgain`, and the message stays at the head of its
  bucket's queue.
"""

import json
from enum import StrEnum

from pydantic import ValidationError

from anabranch.common.contracts.base import ErrorBody, ReadToken
from anabranch.common.contracts.command import CommandBase, about
from anabranch.common.contracts.commands import COMMANDS, Accepted, Command, Rejected
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import (
    AnabranchError,
    FormatTooNew,
    InvalidRequest,
    Unavailable,
    Unknown,
)
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.hashing import shard_of
from anabranch.common.runtime.tracing import continued
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.handlers.deciding.table import COMMANDED, DECIDERS
from anabranch.controller.ports import TryAgain
from anabranch.controller.projections.mirror import Known

SCHEMA_SUPPORTED = 1
MALFORMED = "malformed"
"""Counted in place of the command's kind if a message is not a command."""


class Outcome(StrEnum):
    """The outcomes by which commands are counted. After AGAIN, a command stays in the queue."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    AGAIN = "again"


async def handle_command(desk: CommandDesk, request: Envelope, stored_ms: int = 0) -> None:
    """Decide and answer one message of the work queue. Raises TryAgain.

    `stored_ms` is the server's time at which the queue stored the message; 0 if unknown.
    """
    metrics = desk.observer.metrics
    began_s = metrics.now_s()
    try:
        command = with_deadline_here(parse_command(request.body), stored_ms, desk.store_clock)
    except AnabranchError as error:
        await _answer(desk, _reply_inbox(request.body), Rejected(error=ErrorBody.of(error)))
        metrics.commanded(MALFORMED, Outcome.REJECTED, began_s)
        return
    outcome = Outcome.AGAIN
    span_name = f"controller command {command.kind}"
    try:
        with continued(desk.observer.tracer, span_name, request.trace_parent):
            outcome = await _handle(desk, command)
    finally:
        metrics.commanded(command.kind, outcome, began_s)


async def _handle(desk: CommandDesk, command: Command) -> Outcome:
    try:
        loaded = await DECIDERS[type(command)].decide(desk, command)
        answer: Accepted | Rejected = _accepted(command, loaded)
    except (Unavailable, Unknown) as error:
        raise TryAgain(error) from error
    except AnabranchError as error:
        answer = Rejected(error=ErrorBody.of(error), read_token=_looked_at(desk, command))
    await _answer(desk, command.reply_to, answer)
    return Outcome.ACCEPTED if isinstance(answer, Accepted) else Outcome.REJECTED


def parse_command(body: bytes) -> Command:
    """The command in `body`. Raises InvalidRequest, FormatTooNew."""
    try:
        found = json.loads(body)
        number = found.get("schema_number", 1)
        if isinstance(number, int) and number > SCHEMA_SUPPORTED:
            raise FormatTooNew(
                "a newer release sent the command", found=number, supported=SCHEMA_SUPPORTED
            )
        return COMMANDS.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest("the command is malformed", where=where, why=first["msg"]) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidRequest("the command is not a JSON object") from error


def with_deadline_here(command: Command, stored_ms: int, store_clock: StoreClock) -> Command:
    """Return the command with its deadline on this controller's clock.

    `wait_ms` counts from the moment at which the queue stored the command, so it holds even if the
    caller's clock is wrong. While the difference between the clocks is unknown, the command gets no
    deadline: a late decision is better than a refusal while the caller still waits.
    """
    if not command.wait_ms:
        return command
    here_ms = store_clock.here_ms(stored_ms)
    deadline_ms = 0 if here_ms is None else here_ms + command.wait_ms
    return command.model_copy(update={"deadline_ms": deadline_ms})


def _accepted(command: CommandBase, loaded: Known) -> Accepted:
    token = ReadToken(shard=shard_of_subject(loaded.subject), sequence=loaded.sequence)
    return Accepted(operation=command.command_id, read_token=token)


def _looked_at(desk: CommandDesk, command: CommandBase) -> ReadToken | None:
    """A point that includes every message on which a rejection of the command was based."""
    shard = shard_of(str(about(command)))
    sequence = max(desk.repositories[kind].seen(shard) for kind in COMMANDED)
    return ReadToken(shard=shard, sequence=sequence) if sequence else None


async def _answer(desk: CommandDesk, inbox: str, answer: Accepted | Rejected) -> None:
    if inbox:
        await desk.reply(inbox, answer.model_dump_json().encode())


def _reply_inbox(body: bytes) -> str:
    """The reply inbox that a malformed command names, or "" if it names none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    inbox = found.get("reply_to", "") if isinstance(found, dict) else ""
    is_usable = isinstance(inbox, str) and inbox.isprintable() and " " not in inbox
    return inbox if is_usable else ""
