"""Scales the demo's stream manually while it is written, as an operator would.

The scales follow one another, each after enough rows were written. The writer continues and gets no
notice.
"""

import asyncio

from anabranch.client import Client
from anabranch.common.errors import Busy, ScaleRefused

ATTEMPTS_MAX = 20
PAUSE_S = 0.2
SCALE_S_MAX = 120.0
"""A killed store is away for seconds, and the controller retries with growing pauses."""


def scale_rows(rows: int, count: int) -> list[int]:
    """The row counts after which to scale: the ends of equal parts, without the last."""
    return [rows * (part + 1) // (count + 1) for part in range(count)]


class Scaling:
    """Owns the completed scales, and the pending one."""

    def __init__(
        self, client: Client, stream: str, tasks: asyncio.TaskGroup, *, rows: int, count: int
    ) -> None:
        self._client = client
        self._stream = stream
        self._due = scale_rows(rows, count)
        self._tasks = tasks
        self._running: asyncio.Task[None] | None = None
        self._begun = 0
        self.scales = 0

    def look(self, rows: int) -> None:
        """Begin a scale if one is due after `rows` written rows and none is pending."""
        is_busy = self._running is not None and not self._running.done()
        if self._due and rows >= self._due[0] and not is_busy:
            self._due.pop(0)
            self._running = self._tasks.create_task(self._scale(self._begun))
            self._begun += 1

    async def finish(self) -> None:
        """Make the remaining scales, if rows came faster than scales."""
        while self._running is not None:
            await self._running
            self._running = None
            if self._due:
                self.look(self._due[0])

    async def _scale(self, number: int) -> None:
        """In turn: split the first segment in three, then merge the last two.

        The segments may change between the query and the command, if a transaction that was begun
        before the last scale commits.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            present = (await self._client.streams.current_segments(self._stream)).segments
            ids = [segment.segment_id for segment in present]
            try:
                await self._change(ids, splits=number % 2 == 0)
            except (ScaleRefused, Busy):
                if attempt == ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                self.scales += 1
                return

    async def _change(self, ids: list[int], *, splits: bool) -> None:
        streams = self._client.streams
        if splits:
            await streams.split_segment(self._stream, ids[0], 3, timeout_s=SCALE_S_MAX)
        else:
            await streams.merge_segments(self._stream, ids[-2:], timeout_s=SCALE_S_MAX)
