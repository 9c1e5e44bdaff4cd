"""Keys as requests name them, and the keys of an open table. Pure.

A request names a primary and perhaps a secondary key, each of any bytes. A table without secondary
keys takes the primary key alone; any other table takes the pair, and a request without a secondary
key means the empty one.
"""

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.client import Entry
from anabranch.common.errors import InvalidKey

StoredKey = bytes | tuple[bytes, bytes]
"""A key as the client takes it for tables without serializers."""
StoredEntry = Entry[StoredKey, bytes]
KeyedEntry = Entry[StoredKey, bytes] | Entry[StoredKey, None]
"""An entry, perhaps read without its value."""


class EntryKey(NamedTuple):
    """A key in a request. `secondary` None: the request names none."""

    primary: bytes
    secondary: bytes | None = None

    def of_table(self, *, has_pairs: bool) -> StoredKey:
        """The key of a table with or without secondary keys. Raises InvalidKey."""
        if has_pairs:
            return self.primary, self.secondary or b""
        if self.secondary is not None:
            raise InvalidKey(
                "the table has no secondary keys",
                remedy="write a slash within a key as %2F, or send the key alone",
            )
        return self.primary


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The bounds of a scan; None leaves one out. Beside `primary` they bound secondary keys."""

    start: bytes | None = None
    end: bytes | None = None
    prefix: bytes | None = None
    primary: bytes | None = None


def key_after(key: StoredKey, entries: EntryRange) -> StoredKey:
    """The lowest bound above `key` in a scan of the range: a pair, or a part of one."""
    if not isinstance(key, tuple):
        return key + b"\0"
    primary, secondary = key
    return secondary + b"\0" if entries.primary is not None else (primary, secondary + b"\0")
