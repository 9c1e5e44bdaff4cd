"""The port of the index of table segments, with its conformance suite.

The index of a container maps (segment number, table key) to the latest version, value and expiry.
It lives in a local directory of the store and may always be lost: the log has everything. A table's
rows and the offset up to which they include the log change in one atomic write, so after a crash
the index is as it was at some earlier offset.

All calls block, and are made from worker threads; a call may run beside others. They raise
IndexDamaged if the stored bytes are not what was written; the caller then drops the index and
builds it anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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

    rows: Sequence[tuple[bytes, TailEntry]]
    more: bool


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
        entries: Mapping[bytes, TailEntry],
        requests: Mapping[bytes, Requests],
    ) -> IndexState:
        """Add the updates between `before.indexed` and `indexed`, atomically; return the new state.

        An entry without a value removes the row of its key. An entry whose version is lower than
        that of its row changes nothing. `requests` add to the remembered ones of their clients, of
        which the last `REQUESTS_REMEMBERED` stay.
        """
        ...

    def get_many(self, number: int, keys: Sequence[bytes]) -> list[TailEntry | None]:
        """The row of each key, in the order of the keys."""
        ...

    def requests(self, number: int, client_id: bytes) -> Requests:
        """The remembered requests of a client."""
        ...

    def scan(
        self, number: int, start: bytes, end: bytes, count_max: int, size_max: int, *, values: bool
    ) -> IndexPage:
        """The rows with keys in [start, end), as `ScanEntries` bounds them; from one snapshot.

        Without `values`, the values are empty.
        """
        ...

    def remove_expired(self, before: IndexState, keys: Mapping[bytes, int]) -> IndexState:
        """Remove the rows of these keys that still have these versions."""
        ...

    def clear(self, number: int) -> None:
        """Forget everything about a table segment."""
        ...

    def close(self) -> None: ...


class TableIndexes(Protocol):
    """The indexes of a store's containers. Its calls block, like those of `TableIndex`."""

    def open(self, container: int) -> TableIndex:
        """Open the container's index, or create it. At most one is open at a time. Raises
        IndexDamaged, DiskFailed."""
        ...

    def destroy(self, container: int) -> None:
        """Delete the container's index, which is not open."""
        ...
