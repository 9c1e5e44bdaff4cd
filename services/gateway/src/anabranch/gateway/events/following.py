"""Reading a stream without an end: every event with the position token after it.

A caller that lost its connection continues from its last event's token, at any gateway, and gets
the very next event: the gateway keeps nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.client import Event, EventBatch, EventReader, TimeWindow
from anabranch.client.reading.position_tokens import position_token
from anabranch.common.runtime.clock import Clock

PATIENCE_S = 0.5
"""How often a waiting reader checks whether the gateway is stopping."""


class Following:
    """An entered reader of one caller. `closed` is called once, when the reader is closed."""

    def __init__(
        self, reader: EventReader, incarnation: int, clock: Clock, closed: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._incarnation = incarnation
        self._clock = clock
        self._closed: Callable[[], None] | None = closed

    def position(self) -> str:
        """The token of the current position."""
        stream = str(self._reader.stream)
        return position_token(stream, self._incarnation, self._reader.positions())

    async def time_window(self) -> TimeWindow:
        """The window of event time at the current position. Raises the reader's errors."""
        return await self._reader.time_window()

    async def next(
        self, heartbeat_s: float, stopping: Callable[[], bool]
    ) -> list[tuple[str, Event]] | None:
        """Events, each with the token after it.

        The list is empty after `heartbeat_s` without an event, or if the gateway stops. Returns
        None if the stream is sealed and read to its end. Raises the reader's errors.
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
        """Close the reader. Idempotent."""
        if self._closed is not None:
            closed, self._closed = self._closed, None
            closed()
        await self._reader.close()
