"""Brings the index of a container's table segments up to date with their logs.

    durable append ──► due ──pass──► written to the index ──► waiters go on, old updates leave the
                        ▲                     │               tails
                        └── further behind ───┘

    first use of a table ──► the index's state fits the log? ──no──► cleared, built from the start

A pass takes what the tail has, or reads the log where the tail does not reach back to. An index is
continued only if it ends within the segment and its last block is the one in the log; an older
copy, one of another life, and a damaged one are built anew, while all other work goes on. Updates
leave the tails one pass after they were indexed, so that a look-up that began before may still be
used. A table whose log cannot be read is tried again after a pause; other tables go on.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog
from crc32c import crc32c

from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import parse_header
from anabranch.segstore.ports_table import IndexState, TableIndex
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.memory.tail import CallLater
from anabranch.segstore.shell.tables.held_index import HeldIndex
from anabranch.segstore.shell.tables.log_reader import LogReader
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tables.passes import IndexPass, merged, parsed

READ_SIZE_BYTES_MAX = 1024 * 1024
WAIT_S_MAX = 30.0
"""How long a look-up waits for the index."""
REST_S = 1.0
"""How long the updates of the last pass stay in the tails, for look-ups that began before it."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Ready(NamedTuple):
    """The indexed part of a table, in this life of the index."""

    state: IndexState
    life: int


class Indexer:
    """The indexing of one container's tables. `run` is its loop."""

    def __init__(
        self,
        container: Container,
        reader: LogReader,
        parts: TableParts,
        call_later: CallLater,
        back_off_s: BackOff,
    ) -> None:
        self._container = container
        self._reader = reader
        self._parts = parts
        self._call_later = call_later
        self._back_off_s = back_off_s
        self._held = HeldIndex(container.container, parts, self._start_over_soon)
        self._states: dict[int, IndexState] = {}
        self._due: dict[int, None] = {}
        self._failures: dict[int, int] = {}
        self._gone: list[int] = []
        self._resting: set[int] = set()
        """Tables whose last updates leave the tails soon."""
        self._wanted = asyncio.Event()
        self._waiting: dict[int, list[tuple[int, asyncio.Future[Ready]]]] = {}
        container.on_tables = self.note_changes

    # --- what others ask ----------------------------------------------------------------------

    def note_changes(self, changed: set[int], gone: list[int]) -> None:
        """Segments changed, and table segments were deleted, by durable operations."""
        for number in changed & self._container.applied.state.tables.keys():
            self._due[number] = None
        self._gone += gone
        self._wanted.set()

    def unindexed(self, number: int) -> int:
        """Bytes of a table segment that the index lacks, as far as it is known."""
        known = self._container.pending.living(number)
        state = self._states.get(number)
        return known.length - state.indexed if known is not None and state is not None else 0

    async def ready(self, number: int, offset: int) -> "Ready":
        """Wait until the index has everything before `offset` of a segment that stays resident.

        Raises Unavailable after `WAIT_S_MAX`, and the error if the log cannot be read.
        """
        state = self._states.get(number)
        if state is not None and state.indexed >= offset and not self._held.damaged:
            return Ready(state, self._held.life)
        future: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, []).append((offset, future))
        self._due[number] = None
        self._wanted.set()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await future
        except TimeoutError as error:
            raise Unavailable("the table's index was not ready in time", number=number) from error

    async def read(self, life: int, work: Callable[[TableIndex], T]) -> T:
        """Call the index in a thread; `life` as `ready` returned it. Raises Unavailable (also if
        the index was replaced since then), DiskFailed."""
        return await self._held.read(work, life)

    async def remove_expired(self, number: int, keys: dict[bytes, int]) -> None:
        """Remove the rows of these keys, which have expired, if they still have these versions."""
        await self._change(number, lambda index, state: index.remove_expired(state, keys))

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Index until cancelled, because the container ended."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if self._held.damaged:
                    await self._start_over()
                while self._gone:
                    await self._forget(self._gone.pop())
                while self._due and not self._held.damaged:
                    await self._turn(next(iter(self._due)))
        finally:
            self._fail_all(Unavailable("the container ended"))
            await self._held.end()

    def _start_over_soon(self) -> None:
        self._wanted.set()

    async def _start_over(self) -> None:
        try:
            await self._held.start_over()
        except (AnabranchError, OSError) as error:
            _log.error("a damaged index cannot be deleted, retrying", error=str(error))
            self._call_later(self._back_off_s(1), self._wanted.set)
            return
        for number in self._states | self._waiting:
            self._due[number] = None
        self._states.clear()

    async def _forget(self, number: int) -> None:
        """A table segment was deleted."""
        self._due.pop(number, None)
        self._fail(number, Unavailable("the table segment was deleted"))
        if self._states.pop(number, None) is not None:
            try:
                await self._held.write(lambda index: index.clear(number))
            except (AnabranchError, OSError) as error:
                _log.warning("rows of a deleted table stay in the index", error=str(error))

    async def _turn(self, number: int) -> None:
        """One pass over a table, which is due again if it is still behind."""
        self._due.pop(number, None)
        known = self._container.applied.state.living(number)
        if known is None:
            self._fail(number, Unavailable("the table segment is not resident"))
            return
        try:
            state = await self._state(known)
            if state.indexed < known.length:
                await self._pass(known, state)
                self._due[number] = None
        except (AnabranchError, OSError) as error:
            self._failed(known, error)
            return
        self._failures.pop(number, None)
        self._wake(number)

    def _failed(self, known: SegmentState, error: AnabranchError | OSError) -> None:
        """Tell the waiters, and try again after a pause."""
        named = error if isinstance(error, AnabranchError) else _disk_failed(error)
        failures = self._failures[known.number] = self._failures.get(known.number, 0) + 1
        _log.warning(
            "a table segment cannot be indexed, retrying",
            segment=known.name, failures=failures, error=str(named),
        )  # fmt: skip
        self._fail(known.number, named)

        def again() -> None:
            self._due[known.number] = None
            self._wanted.set()

        self._call_later(self._back_off_s(failures), again)

    async def _state(self, known: SegmentState) -> IndexState:
        """The state of the index for a table, checked against the log at the first use."""
        number = known.number
        state = self._states.get(number)
        if state is not None:
            return state
        state = await self._held.read(lambda index: index.state(number))
        if state is None or not await self._continues(known, state):
            if state is not None:
                _log.warning(
                    "the index of a table segment does not fit its log and is built anew",
                    segment=known.name, indexed=state.indexed, length=known.length,
                )  # fmt: skip
            await self._held.write(lambda index: index.clear(number))
            state = IndexState(number, indexed=known.start, complete_from=known.start)
        self._states[number] = state
        return state

    async def _continues(self, known: SegmentState, state: IndexState) -> bool:
        """Whether the index was built from this log and can be continued."""
        if not known.start <= state.indexed <= known.length or state.anchor < known.start:
            return False
        data = await self._reader.blocks(known.name, state.anchor, 1)
        size = parse_header(data).size
        same = crc32c(memoryview(data)[:size]) == state.anchor_crc
        return same and state.anchor + size == state.indexed

    async def _pass(self, known: SegmentState, state: IndexState) -> None:
        found = await self._found(known, state)

        def write(index: TableIndex, now: IndexState) -> IndexState:
            return index.write(now, found.end, found.anchor, found.entries, found.requests)

        await self._change(known.number, write)
        self._drop(known.number, state.indexed)
        if known.number not in self._resting:
            self._resting.add(known.number)
            self._call_later(REST_S, lambda: self._drop_all(known.number))

    def _drop_all(self, number: int) -> None:
        self._resting.discard(number)
        state = self._states.get(number)
        if state is not None:
            self._drop(number, state.indexed)

    def _drop(self, number: int, offset: int) -> None:
        """Drop the updates before `offset`, which the index has, from the tails."""
        tail = self._container.applied.state.tables.get(number)
        if tail is not None:
            self._parts.hot.replace(tail, self._container.segments.drop_from_tails(number, offset))

    async def _found(self, known: SegmentState, state: IndexState) -> IndexPass:
        tail = self._container.applied.state.tables[known.number]
        if tail.kept_from <= state.indexed:
            return merged(tail.changes_from(state.indexed))
        size = min(READ_SIZE_BYTES_MAX, known.length - state.indexed)
        data = await self._reader.blocks(known.name, state.indexed, size)
        return await self._parts.reading(lambda: parsed(data, state.indexed))

    async def _change(
        self, number: int, work: Callable[[TableIndex, IndexState], IndexState]
    ) -> None:
        """Change the index of a table. The threads make changes one after the other, each from the
        state that the last one left."""

        def change(index: TableIndex) -> None:
            state = self._states.get(number)
            if state is not None:
                self._states[number] = work(index, state)

        await self._held.write(change)

    # --- waiters ------------------------------------------------------------------------------

    def _wake(self, number: int) -> None:
        """Answer the waiters whose offset the index has reached."""
        state = self._states[number]
        waiting = self._waiting.pop(number, [])
        left = [each for each in waiting if each[0] > state.indexed]
        for offset, future in waiting:
            if offset <= state.indexed and not future.done():
                future.set_result(Ready(state, self._held.life))
        if left:
            self._waiting[number] = left

    def _fail(self, number: int, error: AnabranchError) -> None:
        for _, future in self._waiting.pop(number, []):
            if not future.done():
                future.set_exception(error)

    def _fail_all(self, error: AnabranchError) -> None:
        for number in tuple(self._waiting):
            self._fail(number, error)


def _disk_failed(error: OSError) -> DiskFailed:
    return DiskFailed("a read of a table's bytes failed", cause=str(error))
