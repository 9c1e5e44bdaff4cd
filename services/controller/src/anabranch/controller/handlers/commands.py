"""Commands from the work queue: load at the head, decide, append the intent, answer.

A command is done with as soon as its decision is durable; the work that follows from it is the
runner's. The same command may arrive twice (its acknowledgement was lost): its id is found in
the aggregate and it gets the same answer. Three ends are possible:

* `Accepted` or `Rejected` was answered: the message is finished.
* it is not a command at all: answered `Rejected` where somebody can be answered, and finished.
* the stores do not answer: `TryAgain`; the message stays at the head of its bucket's queue.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from pydantic import ValidationError

from anabranch.common.contracts.base import ErrorBody, ReadToken
from anabranch.common.contracts.command import CommandBase, about
from anabranch.common.contracts.commands import (
    COMMANDS,
    Accepted,
    Command,
    CreateScope,
    DeleteScope,
    Rejected,
)
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    ResetReaderGroup,
)
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    shard_of_subject,
    stream_events,
)
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptEvent,
    Defect,
    FormatTooNew,
    InvalidRequest,
    Unavailable,
    Unknown,
)
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.names import StreamRef, any_stream_name, scope_name, stream_name
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.tracing import continued, current_trace_parent
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import parked_error
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.starts import READABLE, SeenStream
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import Scope, ScopeEvent
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.ports import TryAgain
from anabranch.controller.projections.histories import Histories, HistoryNotLoaded
from anabranch.controller.projections.mirror import Known
from anabranch.controller.workflows.observed import Observer

SCHEMA_SUPPORTED = 1
STREAMS_AT_ONCE_MAX = 16
"""That are read for one command about a reader group."""
HISTORY_ATTEMPTS_MAX = 4
"""Between fetching a history and deciding, others may push it out of the memory."""
MALFORMED = "malformed"
"""In the place of a kind, for what is no command."""

S = TypeVar("S")
E = TypeVar("E")

Reply = Callable[[str, bytes], Awaitable[None]]
"""Sends bytes to an inbox; best effort, since nobody may listen."""


class Outcome(StrEnum):
    """How a command is counted. AGAIN: it stays in the queue."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    AGAIN = "again"


def _never_parked(_subject: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class CommandDesk:
    """What deciding a command needs."""

    scopes: Repository[Scope, ScopeEvent]
    streams: Repository[Stream, StreamEvent]
    groups: Repository[ReaderGroup, GroupEvent]
    clock: Clock
    reply: Reply
    histories: Histories = field(kw_only=True)
    require_not_parked: Callable[[str], None] = field(kw_only=True, default=_never_parked)
    """Raises Parked for the subject of an aggregate that a defect stopped."""
    store_clock: StoreClock = field(default_factory=StoreClock, kw_only=True)
    observer: Observer = field(default_factory=Observer)


async def handle_command(
    desk: CommandDesk, body: bytes, trace_parent: str = "", stored_ms: int = 0
) -> None:
    """Decide and answer one message of the work queue. Raises TryAgain.

    `stored_ms`: when the queue stored it, by the server's clock; 0: not known.
    """
    metrics = desk.observer.metrics
    began_s = metrics.now_s()
    try:
        command = with_deadline_here(parse_command(body), stored_ms, desk.store_clock)
    except AnabranchError as error:
        await _answer(desk, _reply_inbox(body), Rejected(error=ErrorBody.of(error)))
        metrics.commanded(MALFORMED, Outcome.REJECTED, began_s)
        return
    outcome = Outcome.AGAIN
    try:
        with continued(desk.observer.tracer, f"controller command {command.kind}", trace_parent):
            outcome = await _handle(desk, command)
    finally:
        metrics.commanded(command.kind, outcome, began_s)


async def _handle(desk: CommandDesk, command: Command) -> Outcome:
    try:
        answer: Accepted | Rejected = await _decide(desk, command)
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
                "the command is of a newer release", found=number, supported=SCHEMA_SUPPORTED
            )
        return COMMANDS.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest("the command is malformed", where=where, why=first["msg"]) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidRequest("the command is not a JSON object") from error


def with_deadline_here(command: Command, stored_ms: int, store_clock: StoreClock) -> Command:
    """The command with its deadline by this controller's clock.

    `wait_ms` counts from when the queue stored the command, so it holds whatever the caller's
    clock says. While it is not known how the clocks differ, no deadline counts: to decide late is
    better than to refuse what somebody waits for.
    """
    if not command.wait_ms:
        return command
    here_ms = store_clock.here_ms(stored_ms)
    deadline_ms = 0 if here_ms is None else here_ms + command.wait_ms
    return command.model_copy(update={"deadline_ms": deadline_ms})


async def _decide(desk: CommandDesk, command: Command) -> Accepted:
    match command:
        case CreateScope() | DeleteScope():
            return _accepted(command, await _decide_scope(desk, command))
        case CreateReaderGroup() | ResetReaderGroup() | DeleteReaderGroup():
            return _accepted(command, await _decide_group(desk, command))
        case _:
            return _accepted(command, await _decide_stream(desk, command))


async def _change(
    desk: CommandDesk,
    aggregates: Repository[S, E],
    subject: str,
    decide: Callable[[Loaded[S]], Sequence[E]],
) -> Loaded[S]:
    """`transact`; what changes nothing, as a command that was accepted before, is no change of a
    parked aggregate. Raises Parked, also for one that a defect keeps from being folded."""

    def decide_unparked(loaded: Loaded[S]) -> Sequence[E]:
        try:
            events = decide(loaded)
        except Busy:
            desk.require_not_parked(subject)  # it would be busy for ever
            raise
        if events:
            desk.require_not_parked(subject)
        return events

    try:
        return await aggregates.transact(subject, decide_unparked)
    except CorruptEvent as error:
        if isinstance(error.__cause__, Defect):
            raise parked_error(subject, str(error.__cause__)) from error
        raise


async def _decide_scope(desk: CommandDesk, command: CreateScope | DeleteScope) -> Loaded[Scope]:
    subject = scope_events(scope_name(command.scope))
    desk.observer.traces.remember(subject, current_trace_parent())
    now_ms = desk.clock.now_ms()
    return await _change(
        desk, desk.scopes, subject,
        lambda loaded: scope_decide.decide(loaded.state, command, now_ms=now_ms),
    )  # fmt: skip


async def _decide_stream(desk: CommandDesk, command: StreamCommand) -> Loaded[Stream]:
    ref = StreamRef(scope_name(command.scope), any_stream_name(command.stream))
    scope = (await desk.scopes.load(scope_events(ref.scope))).state
    incarnation = scope.incarnation if scope.is_open else None
    now_ms = desk.clock.now_ms()
    subject = stream_events(ref)
    desk.observer.traces.remember(subject, current_trace_parent())

    def decide(loaded: Loaded[Stream]) -> Sequence[StreamEvent]:
        circumstances = Circumstances(
            revision=loaded.revision + 1,
            open_scope_incarnation=incarnation,
            now_ms=now_ms,
            history=lambda: desk.histories.known(loaded.state),
        )
        return stream_decide.decide(loaded.state, command, circumstances)

    for _ in range(HISTORY_ATTEMPTS_MAX):
        try:
            return await _change(desk, desk.streams, subject, decide)
        except HistoryNotLoaded as missing:
            await desk.histories.of(missing.stream)
    raise Busy("the stream's history was not to be had", stream=str(ref))


async def _decide_group(desk: CommandDesk, command: GroupCommand) -> Loaded[ReaderGroup]:
    ref = GroupRef(scope_name(command.scope), stream_name(command.group))
    scope = (await desk.scopes.load(scope_events(ref.scope))).state
    at = group_decide.Circumstances(
        open_scope_incarnation=scope.incarnation if scope.is_open else None,
        streams=await _seen_streams(desk, command),
        now_ms=desk.clock.now_ms(),
    )
    subject = group_events(ref)
    desk.observer.traces.remember(subject, current_trace_parent())
    return await _change(
        desk, desk.groups, subject, lambda loaded: group_decide.decide(loaded.state, command, at)
    )


async def _seen_streams(desk: CommandDesk, command: GroupCommand) -> dict[str, SeenStream]:
    """The streams that the command names and that were ever created."""
    found: dict[str, SeenStream] = {}

    async def see(ref: StreamRef) -> None:
        stream = (await desk.streams.load(stream_events(ref))).state
        if stream.status in READABLE:
            found[str(ref)] = SeenStream(stream, await desk.histories.of(stream))

    if not isinstance(command, DeleteReaderGroup):
        refs = [each.ref for each in command.config.streams]
        await for_each(refs, STREAMS_AT_ONCE_MAX, see)
    return found


def _accepted(command: CommandBase, loaded: Known) -> Accepted:
    token = ReadToken(shard=shard_of_subject(loaded.subject), sequence=loaded.sequence)
    return Accepted(operation=command.command_id, read_token=token)


def _looked_at(desk: CommandDesk, command: CommandBase) -> ReadToken | None:
    """A point by which everything was stored that a rejection of the command follows from."""
    shard = shard_of(str(about(command)))
    sequence = max(kind.seen(shard) for kind in (desk.scopes, desk.streams, desk.groups))
    return ReadToken(shard=shard, sequence=sequence) if sequence else None


async def _answer(desk: CommandDesk, inbox: str, answer: Accepted | Rejected) -> None:
    if inbox:
        await desk.reply(inbox, answer.model_dump_json().encode())


def _reply_inbox(body: bytes) -> str:
    """The inbox named in what is otherwise no command, or ""."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    inbox = found.get("reply_to", "") if isinstance(found, dict) else ""
    is_usable = isinstance(inbox, str) and inbox.isprintable() and " " not in inbox
    return inbox if is_usable else ""
