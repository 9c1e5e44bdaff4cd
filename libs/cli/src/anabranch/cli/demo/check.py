"""Checks that every row arrived exactly once, unchanged, and in order per key. Pure.

The check keeps 8 bytes of hash per written row, and the last row read per key. It therefore needs a
few megabytes, however large the events are.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from zlib import crc32

import msgspec

_UNSEEN = 0
_SEEN = 1


class RowNumber(msgspec.Struct):
    """The part of an event that a check needs."""

    row: int


def content_hash(event: bytes) -> int:
    """64 bits of BLAKE2b."""
    return int.from_bytes(blake2b(event, digest_size=8).digest(), "little")


@dataclass
class RowSum:
    """Events counted and summed up in any order: `row_sum` is the sum of their CRC32."""

    events: int = 0
    row_sum: int = 0

    def add(self, events: Iterable[bytes]) -> None:
        for event in events:
            self.events += 1
            self.row_sum += crc32(event)


@dataclass
class Written:
    """The written rows: the hash of row i at index i."""

    hashes: "array[int]" = field(default_factory=lambda: array("Q"))
    size_bytes: int = 0
    sum: RowSum = field(default_factory=RowSum)

    def add(self, event: bytes) -> None:
        """Add the next row."""
        self.hashes.append(content_hash(event))
        self.sum.add((event,))
        self.size_bytes += len(event)


@dataclass
class Days:
    """The committed days: `ends` are the row counts after each day, in order."""

    ends: "array[int]" = field(default_factory=lambda: array("Q"))
    aborted: int = 0

    @property
    def count(self) -> int:
        """The number of committed days."""
        return len(self.ends)

    def add(self, rows: int) -> None:
        """Add a day of so many rows."""
        self.ends.append(rows + (self.ends[-1] if self.ends else 0))


@dataclass
class Tally:
    """The rows read so far. `changed` counts rows with another content than written, or that were
    never committed, such as those of an aborted transaction.
    """

    written: Written
    events: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    changed: int = 0
    _seen: bytearray = field(init=False)
    _last_of_key: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = bytearray(len(self.written.hashes))
        self._decoder = msgspec.json.Decoder(RowNumber)

    def add(self, payloads: Sequence[bytes], keys: Sequence[str | None]) -> None:
        """Add a batch of events."""
        for payload, key in zip(payloads, keys, strict=True):
            self.events += 1
            try:
                row = self._decoder.decode(payload).row
            except msgspec.MsgspecError:
                self.changed += 1
                continue
            if not 0 <= row < len(self._seen) or self.written.hashes[row] != content_hash(payload):
                self.changed += 1
                continue
            if self._seen[row] == _SEEN:
                self.duplicates += 1
                continue
            self._seen[row] = _SEEN
            if key is not None:
                if row < self._last_of_key.get(key, -1):
                    self.out_of_order += 1
                self._last_of_key[key] = row

    @property
    def missing(self) -> int:
        """The number of rows that were written and not read."""
        return self._seen.count(_UNSEEN)

    def torn(self, days: Days) -> int:
        """The number of days of which some rows were read, and some not."""
        starts = [0, *days.ends]
        seen = [self._seen[start:end] for start, end in pairwise(starts)]
        return sum(1 for rows in seen if _SEEN in rows and _UNSEEN in rows)

    @property
    def is_whole(self) -> bool:
        """Whether every row was read exactly once, unchanged."""
        wrong = self.duplicates + self.changed + self.missing
        return wrong == 0 and self.events == len(self._seen)

    @property
    def is_right(self) -> bool:
        return self.is_whole and self.out_of_order == 0
