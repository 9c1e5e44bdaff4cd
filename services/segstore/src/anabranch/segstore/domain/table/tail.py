"""The updates of a table segment that its index may not have yet.

    segment  │ … indexed … │ … in the index and in the tail … │ … only in the tail … │
             start       kept_from                          indexed                 length

A container has a `TableTail` for every resident table segment, twice: the pending one, with which
updates are decided, and the applied one, from which durable entries are read. Both take the same
`TableChange` of an append. When the index has entries for some time, both drop them.

A look-up of a key asks the tail first and then the index. The finding of the index is right only if
the index had everything before `kept_from` when it was asked; otherwise it is asked again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice
from operator import eq
from typing import NamedTuple

from crc32c import crc32c

from anabranch.common.wire.table import TableBlock
from anabranch.common.wire.table_columns import ABSENT, Refusal

WAITING_MAX = 50_000
"""Entries that may wait to be merged into a tail: merging them takes a few milliseconds."""


class TailEntry(NamedTuple):
    """The latest update of a key: `value` None removed it; `expires_ms` 0: it never expires."""

    version: int
    expires_ms: int
    value: bytes | None

    def lives(self, now_ms: int) -> bool:
        """Whether the key has an entry at this time."""
        return self.value is not None and not 0 < self.expires_ms <= now_ms


class Outcome(NamedTuple):
    """The decision about an update: the offset of its block, which is the version of its first
    performed entry, and the refused units."""

    version: int
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class TableChange:
    """What the append of a table block at `offset` changes; the block ends before `end`, and `crc`
    is the CRC32C of all its bytes."""

    offset: int
    end: int
    crc: int
    block: TableBlock

    @cached_property
    def places(self) -> Mapping[bytes, int]:
        """The *place* of the last update of each key: `offset` plus the index in the block. For an
        entry that is not a copy, this is also its version."""
        keys = self.block.keys
        return dict(zip(keys, range(self.offset, self.offset + len(keys)), strict=True))

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.offset, self.block.refusals)

    def entry(self, place: int) -> TailEntry:
        """The entry at this place."""
        block, at = self.block, place - self.offset
        return TailEntry(block.versions[at], block.expires_ms[at], block.values[at])


def change_of(block: TableBlock, offset: int, data: bytes | memoryview) -> TableChange:
    """The change that the append of the block at `offset` makes; `data` are its bytes."""
    return TableChange(offset, offset + len(data), crc32c(data), block)


Requests = dict[int, Outcome]
"""The remembered outcomes of a client, by request number."""


class TableTail:
    """The latest updates from the offset `kept_from` on, by key, and the outcomes of requests.

    `size` is the size in bytes of the blocks in it. `token` identifies it, so that what is kept
    beside it can be told from what was kept beside an earlier tail of the segment.

    Most blocks of a bulk load come and go without a look-up. The tail therefore takes the keys of a
    block into `_places` only before a look-up, or when many keys wait. `_merged` is the number of
    changes, the oldest ones, whose keys it has taken.
    """

    __slots__ = (
        "_changes", "_merged", "_offsets", "_places", "_waiting", "kept_from", "requests", "size",
        "token",
    )  # fmt: skip

    def __init__(self, kept_from: int) -> None:
        self.kept_from = kept_from
        self._places: dict[bytes, int] = {}
        """Of the latest update of each key, as far as it was taken."""
        self._merged = 0
        self._waiting = 0
        """How many entries the other changes have."""
        self.requests: dict[bytes, Requests] = {}
        self.size = 0
        self.token = object()
        self._changes: list[TableChange] = []
        self._offsets: list[int] = []
        """Of the changes, ascending."""

    def apply(self, change: TableChange) -> None:
        """Take over the change, which follows all earlier ones."""
        self._changes.append(change)
        self._offsets.append(change.offset)
        self._waiting += len(change.block.keys)
        if self._waiting > WAITING_MAX:
            self._merge()
        self.size += change.end - change.offset
        if not change.block.copies:
            requests = self.requests.setdefault(change.block.client_id, {})
            requests[change.block.request_number] = change.outcome

    def latest(self, key: bytes) -> TailEntry | None:
        """The latest update of the key; None if the tail has none."""
        self._merge()
        place = self._places.get(key)
        if place is None:
            return None
        return self._changes[bisect_right(self._offsets, place) - 1].entry(place)

    def latest_of(self, keys: Iterable[bytes]) -> dict[bytes, TailEntry | None]:
        """The latest update of each of the keys of which the tail has one."""
        self._merge()
        if not self._places:
            return {}
        return {key: self.latest(key) for key in filter(self._places.__contains__, keys)}

    def __contains__(self, key: bytes) -> bool:
        """Whether the tail has an update of the key."""
        self._merge()
        return key in self._places

    def _merge(self) -> None:
        if self._waiting:
            for change in islice(self._changes, self._merged, None):
                self._places.update(change.places)
            self._merged, self._waiting = len(self._changes), 0

    def changes_from(self, offset: int) -> list[TableChange]:
        """The changes from `offset` on, in order; `offset` is a boundary from `kept_from` on."""
        return self._changes[bisect_left(self._offsets, offset) :]

    def drop_before(self, offset: int) -> list[TableChange]:
        """Drop all changes that end at or before `offset`, and return them; the index has them."""
        dropped: list[TableChange] = []
        for change in self._changes:
            if change.end > offset:
                break
            if len(dropped) < self._merged:
                self._drop(change.places)
            else:
                self._waiting -= len(change.block.keys)
            dropped.append(change)
            self.size -= change.end - change.offset
            self.kept_from = change.end
            if not change.block.copies:
                self._forget(change.block.client_id, change.block.request_number)
        del self._changes[: len(dropped)], self._offsets[: len(dropped)]
        self._merged = max(0, self._merged - len(dropped))
        if not self._changes:
            self.kept_from = max(self.kept_from, offset)
        return dropped

    def _drop(self, places: Mapping[bytes, int]) -> None:
        """Drop the keys whose latest updates are at these places."""
        present = list(map(self._places.get, places))
        keys: Iterable[bytes] = places
        if present != list(places.values()):
            keys = list(compress(places, map(eq, present, places.values())))
        for key in keys:
            del self._places[key]

    def _forget(self, client_id: bytes, request_number: int) -> None:
        requests = self.requests.get(client_id, {})
        requests.pop(request_number, None)
        if not requests:
            self.requests.pop(client_id, None)

    def outcome(self, client_id: bytes, request_number: int) -> Outcome | None:
        """The remembered outcome of a request."""
        return self.requests.get(client_id, {}).get(request_number)

    def copy(self) -> "TableTail":
        """An independent tail with the same content."""
        twin = TableTail(self.kept_from)
        twin._places, twin._merged, twin._waiting = dict(self._places), self._merged, self._waiting
        twin.requests = {client: dict(numbers) for client, numbers in self.requests.items()}
        twin.size = self.size
        twin._changes = list(self._changes)
        twin._offsets = list(self._offsets)
        return twin


@dataclass(frozen=True, slots=True)
class Findings:
    """What the index of the table segment `number` knows of some keys.

    The index had everything before `as_of`. `entries` has every key that was asked for, None for
    one that is not in the index. `requests` are the client's remembered outcomes, of blocks from
    `complete_from` on; `new_since` is that of the question (`InIndex`).
    """

    number: int
    as_of: int
    complete_from: int
    new_since: int
    entries: Mapping[bytes, TailEntry | None]
    requests: Mapping[int, Outcome]


NO_ENTRY = TailEntry(ABSENT, 0, None)
