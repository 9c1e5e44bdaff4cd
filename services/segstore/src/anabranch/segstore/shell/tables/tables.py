"""The table segments of one container, as its doors use them: look-ups, scans, descriptions.

    key ──► tail of the durable updates ──► entries that were read before ──► index

Look-ups wait until the index has what the tail has dropped. Those that arrive while the index is
being read go into one call of it. As long as memory allows, the tail drops nothing that the finding
of a look-up lacks; the look-up checks this, and otherwise repeats.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.common.errors import AnabranchError, InvalidRequest, Overloaded, Unavailable
from anabranch.common.model.names import SegmentKind
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import ScanEntries, TableDescribed
from anabranch.common.wire.table_columns import NO_ROW, EntryColumns, Row, in_columns
from anabranch.segstore.domain.container.circumstances import InIndex
from anabranch.segstore.domain.container.decide import gone
from anabranch.segstore.domain.table.decide import time_in
from anabranch.segstore.domain.table.tail import Findings, TailEntry
from anabranch.segstore.ports_table import IndexPage, IndexState, Remembered, TableIndex
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.tables.indexer import Indexer, Ready
from anabranch.segstore.shell.tables.parts import TableParts

SCAN_COUNT_MAX = 10_000
ANSWER_SIZE_BYTES_MAX = 8 * 1024 * 1024
ROUNDS_MAX = 16
"""How often a look-up may find that the tail has dropped updates meanwhile."""
UNDER_WAY_KEYS_MAX = 100_000
"""Keys of all reads that wait for the index."""
WAITING_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of all updates that wait for the index."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table segment; they include every update before `length`."""

    segment_number: int
    length: int
    rows: EntryColumns
    more: bool = False


class _Asked:
    """A look-up that waits for the next call of the index."""

    __slots__ = ("future", "keys", "life", "number")

    def __init__(self, number: int, life: int, keys: Sequence[bytes]) -> None:
        self.number = number
        self.life = life
        self.keys = keys
        self.future: asyncio.Future[list[TailEntry | None]] = (
            asyncio.get_running_loop().create_future()
        )


class Tables:
    """The table segments of one container. `run` serves until cancelled."""

    def __init__(
        self, container: Container, indexer: Indexer, parts: TableParts, clock: Clock
    ) -> None:
        self._container = container
        self._indexer = indexer
        self._parts = parts
        self._clock = clock
        self._asked: list[_Asked] = []
        self._wanted = asyncio.Event()
        self._under_way = 0
        self._waiting_size = 0
        self._ended = False

    # --- updates ------------------------------------------------------------------------------

    def check_room(self, segment: str) -> None:
        """Raises Overloaded if the index is so far behind that the tail is too large."""
        known = self._container.pending.segments.get(segment)
        tail = self._container.pending.tables.get(getattr(known, "number", 0))
        limit = self._parts.limits.unindexed_max
        if tail is not None and tail.size > limit:
            raise Overloaded(
                "the index of the table is too far behind", behind=tail.size, limit=limit
            )

    @contextmanager
    def waiting(self, size: int) -> Iterator[None]:
        """Count an update of `size` bytes as waiting within the block. Raises Overloaded."""
        if self._waiting_size + size > WAITING_SIZE_BYTES_MAX:
            raise Overloaded(
                "too many updates wait for the index of their table", limit=WAITING_SIZE_BYTES_MAX
            )
        self._waiting_size += size
        try:
            yield
        finally:
            self._waiting_size -= size

    def find_now(self, place: InIndex) -> Findings | None:
        """What an update's decision depends on, if memory has all of it."""
        tail = self._container.applied.state.tables.get(place.number)
        if tail is None or place.new_since < place.kept_from:
            return None
        keys = list(place.keys)
        entries = self._parts.hot.look(tail, keys)
        if len(entries) < len(keys):
            return None
        return Findings(place.number, tail.kept_from, 0, place.new_since, entries, {})

    async def find(self, segment: str, place: InIndex) -> Findings:
        """As `find_now`, from the index. Raises Unavailable, and errors of the disk."""

        def read(index: TableIndex) -> Remembered:
            return index.requests(place.number, place.client_id)

        with self._container.residency.pinned(segment):
            ready = await self._indexer.ready(place.number, place.kept_from)
            with self._indexer.looking(ready):
                remembered = await self._indexer.read(ready.life, read)
                keys = sorted(place.keys)
                entries = await self._entries(place.number, ready.life, keys)
            found = dict(zip(keys, entries, strict=True))
            tail = self._container.applied.state.tables.get(place.number)
            if tail is not None and tail.kept_from <= ready.state.indexed:
                for key, entry in found.items():
                    self._parts.hot.keep(tail, key, entry)
        return Findings(
            place.number,
            ready.state.indexed,
            # An index of a log without blocks has no row that says where it was complete from.
            max(remembered.complete_from, ready.state.complete_from),
            place.new_since,
            found,
            remembered.requests,
        )

    # --- reads --------------------------------------------------------------------------------

    def get_now(self, segment: str, keys: Sequence[bytes], size_max: int) -> Rows | None:
        """The rows of the keys in their order, without keys; None if the index must be asked.

        Raises SegmentNotFound, InvalidRequest, Unavailable.
        """
        known = self._known(segment)
        found = self._in_memory(known.number, keys)
        return None if len(found) < len(set(keys)) else self._rows(known, keys, found, size_max)

    async def get(self, segment: str, keys: Sequence[bytes], size_max: int) -> Rows:
        """As `get_now`, from the index where necessary. Also raises errors of the disk."""
        if self._under_way + len(keys) > UNDER_WAY_KEYS_MAX:
            raise Overloaded("too many look-ups wait for the index", limit=UNDER_WAY_KEYS_MAX)
        self._under_way += len(keys)
        try:
            with self._container.residency.pinned(segment):
                known, found = await self._find(segment, keys, keep=True)
            return self._rows(known, keys, found, size_max)
        finally:
            self._under_way -= len(keys)

    async def latest(self, segment: str, keys: Sequence[bytes]) -> dict[bytes, TailEntry | None]:
        """The latest durable entry of each key, expired ones included. Raises as `get`."""
        with self._container.residency.pinned(segment):
            return (await self._find(segment, keys, keep=False))[1]

    async def _find(
        self, segment: str, keys: Sequence[bytes], *, keep: bool
    ) -> tuple[SegmentState, dict[bytes, TailEntry | None]]:
        """The segment, and the entry of each key in it; `keep` those that are read."""
        tails = self._container.applied.state.tables
        for _ in range(ROUNDS_MAX):
            number = self._known(segment).number
            ready = await self._indexer.ready(number, tails[number].kept_from)
            if self._known(segment).number != number:
                continue
            found = self._in_memory(number, keys)
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            with self._indexer.looking(ready):
                entries = await self._entries(number, ready.life, missing)
            known = self._known(segment)
            if known.number != number or ready.state.indexed < tails[number].kept_from:
                continue
            tail = tails[number]
            for key, entry in zip(missing, entries, strict=True):
                found[key] = entry
                if keep:
                    self._parts.hot.keep(tail, key, entry)
            # The tail still has all updates since `found` was begun: with them, the entries of all
            # keys are those of one moment.
            found |= tail.latest_of(keys)
            return known, found
        raise Unavailable("the table changed faster than its entries could be read")

    async def scan(self, request: ScanEntries) -> Rows:
        """A page of entries. Raises SegmentNotFound, InvalidRequest, Unavailable, and errors of
        the disk."""
        if request.count_max < 1 or request.size_max < 1:
            raise InvalidRequest(
                "a page has at least one row",
                count_max=request.count_max, size_max=request.size_max,
            )  # fmt: skip
        with self._container.residency.pinned(request.segment):
            for _ in range(ROUNDS_MAX):
                known, ready = await self._ready_in_whole(request.segment)
                page = await self._page(request, ready, self._now_ms(known))
                present = self._known(request.segment)
                if present.number != known.number:
                    raise Unavailable("the table segment was replaced during the scan")
                rows = _live_rows(page, self._now_ms(present))
                if rows.keys or not page.more:
                    return Rows(known.number, ready.state.indexed, rows, page.more)
        raise Unavailable("entries expired faster than they could be read")

    def _now_ms(self, known: SegmentState) -> int:
        return time_in(known, self._clock.now_ms())

    async def _page(self, request: ScanEntries, ready: Ready, now_ms: int) -> IndexPage:
        count_max = min(request.count_max, SCAN_COUNT_MAX)
        size_max = min(request.size_max, ANSWER_SIZE_BYTES_MAX)

        def read(index: TableIndex) -> IndexPage:
            return index.scan(
                ready.state.number, request.start, request.end, count_max, size_max,
                values=request.values, now_ms=now_ms,
            )  # fmt: skip

        return await self._indexer.read(ready.life, read)

    async def _ready_in_whole(self, segment: str) -> tuple[SegmentState, Ready]:
        """The segment, and the index when it has all its entries, or later.

        An index that is built anew lacks the entries that compaction has moved behind it. It was
        begun where the segment starts; so it lacks none if the segment did so before the wait.
        """
        for _ in range(ROUNDS_MAX):
            known = self._known(segment)
            ready = await self._indexer.ready(known.number, known.length)
            if ready.state.complete_from <= known.start:
                return known, ready
        raise Unavailable("the table's index is built anew again and again")

    async def describe(self, segment: str) -> TableDescribed:
        """Raises SegmentNotFound, InvalidRequest, Unavailable, and errors of the disk."""
        with self._container.residency.pinned(segment):
            known = self._known(segment)
            state, _ = await self._indexer.ready(known.number, 0)
        return _described(self._known(segment), state)

    # --- together -----------------------------------------------------------------------------

    def _known(self, segment: str) -> SegmentState:
        self._container.check_serving()
        known = self._container.applied.state.known(segment)
        if not isinstance(known, SegmentState):
            raise gone(known, segment)
        if known.kind is not SegmentKind.TABLE:
            raise InvalidRequest("the segment is not a table segment", segment=segment)
        return known

    def _in_memory(self, number: int, keys: Sequence[bytes]) -> dict[bytes, TailEntry | None]:
        """The entries that are in memory, or certainly absent."""
        tail = self._container.applied.state.tables[number]
        if tail.kept_from == 0:
            return {key: tail.latest(key) for key in keys}
        return self._parts.hot.look(tail, keys) | tail.latest_of(keys)

    def _rows(
        self,
        known: SegmentState,
        keys: Sequence[bytes],
        found: Mapping[bytes, TailEntry | None],
        size_max: int,
    ) -> Rows:
        """The rows of the first keys, at least one, and more until they have `size_max` bytes."""
        now_ms = time_in(known, self._clock.now_ms())
        limit = min(size_max, ANSWER_SIZE_BYTES_MAX)
        columns = _columns([found[key] for key in keys], limit)
        if columns is not None:
            return Rows(known.number, known.length, columns)
        rows: list[Row] = []
        size = 0
        for key in keys:
            row = _row(found[key], now_ms)
            size += len(row.value)
            if rows and size > limit:
                return Rows(known.number, known.length, in_columns(rows), more=True)
            rows.append(row)
        return Rows(known.number, known.length, in_columns(rows))

    # --- the index ----------------------------------------------------------------------------

    async def _entries(
        self, number: int, life: int, keys: Collection[bytes]
    ) -> list[TailEntry | None]:
        if not keys:
            return []
        if self._ended:
            raise Unavailable("the container ended")
        asked = _Asked(number, life, list(keys))
        self._asked.append(asked)
        self._wanted.set()
        return await asked.future

    async def run(self) -> None:
        """Read the index for the look-ups that wait, all of them at once, until cancelled."""
        asked: list[_Asked] = []
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                asked, self._asked = self._asked, []
                for life in sorted({each.life for each in asked}):
                    await self._answer(life, [each for each in asked if each.life == life])
        finally:
            self._ended = True
            _fail((*asked, *self._asked), Unavailable("the container ended"))

    async def _answer(self, life: int, asked: Sequence[_Asked]) -> None:
        def read(index: TableIndex) -> list[list[TailEntry | None]]:
            return [index.get_many(each.number, each.keys) for each in asked]

        try:
            found = await self._indexer.read(life, read)
        except (AnabranchError, OSError) as error:
            _fail(asked, error)
            return
        for each, entries in zip(asked, found, strict=True):
            if not each.future.done():
                each.future.set_result(entries)


def _live_rows(page: IndexPage, now_ms: int) -> EntryColumns:
    """The rows of the page without those that have expired since it was read."""
    until = page.rows.expires_ms
    if not any(until):
        return page.rows
    return page.rows.at([at for at, each in enumerate(until) if not 0 < each <= now_ms])


def _fail(asked: Iterable[_Asked], error: AnabranchError | OSError) -> None:
    for each in asked:
        if not each.future.done():
            each.future.set_exception(error)


def _columns(entries: Sequence[TailEntry | None], size_max: int) -> EntryColumns | None:
    """The rows of the entries, without keys, if all of them exist, never expire and fit."""
    present = [entry for entry in entries if entry is not None]
    if not present or len(present) < len(entries):
        return None
    versions, expires_ms, values = zip(*present, strict=True)
    if any(expires_ms) or None in values or sum(map(len, values)) > size_max:
        return None
    return EntryColumns([b""] * len(entries), versions, expires_ms, values)


def _row(entry: TailEntry | None, now_ms: int) -> Row:
    if entry is None or not entry.lives(now_ms):
        return NO_ROW
    return Row(b"", entry.version, entry.expires_ms, entry.value or b"")


def _described(known: SegmentState, state: IndexState) -> TableDescribed:
    return TableDescribed(
        segment_number=known.number,
        start=known.start,
        length=known.length,
        indexed=state.indexed,
        entries=state.entries,
        live_size=state.live_size,
        sealed=known.sealed,
    )
