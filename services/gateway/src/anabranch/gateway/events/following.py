"""Reading on without an end: every event with the position token behind it.

A caller that lost its connection goes on from the token of the last event that it had, at any
gateway, and gets the very next one: nothing is kept here.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.client import Event, EventBatch, EventReader
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.events.tokens import position_token

PATIENCE_S = 0.5
"""How often a reader that waits looks whether the gateway is stopping."""


class Following:
    """An entered reader of one caller. `closed` is called once, when it is closed."""

    def __init__(
        self, reader: EventReader, incarnation: int, clock: Clock, closed: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._incarnation = incarnation
        self._clock = clock
        self._closed: Callable[[], None] | None = closed

    def position(self) -> str:
        """The token of where it stands."""
        stream = str(self._reader.stream)
        return position_token(stream, self._incarnation, self._reader.positions())

    async def next(
        self, heartbeat_s: float, stopping: Callable[[], bool]
    ) -> list[tuple[str, Event]] | None:
        """Events, each with the token behind it; none after so long without one, or when the
        gateway stops. None: the stream is sealed and nothing follows. Raises what the reader does.
        """
        deadline_s = self._clock.monotonic() + heartbeat_s
        while not stopping() and self._clock.monotonic() < deadline_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    batch = await self._reader.next_batch()
                    return None if batch is None else self._placed(batch)
        return []

    def _placed(self, batch: EventBatch) -> list[tuple[str, Event]]:
        stream, at = str(self._reader.stream), dict(self._reader.positions())
        found: list[tuple[str, Event]] = []
        for left, event in enumerate(batch.events(), 1 - len(batch)):
            behind = event.position._replace(event_index=event.event_index + 1)
            at[batch.segment] = behind if left else batch.next
            found.append((position_token(stream, self._incarnation, at), event))
        return found

    async def close(self) -> None:
        """Repeatable."""
        if self._closed is not None:
            closed, self._closed = self._closed, None
            closed()
        await self._reader.close()
