"""The port `TableIndex` over any sorted map of bytes with atomic writes.

    write           state, client rows, old rows of the keys → new rows and counts, in one batch
                    too many clients → in the same batch, the table forgets those silent longest
    get, scan       rows → entries; each checksum is verified

An index holds no state besides the map, so calls may run side by side. They work in slices, because
the map holds the interpreter's lock while it copies bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from anabranch.common.errors import IndexDamaged
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


ROWS_BETWEEN_PAUSES = 1024
"""Of a scan, which takes about a millisecond for them and lets other threads run in between."""
_OVERHEAD = KEY_HEAD_SIZE_BYTES + ENTRY_SIZE_BYTES
"""Bytes of a row and its key that are not bytes of the table key or the value."""


class SortedRows(Protocol):
    """A map of bytes, sorted by key, whose writes are atomic. It always has `LAST_KEY`."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def iterate(self, start: bytes) -> AbstractContextManager[Iterable[tuple[bytes, bytes]]]:
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
        entries: Mapping[bytes, TailEntry],
        requests: Mapping[bytes, Requests],
    ) -> IndexState:
        number = before.number
        clients = {head(number, CLIENT) + client: told for client, told in requests.items()}
        table, *present = self._rows.get_many([head(number, STATE), *clients])
        row = _table_row(before, table)
        batch = _Batch()
        first = head(number, ENTRY)
        values = iter(entries.values())
        for keys, rows in self._slices([first + key for key in entries]):
            batch.change(keys, list(islice(values, len(keys))), _decoded(keys, rows))
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
            found = _decoded(part, rows).items()
            batch.delete({key: old for key, old in found if old.version == versions[key]})
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

    def _slices(self, keys: list[bytes]) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """The keys with their rows, a slice at a time."""
        at, count = 0, SLICE_ROWS_MAX
        while at < len(keys):
            part = keys[at : at + count]
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
            for key, stored in rows:
                if key >= end:
                    break
                if key not in spared:
                    silent.append((decode_client(key, stored).last, key))
            else:
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
        seen = 0
        with self._rows.iterate(first + start) as rows:
            for key, row in rows:
                if key >= behind:
                    return page.ended(more=False)
                if page.is_full:
                    return page.ended(more=True)
                page.add(key, row)
                seen += 1
                if seen % ROWS_BETWEEN_PAUSES == 0:
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

    def change(
        self, keys: list[bytes], entries: list[TailEntry], olds: Mapping[bytes, TailEntry]
    ) -> None:
        """Put or remove the entries of keys; `olds` are those of the keys that have rows."""
        if olds or None in [value for _, _, value in entries]:
            pairs = zip(keys, entries, strict=True)
            newer = {key: entry for key, entry in pairs if _is_newer(entry, olds.get(key))}
            self.delete({key: olds[key] for key, entry in newer.items()
                         if key in olds and entry.value is None})  # fmt: skip
            puts = {key: entry for key, entry in newer.items() if entry.value is not None}
            self._uncount({key: olds[key] for key in puts if key in olds})
            keys, entries = list(puts), list(puts.values())
        if keys:
            rows = encode_entries(keys, entries)
            self.puts.extend(zip(keys, rows, strict=True))
            self.entries += len(keys)
            self.live_size += sum(map(len, keys)) + sum(map(len, rows)) - len(keys) * _OVERHEAD

    def delete(self, olds: Mapping[bytes, TailEntry]) -> None:
        """Delete the rows of these keys."""
        self.deletes.extend(olds)
        self._uncount(olds)

    def _uncount(self, olds: Mapping[bytes, TailEntry]) -> None:
        self.entries -= len(olds)
        self.live_size -= sum(map(len, olds)) - len(olds) * KEY_HEAD_SIZE_BYTES
        self.live_size -= sum(len(value or b"") for _, _, value in olds.values())


class _Page:
    """The rows of a scan; it verifies them, and drops expired rows and unwanted values, a slice at
    a time. Until then `count` and `size` count the expired rows of the slice too."""

    __slots__ = (
        "_count_max", "_found", "_keys", "_now_ms", "_rows", "_size", "_size_max", "_values",
        "count", "size",
    )  # fmt: skip

    def __init__(self, count_max: int, size_max: int, *, values: bool, now_ms: int) -> None:
        self.count = 0
        self.size = 0
        self._count_max = count_max
        self._size_max = size_max
        self._values = values
        self._now_ms = now_ms
        self._found: list[tuple[bytes, TailEntry]] = []
        self._keys: list[bytes] = []
        self._rows: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether the page has all rows that its bounds permit, and at least one."""
        if not self._reaches_bounds:
            return False
        self._take()
        return self._reaches_bounds

    @property
    def _reaches_bounds(self) -> bool:
        return self.count > 0 and (self.count >= self._count_max or self.size >= self._size_max)

    def add(self, key: bytes, row: bytes) -> None:
        self._keys.append(key)
        self._rows.append(row)
        self._size += len(row)
        self.count += 1
        self.size += self._size_of(key, row)
        if len(self._rows) == SLICE_ROWS_MAX or self._size > SLICE_SIZE_BYTES:
            self._take()

    def _size_of(self, key: bytes, row: bytes) -> int:
        return len(key) + len(row) if self._values else len(key)

    def ended(self, *, more: bool) -> IndexPage:
        self._take()
        return IndexPage(self._found, more)

    def _take(self) -> None:
        entries = decode_entries(self._keys, self._rows)
        now_ms = self._now_ms
        gone = [at for at, entry in enumerate(entries) if 0 < entry.expires_ms <= now_ms]
        for at in reversed(gone):
            self.count -= 1
            self.size -= self._size_of(self._keys[at], self._rows[at])
            del self._keys[at], entries[at]
        if not self._values:
            entries = [entry._replace(value=b"") for entry in entries]
        names = [key[KEY_HEAD_SIZE_BYTES:] for key in self._keys]
        self._found.extend(zip(names, entries, strict=True))
        self._keys, self._rows, self._size = [], [], 0


def _table_row(before: IndexState, row: bytes | None) -> TableRow:
    """The table's row, or a new one; it has the state that the caller knows."""
    if row is None:
        assert before.entries == before.live_size == 0, "a table without a row has no entries"
        return TableRow(before)
    found = decode_table(before.number, row)
    assert found.state == before, "a table has one writer, which knows its state"
    return found


def _decoded(keys: list[bytes], rows: list[bytes | None]) -> dict[bytes, TailEntry]:
    """The entries of the keys that have rows. Raises IndexDamaged."""
    if not any(rows):
        return {}
    present = [row for row in rows if row is not None]
    if len(present) < len(rows):
        keys = [key for key, row in zip(keys, rows, strict=True) if row is not None]
    return dict(zip(keys, decode_entries(keys, present), strict=True))


def _is_newer(entry: TailEntry, old: TailEntry | None) -> bool:
    return old is None or entry.version > old.version


def _ended_early(number: int) -> IndexDamaged:
    return IndexDamaged("an iteration over a table index ended early", segment=number)
