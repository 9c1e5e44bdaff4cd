"""The updates of a table segment that its index may not have yet.

    segment  │ … indexed … │ … in the index and in the tail … │ … only in the tail … │
             start       kept_from                          indexed                 length

A container has a `TableTail` for every resident table segment, twice: the pending one, with which
updates are decided, and the applied one, from which durable entries are read. Both take the same
`TableChange` of an append. When the index has entries for some time, both drop them.

A look-up of a key asks the tail first and then the index. The finding of the index is right only if
the index had everything before `kept_from` when it was asked; otherwise it is asked again.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from anabranch.common.wire.table import ABSENT, Refusal, TableBlock


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


@dataclass(frozen=True, slots=True)
class TableChange:
    """What the append of a table block at `offset` changes; the block ends before `end`, and `crc`
    is the CRC32C of all its bytes.

    `entries` maps each key to its last update in the block. `copies`: compaction wrote the block,
    and no client's request.
    """

    offset: int
    end: int
    crc: int
    entries: Mapping[bytes, TailEntry]
    copies: bool
    client_id: bytes
    request_number: int
    outcome: Outcome


def change_of(block: TableBlock, offset: int, data: bytes | memoryview) -> TableChange:
    """The change that the append of the block at `offset` makes; `data` are its bytes."""
    entries = map(TailEntry, block.versions, block.expires_ms, block.values)
    return TableChange(
        offset,
        offset + len(data),
        crc32c(data),
        dict(zip(block.keys, entries, strict=True)),
        block.copies,
        block.client_id,
        block.request_number,
        Outcome(offset, block.refusals),
    )


Requests = dict[int, Outcome]
"""The remembered outcomes of a client, by request number."""


class TableTail:
    """The latest updates from the offset `kept_from` on, by key, and the outcomes of requests.

    `size` is the size in bytes of the blocks in it. `token` identifies it, so that what is kept
    beside it can be told from what was kept beside an earlier tail of the segment.
    """

    __slots__ = ("_changes", "entries", "kept_from", "requests", "size", "token")

    def __init__(self, kept_from: int) -> None:
        self.kept_from = kept_from
        self.entries: dict[bytes, TailEntry] = {}
        self.requests: dict[bytes, Requests] = {}
        self.size = 0
        self.token = object()
        self._changes: deque[TableChange] = deque()

    def apply(self, change: TableChange) -> None:
        """Take over the change, which follows all earlier ones."""
        self.entries.update(change.entries)
        self._changes.append(change)
        self.size += change.end - change.offset
        if not change.copies:
            requests = self.requests.setdefault(change.client_id, {})
            requests[change.request_number] = change.outcome

    def changes_from(self, offset: int) -> Iterator[TableChange]:
        """The changes from `offset` on, in order; `offset` is a boundary from `kept_from` on."""
        return (change for change in self._changes if change.offset >= offset)

    def drop_before(self, offset: int) -> list[tuple[bytes, TailEntry]]:
        """Drop the updates of all blocks that end at or before `offset`; the index has them.

        Returns those that no later update had replaced.
        """
        dropped: list[tuple[bytes, TailEntry]] = []
        while self._changes and self._changes[0].end <= offset:
            change = self._changes.popleft()
            self.size -= change.end - change.offset
            self.kept_from = change.end
            for key, entry in change.entries.items():
                if self.entries.get(key) is entry:
                    del self.entries[key]
                    dropped.append((key, entry))
            if not change.copies:
                self._forget(change.client_id, change.request_number)
        if not self._changes:
            self.kept_from = max(self.kept_from, offset)
        return dropped

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
        twin.entries = dict(self.entries)
        twin.requests = {client: dict(numbers) for client, numbers in self.requests.items()}
        twin.size = self.size
        twin._changes = deque(self._changes)
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
