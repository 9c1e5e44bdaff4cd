"""Control requests on segments: one path for all verbs of `VERBS`, shared by every door.

The desk finds the container, loads the segments and asks the container. `deliver` gets the answer
once everything that it depends on is durable. If the answer depends on append boundaries or times
that only tier 2 knows, or on entries that only the index of a table knows, the desk looks them up
and asks the container again. An error that prevents
a decision (wrong store, container not open) is raised, or delivered if the request had to wait.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

from anabranch.common.errors import AnabranchError, BadPacket, DiskFailed, Unavailable
from anabranch.common.wire.messages import (
    FlushContainer,
    Message,
    Request,
    UpdateTable,
    failed,
)
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.container.circumstances import (
    NOTHING_GIVEN,
    Elsewhere,
    Given,
    InIndex,
)
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.tiered_events import look_up
from anabranch.segstore.shell.node.store import OpenContainer, Store

Spawn = Callable[[Coroutine[None, None, None]], None]
"""Run a coroutine in a task group that outlives the request."""

TIER_TWO_DEADLINE_S = 30.0
ROUNDS_MAX = 16
"""How often an answer may depend on something else."""


@dataclass(frozen=True, slots=True)
class ControlDesk:
    """Answers the control requests of one door."""

    store: Store
    spawn: Spawn

    def ask(self, request: Message, deliver: Deliver, given: Given = NOTHING_GIVEN) -> None:
        """Answer any request that has a row in `VERBS`, or FlushContainer.

        Raises BadPacket for any other message, and the errors that prevent a decision: WrongHost,
        Unavailable, Overloaded, InvalidRequest (segments of several containers).
        """
        if isinstance(request, FlushContainer):
            self._flush(request, deliver)
            return
        if not isinstance(request, Request) or type(request) not in VERBS:
            raise BadPacket("a packet is not a request", kind=type(request).__name__)
        names = VERBS[type(request)].names(request)
        self.store.check_together(names)
        found = self.store.find(request.segment, request.container_epoch)
        if isinstance(request, UpdateTable):
            found.tables.check_room(request.segment)
        found.container.load_first(
            names,
            lambda: self._ask(found, request, deliver, given),
            lambda error: deliver(failed(error)),
            size=len(given.payload),
        )

    def _flush(self, request: FlushContainer, deliver: Deliver) -> None:
        """FlushContainer → Done."""
        found = self.store.by_number(request.container)
        found.container.check_request()
        found.flusher.request(deliver)

    def _ask(self, found: OpenContainer, request: Request, deliver: Deliver, given: Given) -> None:
        place = found.container.ask(request, deliver, given)
        if isinstance(place, InIndex):
            findings = found.tables.find_now(place)
            if findings is not None:
                given = replace(given, findings=findings, block=place.block)
                place = found.container.ask(request, deliver, given)
        if place is not None:
            found.container.residency.pin(request.segment)
            self.spawn(_ask_elsewhere(found, request, deliver, given, place))


async def _ask_elsewhere(
    found: OpenContainer, request: Request, deliver: Deliver, given: Given, place: Elsewhere
) -> None:
    """Look up the things that the answer depends on, and ask again, until there are none left."""
    try:
        with found.tables.waiting(len(given.payload)):
            async with asyncio.timeout(TIER_TWO_DEADLINE_S):
                await _ask_again(found, request, deliver, given, place)
    except (AnabranchError, OSError, TimeoutError) as error:
        deliver(failed(tier_two_error(error)))
    finally:
        found.container.residency.unpin(request.segment)


async def _ask_again(
    found: OpenContainer, request: Request, deliver: Deliver, given: Given, place: Elsewhere
) -> None:
    left: Elsewhere | None = place
    for _ in range(ROUNDS_MAX):
        if left is None:
            return
        given = await _look_up(found, request, given, left)
        left = found.container.ask(request, deliver, given)
    if left is not None:
        raise Unavailable("the table changed faster than its entries could be read")


async def _look_up(found: OpenContainer, request: Request, given: Given, place: Elsewhere) -> Given:
    if isinstance(place, InIndex):
        findings = await found.tables.find(request.segment, place)
        return replace(given, findings=findings, block=place.block)
    return await look_up(found.tier_two, place, given)


def tier_two_error(error: AnabranchError | OSError | TimeoutError) -> AnabranchError:
    """The error to report for a request that failed in tier 2."""
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, TimeoutError):
        return Unavailable("tier 2 did not answer in time", seconds=TIER_TWO_DEADLINE_S)
    return DiskFailed("a read of stored bytes failed", cause=str(error))
