"""Gives back the space of replaced and removed entries of a container's table segments.

    due ──► oldest blocks of the log ──► their live entries ──► copied to the end ──► log truncated
              ▲                                                                            │
              └────────────────────── still due, and not once through the log ─────────────┘

A copy keeps its version. The container appends it only if the version is still the present one when
it decides, pending updates included; the truncation comes behind the copies in the same log. So no
crash in between loses an entry, and none returns that was replaced or removed. `domain/table/space`
decides what is due.
"""

import asyncio

import structlog

from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import Failed, Message, Request, error_of
from anabranch.common.wire.table import encode_copies
from anabranch.segstore.domain.container.circumstances import Given, InIndex
from anabranch.segstore.domain.table.answer import COMPACTOR, CompactTable, TruncateTable
from anabranch.segstore.domain.table.decide import time_in
from anabranch.segstore.domain.table.space import (
    Latest,
    Window,
    copies_of,
    expired_in,
    live_share,
    part_to_compact,
    window_of,
)
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.tables.indexer import Indexer
from anabranch.segstore.shell.tables.log_reader import LogReader
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tables.tables import Tables

WINDOW_SIZE_BYTES = 256 * 1024
"""A larger window would hold up the event loop."""
ANSWER_S_MAX = 30.0
ROUNDS_MAX = 16

_log = structlog.get_logger(__name__)


class Compactor:
    """The compaction of one container's table segments. `run` is its loop."""

    def __init__(
        self,
        container: Container,
        tables: Tables,
        indexer: Indexer,
        reader: LogReader,
        *,
        parts: TableParts,
        clock: Clock,
    ) -> None:
        self._container = container
        self._tables = tables
        self._indexer = indexer
        self._reader = reader
        self._parts = parts
        self._limits = parts.limits
        self._clock = clock

    async def run(self) -> None:
        """Check all resident table segments every so often, until cancelled."""
        while True:
            await self._clock.sleep(self._limits.compact_s)
            for number in tuple(self._container.applied.state.tables):
                known = self._container.applied.state.living(number)
                if known is not None and self._container.serving:
                    await self._try(known)

    async def _try(self, known: SegmentState) -> None:
        try:
            with self._container.residency.pinned(known.name):
                while await self.compact(known, until=known.length):
                    await self._clock.sleep(0)
        except (AnabranchError, OSError) as error:
            _log.warning(
                "a table segment could not be compacted; it is tried again later",
                segment=known.name, error=str(error),
            )  # fmt: skip

    async def compact(self, known: SegmentState, until: int) -> bool:
        """Compact the oldest blocks of a table segment if they are due and begin before `until`;
        return whether they were.

        Raises Unavailable, Overloaded and SegmentSealed, and errors of the disk.
        """
        now = self._container.applied.state.living(known.number)
        if now is None or now.sealed or now.start >= until:
            return False
        state, _ = await self._indexer.ready(now.number, now.length)
        size = now.length - now.start
        sparse = (
            size >= self._limits.compact_size_min
            and live_share(size, state.entries, state.live_size) < self._limits.live_share
        )
        if not sparse and not (await self._due_part(now, 1, sparse=False))[0].blocks:
            return False
        window, latest = await self._due_part(now, WINDOW_SIZE_BYTES, sparse=sparse)
        await self._move(now, window, latest)
        return bool(window.blocks)

    async def _due_part(
        self, known: SegmentState, size: int, *, sparse: bool
    ) -> tuple[Window, Latest]:
        """What is due of about the first `size` bytes, with the latest entries of its keys."""
        data = await self._reader.blocks(known.name, known.start, size)
        window = await self._parts.reading(lambda: window_of(data, known.start))
        latest = await self._tables.latest(known.name, tuple(window.entries))
        return part_to_compact(window, latest, self._now_ms(known), sparse=sparse), latest

    def _now_ms(self, known: SegmentState) -> int:
        return time_in(known, self._clock.now_ms())

    async def _move(self, known: SegmentState, window: Window, latest: Latest) -> None:
        now_ms = self._now_ms(known)
        expired = expired_in(window, latest, now_ms)
        if expired:
            await self._indexer.remove_expired(known.number, expired)
        for copies in copies_of(window, latest, now_ms):
            payload = encode_copies(copies, client_id=COMPACTOR, request_number=1, time_ms=now_ms)
            copy = CompactTable(segment=known.name, segment_number=known.number)
            await self._ask(copy, Given(payload))
        truncate = TruncateTable(segment=known.name, segment_number=known.number, offset=window.end)
        await self._ask(truncate, Given())

    async def _ask(self, request: Request, given: Given) -> None:
        """Ask the container, and wait until its answer is durable. Raises the refusal."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def deliver(message: Message) -> None:
            if not answered.done():
                answered.set_result(message)

        for _ in range(ROUNDS_MAX):
            place = self._container.ask(request, deliver, given)
            if place is None:
                break
            assert isinstance(place, InIndex)
            findings = await self._tables.find(request.segment, place)
            given = Given(given.payload, findings=findings, block=place.block)
        else:
            raise Unavailable("the table changes too fast to be compacted")
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                message = await answered
        except TimeoutError as error:
            raise Unavailable("the journal did not take a copy in time") from error
        if isinstance(message, Failed):
            raise error_of(message)
