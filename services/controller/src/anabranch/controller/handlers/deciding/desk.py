"""The dependencies of deciding a command, and the change of its aggregate."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anabranch.common.errors import Busy, CorruptEvent, Defect
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.trace_context import current_trace_parent
from anabranch.common.workflow.containment import parked_error
from anabranch.controller.projections.histories import Histories
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.repositories import Repositories

S = TypeVar("S")
E = TypeVar("E")

Reply = Callable[[str, bytes], Awaitable[None]]
"""Sends bytes to an inbox; best effort, because the caller may be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDesk:
    """The dependencies of deciding a command.

    `repositories` hold the stored aggregates, `histories` the epochs of streams.
    `require_not_parked(subject)` raises Parked for an aggregate that a defect stopped. `clock` is
    this controller's clock; `store_clock` knows its difference to the clock of the NATS server.
    `reply` sends answers; `observer` collects metrics and traces.
    """

    repositories: Repositories
    histories: Histories
    require_not_parked: Callable[[str], None]
    clock: Clock
    store_clock: StoreClock
    reply: Reply
    observer: Observer


async def change(
    desk: CommandDesk,
    aggregates: Repository[S, E],
    subject: str,
    decide: Callable[[Loaded[S]], Sequence[E]],
) -> Loaded[S]:
    """Run `transact` in the trace of the command.

    A command that was accepted before changes nothing; the controller therefore answers it even if
    the aggregate is parked. Raises Parked, also if a defect prevents folding the aggregate.
    """

    desk.observer.traces.remember(subject, current_trace_parent())

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
