"""The port `TableIndex` over any sorted map of bytes with atomic writes.

    write           state, client rows, old rows of the keys → new rows and counts, in one batch
                    too many clients → in the same batch, the table forgets those silent longest
    get, scan       rows → entries; each checksum is verified

An index holds no state besides the map, so calls may run side by side. They work in slices, because
the map holds the interpreter's lock while it copies bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress
from operator import add
from typing import Protocol, cast

from anabranch.common.errors import IndexDamaged
from anabranch.common.wire.table_columns import EntryColumns
from anabranch.segstore.adapters.table_index.rows import (
    CLIENT,
    ENTRY,
    ENTRY_SIZE_BYTES,
    KEY_HEAD_SIZE_BYTES,
    STATE,
    ClientRow,
    TableRow,
    decode_client,
    decode_entries,
    decode_table,
    encode_client,
    encode_entries,
    encode_table,
    end_of,
    head,
)
from anabranch.segstore.domain.table.tail import Requests, TailEntry
from anabranch.segstore.ports_table import IndexPage, IndexState, Remembered

SLICE_ROWS_MAX = 256
SLICE_SIZE_BYTES = 1024 * 1024
"""Rows that are taken at once. A write reads old rows without knowing their sizes: after a larger
slice it takes a shorter one."""

FIRST_SLICE_ROWS = 16
"""Of a scan, whose rows may be large."""
SLICES_BETWEEN_PAUSES = 4
"""Of a scan, which takes about a millisecond for them and lets other threads run in between."""
_OVERHEAD = KEY_HEAD_SIZE_BYTES + ENTRY_SIZE_BYTES
"""Bytes of a row and its key that are not bytes of the table key or the value."""


class Iteration(Protocol):
    """An iteration over a `SortedRows`."""

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """The next keys with their rows, at most `count`; none behind the last key."""
        ...


class SortedRows(Protocol):
    """A map of bytes, sorted by key, whose writes are atomic. It always has `LAST_KEY`."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def iterate(self, start: bytes) -> AbstractContextManager[Iteration]:
        """The keys from `start` on with their rows, ascending, from one snapshot.

        An iteration that ends is damaged: the last key lies behind every range.
        """
        ...

    def pause(self) -> None:
        """Leave the interpreter to other threads for a moment."""
        ...

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class RowIndex:
    """The index of one container. `clients_max`: how many clients a table remembers."""

    def __init__(self, rows: SortedRows, clients_max: int) -> None:
        assert clients_max > 0
        self._rows = rows
        self._clients_max = clients_max

    # --- writes -----------------------------------------------------------------------------------

    def write(
        self,
        before: IndexState,
        indexed: int,
        anchor: tuple[int, int],
        entries: EntryColumns,
        requests: Mapping[bytes, Requests],
    ) -> IndexState:
        number = before.number
        clients = {head(number, CLIENT) + client: told for client, told in requests.items()}
        table, *present = self._rows.get_many([head(number, STATE), *clients])
        row = _table_row(before, table)
        batch = _Batch()
        first = head(number, ENTRY)
        entries = entries._replace(keys=[first + key for key in entries.keys])
        # Versions are offsets in the log, and the rows come from its part before `indexed`.
        are_newer = min(entries.versions, default=0) >= before.indexed
        at = 0
        for keys, rows in self._slices(entries.keys):
            part = entries.between(at, at + len(keys))
            batch.change(*((part, rows) if are_newer else _newer(part, rows)))
            at += len(keys)
        row = self._remember(row, clients, present, batch)
        after = replace(
            batch.counted(before), indexed=indexed, anchor=anchor[0], anchor_crc=anchor[1]
        )
        self._finish(replace(row, state=after), batch)
        return after

    def remove_expired(self, before: IndexState, keys: Mapping[bytes, int]) -> IndexState:
        first = head(before.number, ENTRY)
        versions = {first + key: version for key, version in keys.items()}
        batch = _Batch()
        for part, rows in self._slices(list(versions)):
            olds = _decoded(part, rows)
            same = [key in olds and olds[key].version == versions[key] for key in part]
            batch.delete(list(compress(part, same)), list(compress(rows, same)))
        if not batch.deletes:
            return before
        row = _table_row(before, *self._rows.get_many([head(before.number, STATE)]))
        after = batch.counted(before)
        self._finish(replace(row, state=after), batch)
        return after

    def clear(self, number: int) -> None:
        self._rows.delete_range(head(number, STATE), end_of(number, ENTRY))

    def _finish(self, row: TableRow, batch: "_Batch") -> None:
        state = row.state
        assert state.entries >= 0, "a table has no fewer rows than none"
        assert state.live_size >= 0, "rows have no fewer bytes than none"
        batch.puts.append((head(state.number, STATE), encode_table(row)))
        self._rows.write(batch.puts, batch.deletes)

    def _slices(self, keys: Sequence[bytes]) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """The keys with their rows, a slice at a time."""
        at, count = 0, SLICE_ROWS_MAX
        while at < len(keys):
            part = list(keys[at : at + count])
            rows = self._rows.get_many(part)
            yield part, rows
            at += len(part)
            is_large = sum(map(len, filter(None, rows))) > SLICE_SIZE_BYTES
            count = max(1, count // 4) if is_large else min(SLICE_ROWS_MAX, count * 2)

    # --- clients ----------------------------------------------------------------------------------

    def _remember(
        self,
        row: TableRow,
        clients: Mapping[bytes, Requests],
        present: Sequence[bytes | None],
        batch: "_Batch",
    ) -> TableRow:
        """Add the requests to the clients' `present` rows; forget other clients if need be."""
        complete_from = max(row.state.complete_from, row.forgotten)
        known = row.clients
        for (key, requests), old in zip(clients.items(), present, strict=True):
            if requests:
                known += old is None
                client = ClientRow(complete_from, {}) if old is None else decode_client(key, old)
                batch.puts.append((key, encode_client(key, client.joined(requests))))
        row = replace(row, clients=known)
        return self._forget(row, clients, batch) if known > self._clients_max else row

    def _forget(self, row: TableRow, spared: Mapping[bytes, Requests], batch: "_Batch") -> TableRow:
        """Delete the rows of clients above nine tenths of the limit, those silent longest.

        The table's row keeps the offset up to which the deleted ones may have performed requests.
        """
        number = row.state.number
        silent: list[tuple[int, bytes]] = []
        end = end_of(number, CLIENT)
        with self._rows.iterate(head(number, CLIENT)) as rows:
            key = b""
            while key < end and (found := rows.take(SLICE_ROWS_MAX)):
                for key, stored in found:
                    if key < end and key not in spared:
                        silent.append((decode_client(key, stored).last, key))
            if key < end:
                raise _ended_early(number)
        excess = row.clients - self._clients_max * 9 // 10
        gone = sorted(silent)[:excess]
        batch.deletes += [key for _, key in gone]
        forgotten = max([row.forgotten, *(last + 1 for last, _ in gone)])
        return replace(row, clients=row.clients - len(gone), forgotten=forgotten)

    # --- reads ------------------------------------------------------------------------------------

    def state(self, number: int) -> IndexState | None:
        [row] = self._rows.get_many([head(number, STATE)])
        return None if row is None else decode_table(number, row).state

    def get_many(self, number: int, keys: Sequence[bytes]) -> list[TailEntry | None]:
        first = head(number, ENTRY)
        found: list[TailEntry | None] = []
        for at in range(0, len(keys), SLICE_ROWS_MAX):
            part = [first + key for key in keys[at : at + SLICE_ROWS_MAX]]
            found.extend(map(_decoded(part, self._rows.get_many(part)).get, part))
        return found

    def requests(self, number: int, client_id: bytes) -> Remembered:
        key = head(number, CLIENT) + client_id
        stored, table = self._rows.get_many([key, head(number, STATE)])
        if stored is not None:
            client = decode_client(key, stored)
            return Remembered(client.requests, client.complete_from)
        if table is None:
            return Remembered({}, 0)
        row = decode_table(number, table)
        return Remembered({}, max(row.state.complete_from, row.forgotten))

    def scan(
        self,
        number: int,
        start: bytes,
        end: bytes,
        count_max: int,
        size_max: int,
        *,
        values: bool,
        now_ms: int = 0,
    ) -> IndexPage:
        first = head(number, ENTRY)
        behind = first + end if end else end_of(number, ENTRY)
        page = _Page(count_max, size_max, values=values, now_ms=now_ms)
        slices = 0
        with self._rows.iterate(first + start) as rows:
            while found := rows.take(page.wanted):
                keys, values_of = zip(*found, strict=True)
                count = bisect_left(keys, behind)
                if not page.take(keys[:count], values_of[:count]):
                    return page.ended(more=True)
                if count < len(keys):
                    return page.ended(more=False)
                slices += 1
                if slices % SLICES_BETWEEN_PAUSES == 0:
                    self._rows.pause()
        raise _ended_early(number)

    # --- the whole --------------------------------------------------------------------------------

    def flush(self) -> None:
        self._rows.flush()

    def close(self) -> None:
        self._rows.close()


@dataclass(slots=True)
class _Batch:
    """A write in the making; `entries` and `live_size` are what it adds."""

    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)
    entries: int = 0
    live_size: int = 0

    def counted(self, state: IndexState) -> IndexState:
        return replace(
            state, entries=state.entries + self.entries, live_size=state.live_size + self.live_size
        )

    def change(self, entries: EntryColumns, rows: Sequence[bytes | None]) -> None:
        """Put or remove entries of keys that have these rows at present."""
        self._count(entries.keys, rows, -1)
        if None in entries.values:
            columns = zip(entries.keys, entries.values, rows, strict=True)
            self.deletes += [key for key, value, row in columns if value is None and row]
            kept = [at for at, value in enumerate(entries.values) if value is not None]
            entries = entries.at(kept)
        new = encode_entries(entries)
        self.puts.extend(zip(entries.keys, new, strict=True))
        self._count(entries.keys, new, 1)

    def delete(self, keys: Sequence[bytes], rows: Sequence[bytes | None]) -> None:
        """Delete the rows of these keys."""
        self.deletes += keys
        self._count(keys, rows, -1)

    def _count(self, keys: Sequence[bytes], rows: Sequence[bytes | None], sign: int) -> None:
        """Count the keys that have rows, and their bytes. Raises IndexDamaged."""
        sizes = [len(row) for row in rows if row is not None]
        if not sizes:
            return
        if min(sizes) < ENTRY_SIZE_BYTES:
            raise IndexDamaged("a row of a table index is too short", size=min(sizes))
        named = keys if len(sizes) == len(keys) else compress(keys, rows)
        self.entries += sign * len(sizes)
        self.live_size += sign * (sum(map(len, named)) + sum(sizes) - len(sizes) * _OVERHEAD)


class _Page:
    """The rows of a scan, verified, without expired rows and unwanted values. `wanted`: how many
    rows of the range to take next."""

    __slots__ = ("_columns", "_count_max", "_now_ms", "_size_max", "_values", "wanted")

    def __init__(self, count_max: int, size_max: int, *, values: bool, now_ms: int) -> None:
        self._count_max = max(1, count_max)
        self._size_max = max(1, size_max)
        self._values = values
        self._now_ms = now_ms
        self._columns: tuple[list[bytes], list[int], list[int], list[bytes | None]]
        self._columns = ([], [], [], [])
        self.wanted = FIRST_SLICE_ROWS

    def take(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> bool:
        """Add the rows, as far as the bounds permit; False: they permit no more, and there is
        more."""
        if not keys:
            return True
        if self._is_full:
            return False
        self.wanted = self._next_wanted(rows)
        found = decode_entries(keys, rows)
        if any(found.expires_ms):
            until = enumerate(found.expires_ms)
            found = found.at([at for at, each in until if not 0 < each <= self._now_ms])
        sizes: Iterable[int] = map(len, found.keys)
        if self._values:
            sizes = map(add, sizes, map(len, cast("Sequence[bytes]", found.values)))
        ends = list(accumulate(sizes))
        count = min(bisect_left(ends, self._size_max) + 1, self._count_max, len(ends))
        self._add(found.between(0, count))
        self._count_max -= count
        self._size_max -= ends[count - 1] if count else 0
        return count == len(ends)

    @property
    def _is_full(self) -> bool:
        return bool(self._columns[0]) and (self._count_max <= 0 or self._size_max <= 0)

    def _next_wanted(self, rows: Sequence[bytes]) -> int:
        """Twice as many, unless they are large."""
        larger = min(2 * self.wanted, SLICE_ROWS_MAX)
        return max(1, min(larger, SLICE_SIZE_BYTES // max(map(len, rows))))

    def _add(self, found: EntryColumns) -> None:
        keys, versions, expires_ms, values = self._columns
        keys += [key[KEY_HEAD_SIZE_BYTES:] for key in found.keys]
        versions += found.versions
        expires_ms += found.expires_ms
        values += found.values if self._values else [b""] * len(found.keys)

    def ended(self, *, more: bool) -> IndexPage:
        return IndexPage(EntryColumns._make(self._columns), more)


def _table_row(before: IndexState, row: bytes | None) -> TableRow:
    """The table's row, or a new one; it has the state that the caller knows."""
    if row is None:
        assert before.entries == before.live_size == 0, "a table without a row has no entries"
        return TableRow(before)
    found = decode_table(before.number, row)
    assert found.state == before, "a table has one writer, which knows its state"
    return found


def _decoded(keys: Sequence[bytes], rows: Sequence[bytes | None]) -> dict[bytes, TailEntry]:
    """The entries of the keys that have rows. Raises IndexDamaged."""
    present = [row for row in rows if row is not None]
    if not present:
        return {}
    if len(present) < len(rows):
        keys = [key for key, row in zip(keys, rows, strict=True) if row is not None]
    found = decode_entries(keys, present)
    entries = map(TailEntry, found.versions, found.expires_ms, found.values)
    return dict(zip(keys, entries, strict=True))


def _newer(
    entries: EntryColumns, rows: Sequence[bytes | None]
) -> tuple[EntryColumns, Sequence[bytes | None]]:
    """The entries whose versions are above those of their rows, and these rows."""
    olds = _decoded(entries.keys, rows)
    pairs = enumerate(zip(entries.keys, entries.versions, strict=True))
    kept = [at for at, (key, version) in pairs if key not in olds or version > olds[key].version]
    return entries.at(kept), [rows[at] for at in kept]


def _ended_early(number: int) -> IndexDamaged:
    return IndexDamaged("an iteration over a table index ended early", segment=number)
