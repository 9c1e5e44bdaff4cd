"""The table segments of one container, as its doors use them: look-ups, scans, descriptions.

    key ──► tail of the durable updates ──► entries that were read before ──► index

Look-ups wait until the index has what the tail has dropped. Those that arrive while the index is
being read go into one call of it. If the tail drops updates during a look-up, the look-up checks
whether its finding includes them, and otherwise repeats.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.common.errors import AnabranchError, InvalidRequest, Overloaded, Unavailable
from anabranch.common.model.names import SegmentKind
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import ScanEntries, TableDescribed
from anabranch.common.wire.table import NO_ROW, Row
from anabranch.segstore.domain.container.circumstances import InIndex
from anabranch.segstore.domain.container.decide import gone
from anabranch.segstore.domain.table.tail import Findings, TailEntry
from anabranch.segstore.ports_table import IndexPage, IndexState, Remembered, TableIndex
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.tables.indexer import Indexer
from anabranch.segstore.shell.tables.parts import TableParts

GET_KEYS_MAX = 10_000
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
    rows: Sequence[Row]
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

    # --- updates ------------------------------------------------------------------------------

    def check_room(self, segment: str) -> None:
        """Raises Overloaded if the index is too far behind the segment."""
        known = self._container.pending.segments.get(segment)
        if not isinstance(known, SegmentState):
            return
        behind, limit = self._indexer.unindexed(known.number), self._parts.limits.unindexed_max
        if behind > limit:
            raise Overloaded("the index of the table is too far behind", behind=behind, limit=limit)

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

    async def find(self, segment: str, place: InIndex) -> Findings:
        """What an update's decision depends on. Raises Unavailable, and errors of the disk."""
        with self._container.residency.pinned(segment):
            state, life = await self._indexer.ready(place.number, place.kept_from)

            def read(index: TableIndex) -> Remembered:
                return index.requests(place.number, place.client_id)

            remembered = await self._indexer.read(life, read)
            entries = await self._entries(place.number, life, sorted(place.keys))
        return Findings(
            place.number,
            state.indexed,
            remembered.complete_from,
            dict(zip(sorted(place.keys), entries, strict=True)),
            remembered.requests,
        )

    # --- reads --------------------------------------------------------------------------------

    def get_now(self, segment: str, keys: Sequence[bytes]) -> Rows | None:
        """The rows of the keys in their order, without keys; None if the index must be asked.

        Raises SegmentNotFound, InvalidRequest, Unavailable.
        """
        known = self._known(segment)
        found = self._in_memory(known.number, keys)
        return None if len(found) < len(set(keys)) else self._rows(known, keys, found)

    async def get(self, segment: str, keys: Sequence[bytes]) -> Rows:
        """As `get_now`, from the index where necessary. Also raises errors of the disk."""
        if self._under_way + len(keys) > UNDER_WAY_KEYS_MAX:
            raise Overloaded("too many look-ups wait for the index", limit=UNDER_WAY_KEYS_MAX)
        self._under_way += len(keys)
        try:
            with self._container.residency.pinned(segment):
                known, found = await self._find(segment, keys, keep=True)
            return self._rows(known, keys, found)
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
        for _ in range(ROUNDS_MAX):
            known = self._known(segment)
            number = known.number
            found = self._in_memory(number, keys)
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            if not missing:
                return known, found
            kept_from = self._container.applied.state.tables[number].kept_from
            state, life = await self._indexer.ready(number, kept_from)
            entries = await self._entries(number, life, missing)
            known = self._known(segment)
            tail = self._container.applied.state.tables.get(number)
            if tail is None or known.number != number or state.indexed < tail.kept_from:
                continue
            for key, entry in zip(missing, entries, strict=True):
                found[key] = entry
                if keep:
                    self._parts.hot.keep(tail, key, entry)
            # Updates that became durable meanwhile count for all keys, as in one moment.
            found |= {key: tail.entries[key] for key in keys if key in tail.entries}
            return known, found
        raise Unavailable("the table changed faster than its entries could be read")

    async def scan(self, request: ScanEntries) -> Rows:
        """A page of entries. Raises SegmentNotFound, InvalidRequest, Unavailable, and errors of
        the disk."""
        if not (0 < request.count_max <= SCAN_COUNT_MAX and request.size_max > 0):
            raise InvalidRequest("a page has 1 to 10,000 rows", count_max=request.count_max)
        size_max = min(request.size_max, ANSWER_SIZE_BYTES_MAX)
        with self._container.residency.pinned(request.segment):
            known = self._known(request.segment)
            state, life = await self._indexer.ready(known.number, known.length)
            start = request.start
            while True:
                page = await self._page(known.number, life, request, start, size_max)
                now_ms = self._clock.now_ms()
                rows = [
                    Row(key, entry.version, entry.expires_ms, entry.value or b"")
                    for key, entry in page.rows
                    if entry.lives(now_ms)
                ]
                if rows or not page.more:
                    return Rows(known.number, state.indexed, rows, page.more)
                start = page.rows[-1][0] + b"\0"

    async def _page(
        self, number: int, life: int, request: ScanEntries, start: bytes, size_max: int
    ) -> IndexPage:
        def read(index: TableIndex) -> IndexPage:
            return index.scan(
                number, start, request.end, request.count_max, size_max, values=request.values
            )

        return await self._indexer.read(life, read)

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
        found: dict[bytes, TailEntry | None] = {}
        for key in keys:
            entry = tail.entries.get(key)
            if entry is not None or tail.kept_from == 0:
                found[key] = entry
            elif kept := self._parts.hot.look(tail, key):
                found[key] = kept[0]
        return found

    def _rows(
        self, known: SegmentState, keys: Sequence[bytes], found: Mapping[bytes, TailEntry | None]
    ) -> Rows:
        """The rows of the first keys, until they have `ANSWER_SIZE_BYTES_MAX`."""
        now_ms = self._clock.now_ms()
        rows: list[Row] = []
        size = 0
        for key in keys:
            row = _row(found[key], now_ms)
            size += len(row.value)
            if rows and size > ANSWER_SIZE_BYTES_MAX:
                return Rows(known.number, known.length, rows, more=True)
            rows.append(row)
        return Rows(known.number, known.length, rows)

    # --- the index ----------------------------------------------------------------------------

    async def _entries(
        self, number: int, life: int, keys: Collection[bytes]
    ) -> list[TailEntry | None]:
        if not keys:
            return []
        asked = _Asked(number, life, list(keys))
        self._asked.append(asked)
        self._wanted.set()
        return await asked.future

    async def run(self) -> None:
        """Read the index for the look-ups that wait, all of them at once, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                asked, self._asked = self._asked, []
                for life in {each.life for each in asked}:
                    await self._answer(life, [each for each in asked if each.life == life])
        finally:
            for each in self._asked:
                each.future.cancel()

    async def _answer(self, life: int, asked: Sequence[_Asked]) -> None:
        def read(index: TableIndex) -> list[list[TailEntry | None]]:
            return [index.get_many(each.number, each.keys) for each in asked]

        try:
            found = await self._indexer.read(life, read)
        except (AnabranchError, OSError) as error:
            for each in asked:
                if not each.future.done():
                    each.future.set_exception(error)
            return
        for each, entries in zip(asked, found, strict=True):
            if not each.future.done():
                each.future.set_result(entries)


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
