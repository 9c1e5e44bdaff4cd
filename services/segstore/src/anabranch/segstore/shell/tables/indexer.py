"""Brings the index of a container's table segments up to date with their logs.

    durable append ──soon──► due ──pass──► written to the index ──► waiters go on, old updates leave
                              ▲                     │               the tails
                              └── further behind ───┘

    first use of a table ──► the index's state fits the log? ──no──► cleared, built from the start

A pass takes what the tail has, or reads the log where the tail does not reach back to. An index is
continued only if it ends within the segment and its last block is the one in the log; one of
another life, and a damaged one are built anew, while all other work goes on. Updates leave the
tails one pass after they were indexed, or soon after the last pass, but not during a look-up that
began before. A table whose log cannot be read is tried again after a pause; other tables go on.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import structlog
from crc32c import crc32c

from anabranch.common.errors import (
    AnabranchError,
    CorruptBlock,
    DiskFailed,
    FormatTooNew,
    InvalidRequest,
    SegmentTruncated,
    Unavailable,
)
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
PASS_S = 0.2
"""The time from an update until its table is due, unless something waits for its index or
`PASS_SIZE_BYTES` are missing in it: the updates of that time are one write."""
PASS_SIZE_BYTES = 1024 * 1024
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
        self._soon: set[int] = set()
        """Tables that are due soon."""
        self._failures: dict[int, int] = {}
        self._gone: list[int] = []
        self._resting: set[int] = set()
        """Tables whose last updates leave the tails soon."""
        self._wanted = asyncio.Event()
        self._waiting: dict[int, list[tuple[int, asyncio.Future[Ready]]]] = {}
        self._looking: dict[int, list[int]] = {}
        """What the index had when look-ups began that have not ended, by table."""
        self._ended = False
        container.notices.on_tables = self.note_changes

    # --- what others ask ----------------------------------------------------------------------

    def note_changes(self, changed: set[int], gone: list[int]) -> None:
        """Segments changed, and table segments were deleted, by durable operations."""
        for number in changed & self._container.applied.state.tables.keys():
            self._schedule(number)
        if gone:
            self._gone += gone
            self._wanted.set()

    def _schedule(self, number: int) -> None:
        """Make a table due: now if something waits for its index or much is missing in it."""
        known, state = self._container.applied.state.living(number), self._states.get(number)
        indexed = state.indexed if state is not None else 0
        missing = known.length - indexed if known is not None else 0
        if missing >= PASS_SIZE_BYTES or number in self._waiting:
            self._make_due(number)
        elif missing and number not in self._soon:
            self._soon.add(number)
            self._call_later(PASS_S, lambda: self._make_due(number))

    def _make_due(self, number: int) -> None:
        self._soon.discard(number)
        self._due[number] = None
        self._wanted.set()

    async def ready(self, number: int, offset: int) -> "Ready":
        """Wait until the index has everything before `offset` of a segment that stays resident.

        Raises Unavailable after `WAIT_S_MAX`, and the error if the log cannot be read.
        """
        state = self._states.get(number)
        if state is not None and state.indexed >= offset and not self._held.damaged:
            return Ready(state, self._held.life)
        if self._ended:
            raise Unavailable("the container ended")
        future: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, []).append((offset, future))
        self._due[number] = None
        self._wanted.set()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await future
        except TimeoutError as error:
            raise Unavailable("the table's index was not ready in time", number=number) from error

    @contextmanager
    def looking(self, ready: Ready) -> Iterator[None]:
        """Keep in the tails, as long as memory allows, what the index lacks that was `ready`: the
        finding of a look-up within the block is then of use."""
        begun = self._looking.setdefault(ready.state.number, [])
        begun.append(ready.state.indexed)
        try:
            yield
        finally:
            begun.remove(ready.state.indexed)
            if not begun:
                del self._looking[ready.state.number]

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
        # The updates that a replay found wait in memory.
        self.note_changes(set(self._container.applied.state.tables), [])
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if self._held.damaged:
                    await self._start_over()
                while (self._gone or self._due) and not self._held.damaged:
                    if self._gone:
                        await self._forget(self._gone.pop())
                    else:
                        await self._turn(next(iter(self._due)))
        finally:
            self._ended = True
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
        self._failures.pop(number, None)
        self._states.pop(number, None)
        self._fail(number, Unavailable("the table segment was deleted"))
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
            with self._container.residency.pinned(known.name):
                state = await self._state(known)
                if state.indexed < known.length:
                    await self._pass(known, state)
        except SegmentTruncated:
            self._due[number] = None  # by a compaction that had begun before the index was lost
            return
        except (AnabranchError, OSError) as error:
            if not self._held.damaged:  # otherwise the waiters wait for the next index
                self._failed(known, error)
            return
        self._failures.pop(number, None)
        self._wake(number)
        self._schedule(number)

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
        if state is not None and state.indexed >= known.start:
            return state
        stored = await self._held.read(lambda index: index.state(number))
        if stored is None or not await self._continues(known, stored):
            if stored is not None:
                _log.warning(
                    "the index of a table segment does not fit its log and is built anew",
                    segment=known.name, indexed=stored.indexed, length=known.length,
                )  # fmt: skip
            if self._states.pop(number, None) is not None:
                self._held.begin_life()
            await self._held.write(lambda index: index.clear(number))
            stored = IndexState(number, indexed=known.start, complete_from=known.start)
        self._states[number] = stored
        return stored

    async def _continues(self, known: SegmentState, state: IndexState) -> bool:
        """Whether the index was built from this log and can be continued."""
        if not known.start <= state.indexed <= known.length or state.anchor < known.start:
            return False
        try:
            data = await self._reader.blocks(known.name, state.anchor, 1)
            size = parse_header(data).size
        except (CorruptBlock, FormatTooNew, InvalidRequest, SegmentTruncated):
            return False  # in this log, no block begins there
        same = crc32c(memoryview(data)[:size]) == state.anchor_crc
        return same and state.anchor + size == state.indexed

    async def _pass(self, known: SegmentState, state: IndexState) -> None:
        found = await self._found(known, state)

        def write(index: TableIndex, now: IndexState) -> IndexState:
            return index.write(now, found.end, found.anchor, found.entries, found.requests)

        await self._change(known.number, write)
        self._drop(known.number, state.indexed)
        self._drop_rest_later(known.number)

    def _drop_rest_later(self, number: int) -> None:
        if number not in self._resting:
            self._resting.add(number)
            self._call_later(REST_S, lambda: self._drop_rest(number))

    def _drop_rest(self, number: int) -> None:
        self._resting.discard(number)
        state = self._states.get(number)
        if state is not None and not self._drop(number, state.indexed):
            self._drop_rest_later(number)

    def _drop(self, number: int, offset: int) -> bool:
        """Drop the updates before `offset`, which the index has, from the tails; False if a look-up
        needs some of them."""
        tail = self._container.applied.state.tables.get(number)
        if tail is None:
            return True
        needed = min(self._looking.get(number, (offset,)))
        fits = tail.size <= self._parts.limits.unindexed_max // 2
        least = min(offset, needed) if fits else offset
        self._parts.hot.replace(tail, self._container.segments.drop_from_tails(number, least))
        return least == offset

    async def _found(self, known: SegmentState, state: IndexState) -> IndexPass:
        tail = self._container.applied.state.tables.get(known.number)
        if tail is None:
            raise Unavailable("the table segment was deleted", segment=known.name)
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
