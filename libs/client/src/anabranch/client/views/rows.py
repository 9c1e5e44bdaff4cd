"""The rows that a view remembers of one partition, with their versions, bounded in size.

A remembered row may be out of date, if another process has changed it since. An update that relies
on it is then refused, because it is conditional on the version, and the row is read again.
"""

from typing import NamedTuple

OVERHEAD_BYTES = 250
"""About the memory that a row takes besides its bytes."""


class Row(NamedTuple):
    """A row: its version, or ABSENT, and its value as it is stored; None if it is absent."""

    version: int
    value: bytes | None


class Rows:
    """Rows by table key, at most about `size_max` bytes; those that were used last stay."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._rows: dict[bytes, Row] = {}
        """The least recently used one first."""

    def get(self, key: bytes) -> Row | None:
        """The remembered row; None: read it."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._rows[key] = row
        return row

    def put(self, key: bytes, row: Row) -> None:
        """Remember the row in place of an older one."""
        self.drop(key)
        self._rows[key] = row
        self._size += _size(key, row)
        while self._size > self._size_max:
            self.drop(next(iter(self._rows)))

    def drop(self, key: bytes) -> None:
        """Forget the row if it is remembered."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._size -= _size(key, row)

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._size = 0


def _size(key: bytes, row: Row) -> int:
    return len(key) + len(row.value or b"") + OVERHEAD_BYTES
