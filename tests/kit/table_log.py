"""The log of one table segment, as it became durable, and the entries that it leads to.

An observer at the journal hands over every durable block, also those whose clients were never
answered. `TableLog` goes through them once, in their order, which is that of the versions: each
condition of an update must have held at its place, each refusal must name the version that it met,
each copy must be of the present entry, and a truncation must leave every entry behind it.

An entry that has expired by one clock may not have by a slower one. Up to the `horizon`, the
highest time that any clock has shown, an entry may count as expired; from its own time on it must.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.wire.messages import TableUpdated
from anabranch.common.wire.table import TableBlock, parse_table_block
from anabranch.common.wire.table_columns import ABSENT, ANY, Refusal
from kit.history import HistoryViolation


class Entry(NamedTuple):
    """An update of a key; `value` None removed it."""

    version: int
    expires_ms: int
    value: bytes | None

    def may_be_seen(self, now_ms: int) -> bool:
        """Whether a clock that shows `now_ms` or more may find the entry."""
        return self.value is not None and not 0 < self.expires_ms <= now_ms

    def may_be_missed(self, horizon_ms: int) -> bool:
        """Whether some clock may have found that there is no entry."""
        return self.value is None or 0 < self.expires_ms <= horizon_ms


class LoggedBlock(NamedTuple):
    """A durable block."""

    offset: int
    end: int
    time_ms: int
    data: bytes
    parsed: TableBlock


@dataclass
class Sent:
    """A request for an update, which a client may send many times; and what became of it."""

    client_id: bytes
    number: int
    segment: str
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    conditions: Sequence[int]
    units: Sequence[int]
    ttl_ms: int
    segment_number: int
    payload: bytes
    attempts: int = 0
    block: LoggedBlock | None = None
    told: TableUpdated | None = None
    refused_for_good: bool = False
    """An answer said that it was not and will not be performed."""

    def __str__(self) -> str:
        return f"request {self.number} of {self.client_id.hex()[:4]}"


SentOf = Callable[[str, bytes, int], Sent]
"""Finds a request by the table's name, client and number."""


@dataclass
class TableLog:
    """Offsets as in the segment. A *position* is the end of a block: that block and all before it
    count."""

    name: str
    number: int
    start: int = 0
    blocks: list[LoggedBlock] = field(default_factory=list)
    floor: int = 0
    """The position that every read from now on must reach."""
    is_gone: bool = False
    updates: dict[bytes, list[tuple[int, Entry]]] = field(default_factory=dict)
    """By key: (end of the block, the entry)."""
    places: dict[bytes, int] = field(default_factory=dict)
    """The last block that has the present entry of the key, as an update or as a copy."""

    @property
    def length(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    def positions(self, low: int) -> Iterator[int]:
        """The positions from `low` on, which is one."""
        yield low
        yield from (block.end for block in self.blocks if block.end > low)

    def time_at(self, position: int) -> int:
        """The time of the last block before the position."""
        at = bisect_right(self.blocks, position, key=lambda block: block.end)
        return self.blocks[at - 1].time_ms if at else 0

    def entry(self, key: bytes, position: int) -> Entry | None:
        """The last update of the key before the position."""
        updates = self.updates.get(key, [])
        at = bisect_right(updates, position, key=lambda update: update[0])
        return updates[at - 1][1] if at else None

    # --- what becomes durable -----------------------------------------------------------------

    def append(self, offset: int, data: bytes, sent_of: SentOf, horizon_ms: int) -> None:
        """A block is durable at `offset`; when the log is replayed, for another time."""
        if offset < self.length:
            self._check_same(offset, data)
            return
        if offset != self.length:
            raise HistoryViolation(f"{self.name}: blocks before {offset} are lost")
        parsed = parse_table_block(data, offset)
        block = LoggedBlock(offset, offset + len(data), parsed.time_ms, data, parsed)
        if self.blocks and block.time_ms < self.blocks[-1].time_ms:
            raise HistoryViolation(f"{self.name}: the time of the block at {offset} moved back")
        if parsed.copies:
            self._check_copies(block)
        else:
            sent = sent_of(self.name, parsed.client_id, parsed.request_number)
            if sent.block is not None or sent.refused_for_good:
                raise HistoryViolation(f"{sent} was performed again, or after it had been refused")
            _Decided(self, block, sent, horizon_ms).check()
            sent.block = block
            self._evolve(block)
        self.blocks.append(block)

    def _check_same(self, offset: int, data: bytes) -> None:
        at = bisect_right(self.blocks, offset, key=lambda block: block.offset) - 1
        if self.blocks[at].offset != offset or self.blocks[at].data != data:
            raise HistoryViolation(f"{self.name}: the block at {offset} changed")

    def _evolve(self, block: LoggedBlock) -> None:
        parsed = block.parsed
        for key, version, until, value in zip(
            parsed.keys, parsed.versions, parsed.expires_ms, parsed.values, strict=True
        ):
            self.updates.setdefault(key, []).append((block.end, Entry(version, until, value)))
            self.places[key] = block.offset

    def _check_copies(self, block: LoggedBlock) -> None:
        parsed = block.parsed
        for key, version, until, value in zip(
            parsed.keys, parsed.versions, parsed.expires_ms, parsed.values, strict=True
        ):
            present = self.entry(key, self.length)
            if present != Entry(version, until, value):
                raise HistoryViolation(f"{self.name}: {key!r} rose from the dead: {present}")
            self.places[key] = block.offset

    def truncate(self, offset: int, horizon_ms: int) -> None:
        """Everything before the offset is gone."""
        if offset <= self.start:
            return
        if offset > self.length or all(block.end != offset for block in self.blocks):
            raise HistoryViolation(f"{self.name}: truncated at {offset}, between blocks")
        self.start = offset
        for key, place in self.places.items():
            present = self.entry(key, self.length)
            assert present is not None
            if place < offset and not present.may_be_missed(horizon_ms):
                raise HistoryViolation(f"{self.name}: a compaction lost {key!r}: {present}")


class _Decided:
    """Decides a request once more, at the place of its block, and compares."""

    def __init__(self, log: TableLog, block: LoggedBlock, sent: Sent, horizon_ms: int) -> None:
        self._log = log
        self._block = block
        self._sent = sent
        self._horizon_ms = max(horizon_ms, block.time_ms)
        self._refusals = {refusal.unit: refusal for refusal in block.parsed.refusals}
        self._kept: list[tuple[bytes, bytes | None]] = []
        self._changed: dict[bytes, int] = {}

    def check(self) -> None:
        """Raises HistoryViolation."""
        sent, parsed = self._sent, self._block.parsed
        first = 0
        for unit, count in enumerate(sent.units):
            span = range(first, first + count)
            first += count
            tried = self._try(span, self._refusals.pop(unit, None))
            if tried is not None:
                self._changed |= tried
                self._kept += [(sent.keys[entry], sent.values[entry]) for entry in span]
        kept = list(zip(parsed.keys, parsed.values, strict=True))
        if self._refusals or self._kept != kept:
            raise HistoryViolation(f"{sent} was not performed as a whole: {parsed}")

    def _try(self, span: range, refusal: Refusal | None) -> dict[bytes, int] | None:
        """What the unit changes; None if it was rightly refused."""
        sent = self._sent
        tried: dict[bytes, int] = {}
        for entry in span:
            key, condition = sent.keys[entry], sent.conditions[entry]
            before = tried.get(key, self._changed.get(key))
            found = {before} if before is not None else self._versions(key)
            same_life = condition < 0 or sent.segment_number == self._log.number
            holds = condition == ANY or (condition in found and same_life)
            if refusal is not None and refusal.entry == entry:
                certain = condition == ANY or (holds and len(found) == 1)
                if certain or refusal.version not in found:
                    raise HistoryViolation(
                        f"{sent} was refused: {refusal}, but {key!r} has {found}"
                    )
                return None
            if not holds:
                raise HistoryViolation(f"{sent}: {key!r} is of {found}, not of {condition}")
            version = self._block.offset + len(self._kept) + entry - span.start
            tried[key] = ABSENT if sent.values[entry] is None else version
        if refusal is not None:
            raise HistoryViolation(f"{sent}: refused for an entry of another unit: {refusal}")
        return tried

    def _versions(self, key: bytes) -> set[int]:
        """The versions of the key that the decision may have found."""
        present = self._log.entry(key, self._log.length)
        if present is None:
            return {ABSENT}
        found = set[int]()
        if present.may_be_seen(self._block.time_ms):
            found.add(present.version)
        if present.may_be_missed(self._horizon_ms):
            found.add(ABSENT)
        return found
