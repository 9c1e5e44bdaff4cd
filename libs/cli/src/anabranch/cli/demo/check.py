"""Did every row arrive exactly once, unchanged, and in order per key? Pure.

What was written is remembered as 8 bytes of hash per row, and the last row seen per key while
reading; so the check needs a few megabytes, whatever the events hold.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from zlib import crc32

import msgspec

from anabranch.cli.demo.flights import RowNumber

_UNSEEN = 0
_SEEN = 1


def content_hash(event: bytes) -> int:
    """64 bits of BLAKE2b."""
    return int.from_bytes(blake2b(event, digest_size=8).digest(), "little")


@dataclass
class RowSum:
    """Events counted and summed up in whatever order: `row_sum` is the sum of their CRC32."""

    events: int = 0
    row_sum: int = 0

    def add(self, events: Iterable[bytes]) -> None:
        for event in events:
            self.events += 1
            self.row_sum += crc32(event)


@dataclass
class Written:
    """What was written: the hash of row i at index i."""

    hashes: "array[int]" = field(default_factory=lambda: array("Q"))
    size_bytes: int = 0
    sum: RowSum = field(default_factory=RowSum)

    def add(self, event: bytes) -> None:
        """The next row."""
        self.hashes.append(content_hash(event))
        self.sum.add((event,))
        self.size_bytes += len(event)


@dataclass
class Days:
    """How the rows were committed: `ends` are the row counts behind each day, in order."""

    ends: "array[int]" = field(default_factory=lambda: array("Q"))
    aborted: int = 0

    @property
    def count(self) -> int:
        """How many days were committed."""
        return len(self.ends)

    def add(self, rows: int) -> None:
        """One more day of so many rows."""
        self.ends.append(rows + (self.ends[-1] if self.ends else 0))


@dataclass
class Tally:
    """What was read so far. `changed` counts rows whose content is not what was written, or
    that never were written, such as those of a transaction that was aborted."""

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
        """One batch as it was read."""
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
        """Rows written and not read."""
        return self._seen.count(_UNSEEN)

    def torn(self, days: Days) -> int:
        """Days of which some rows were read, and some not."""
        starts = [0, *days.ends]
        seen = [self._seen[start:end] for start, end in pairwise(starts)]
        return sum(1 for rows in seen if _SEEN in rows and _UNSEEN in rows)

    @property
    def is_right(self) -> bool:
        wrong = self.duplicates + self.out_of_order + self.changed + self.missing
        return wrong == 0 and self.events == len(self._seen)
