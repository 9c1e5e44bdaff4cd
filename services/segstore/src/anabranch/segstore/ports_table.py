"""The port of the index of table segments, with its conformance suite.

The index of a container maps (segment number, table key) to the latest version, value and expiry.
It lives in a local directory of the store and may always be lost: the log has everything. A table's
rows and the offset up to which they include the log change in one atomic write, so after a crash
the index is as it was at some earlier offset.

All calls block, and are made from worker threads. A call may run beside others, but a table has
one writer at a time. Calls raise IndexDamaged if the stored bytes are not what was written; the
caller then drops the index and builds it anew. Writes also raise NoRoom (the disk is full; nothing
changed) and Overloaded (the disk is too slow; nothing changed). After `close`, calls raise
Unavailable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from anabranch.common.wire.table_columns import EntryColumns
from anabranch.segstore.domain.table.tail import Requests, TailEntry


@dataclass(frozen=True, slots=True)
class IndexState:
    """The indexed part of the segment `number`.

    The index has everything before `indexed`. `complete_from`: where the log began when the index
    was last built from nothing; requests from before are unknown. `anchor` is the offset of the
    last indexed block and `anchor_crc` the checksum in its header: they show that the index and the
    log have the same history. `entries` and `live_size` (bytes of keys and values) count the rows.
    """

    number: int
    indexed: int = 0
    complete_from: int = 0
    anchor: int = 0
    anchor_crc: int = 0
    entries: int = 0
    live_size: int = 0


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Rows of a scan, ascending by key; `more`: the range has further ones."""

    rows: EntryColumns
    more: bool


class Remembered(NamedTuple):
    """The requests of a client that the index remembers.

    They include the client's last `REQUESTS_REMEMBERED` requests, as far as they were performed at
    `complete_from` or behind it. The index forgets the clients that were silent longest if a table
    has too many of them, so this offset may be higher than that of the table.
    """

    requests: Requests
    complete_from: int


class TableIndex(Protocol):
    """The index of one container."""

    def state(self, number: int) -> IndexState | None:
        """The indexed part of a table segment; None: nothing is indexed."""
        ...

    def write(
        self,
        before: IndexState,
        indexed: int,
        anchor: tuple[int, int],
        entries: EntryColumns,
        requests: Mapping[bytes, Requests],
    ) -> IndexState:
        """Add the updates between `before.indexed` and `indexed`, one for each key, atomically;
        return the new state.

        `before` is the state at present; for a table without one, a state without entries. An
        entry without a value removes the row of its key. An entry whose version is not above that
        of its row changes nothing. `requests` add to the remembered ones of their clients, of which
        the last `REQUESTS_REMEMBERED` stay. One call holds everything in memory several times, so
        callers write a few thousand entries or a few MiB at a time.
        """
        ...

    def get_many(self, number: int, keys: Sequence[bytes]) -> list[TailEntry | None]:
        """The row of each key, in the order of the keys."""
        ...

    def requests(self, number: int, client_id: bytes) -> Remembered:
        """The remembered requests of a client."""
        ...

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
        """The rows with keys in [start, end), as `ScanEntries` bounds them; from one snapshot.

        It leaves out rows that have expired at `now_ms`. Without `values`, the values are empty.
        """
        ...

    def remove_expired(self, before: IndexState, keys: Mapping[bytes, int]) -> IndexState:
        """Remove the rows of these keys that still have these versions."""
        ...

    def clear(self, number: int) -> None:
        """Forget everything about a table segment."""
        ...

    def flush(self) -> None:
        """Make the present state survive a crash. A full memory does so too, and `close`."""
        ...

    def close(self) -> None:
        """Flush and end, after the calls that run at the moment."""
        ...


class TableIndexes(Protocol):
    """The indexes of a store's containers, each in a directory of its own. All calls block."""

    def open(self, directory: Path) -> TableIndex:
        """The index in this directory, which is made if it is missing.

        Raises IndexDamaged also for a directory that another release wrote or that lacks files;
        NoRoom; DirectoryInUse.
        """
        ...

    def destroy(self, directory: Path) -> None:
        """Remove the directory of an index that is not open, whatever is in it, or nothing."""
        ...
