"""The keys and rows of a table index (pure).

    key: u64 number (big-endian), kind, rest            row (little-endian)
    number of the segment   STATE                       `TableRow`
                            CLIENT   client id          i64 complete_from, u16 outcomes, per outcome
                                                        u64 number, i64 version, u16 refusals; then
                                                        all refusals, as in a table block
                            ENTRY    table key          i64 version, i64 expires_ms, value
    2^64-1                  "format"                    the number of this format; the last key

Keys sort by segment, then by kind, then by table key. Each row ends with a CRC32C (u32) over its
whole key and itself, so that neither a damaged row nor the row of another key passes for the right
one. The engine's own checksums cover its blocks on the disk, but not its memory.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import NoReturn

from crc32c import crc32c

from anabranch.common.errors import IndexDamaged
from anabranch.common.wire.messages import REQUESTS_REMEMBERED
from anabranch.common.wire.table_columns import EntryColumns, Refusal
from anabranch.segstore.domain.table.tail import Outcome, Requests
from anabranch.segstore.ports_table import IndexState

FORMAT = 1
STATE, CLIENT, ENTRY, _AFTER = b"\0", b"\1", b"\2", b"\3"
KEY_HEAD_SIZE_BYTES = 9
"""Of the number and the kind, before the rest of a key."""

_NUMBER = struct.Struct(">Q")
_STATE = struct.Struct("<qqqIQQIq")
_CLIENT = struct.Struct("<qH")
_OUTCOME = struct.Struct("<QqH")
_REFUSAL = struct.Struct("<HHq")
_ENTRY = struct.Struct("<qq")
_CRC = struct.Struct("<I")
_VALUE = slice(_ENTRY.size, -_CRC.size)
ENTRY_SIZE_BYTES = _ENTRY.size + _CRC.size
"""Of a row of an entry, without the value."""

_INTACT = 0x48674BC7
"""The CRC32C of any bytes that end with their own CRC32C."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """What the index keeps about a table segment.

    It remembers requests of `clients` clients. Those that it has forgotten performed their last
    requests before the offset `forgotten`.
    """

    state: IndexState
    clients: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class ClientRow:
    """The remembered requests of a client: the last ones from the offset `complete_from` on."""

    complete_from: int
    requests: Requests

    @property
    def last(self) -> int:
        """The offset of the newest request."""
        return max(outcome.version for outcome in self.requests.values())

    def joined(self, requests: Requests) -> "ClientRow":
        """With these requests too; the oldest ones beyond the limit are forgotten."""
        numbers = sorted({*self.requests, *requests})[-REQUESTS_REMEMBERED:]
        both = self.requests | requests
        return ClientRow(self.complete_from, {number: both[number] for number in numbers})


# --- keys -----------------------------------------------------------------------------------------


def head(number: int, kind: bytes) -> bytes:
    """The beginning of the keys of this kind; for STATE the whole key."""
    return _NUMBER.pack(number) + kind


def end_of(number: int, kind: bytes) -> bytes:
    """The key behind all those of this kind."""
    return _NUMBER.pack(number) + bytes((kind[0] + 1,))


LAST_KEY = head(2**64 - 1, b"format")
"""Sorts behind all other keys; its row is always there."""


# --- rows -----------------------------------------------------------------------------------------


def sealed(key: bytes, body: bytes) -> bytes:
    """The row with its checksum."""
    return body + _CRC.pack(crc32c(body, crc32c(key)))


def opened(key: bytes, row: bytes) -> bytes:
    """The row without its checksum. Raises IndexDamaged."""
    if crc32c(row, crc32c(key)) != _INTACT:
        _damaged(key)
    return row[: -_CRC.size]


LAST_ROW = sealed(LAST_KEY, _CRC.pack(FORMAT))


def encode_entries(entries: EntryColumns) -> list[bytes]:
    """The rows of entries, all of which have values, under their whole keys."""
    # `map` over built-in functions, here and below: loops in Python take twice the time.
    bodies = list(map(add, map(_ENTRY.pack, entries.versions, entries.expires_ms), entries.values))
    return list(map(add, bodies, map(_CRC.pack, map(crc32c, bodies, map(crc32c, entries.keys)))))


def decode_entries(keys: Sequence[bytes], rows: Sequence[bytes]) -> EntryColumns:
    """Inverse of `encode_entries`. Raises IndexDamaged."""
    checks = list(map(crc32c, rows, map(crc32c, keys)))
    if checks.count(_INTACT) < len(rows):
        _damaged(next(key for key, check in zip(keys, checks, strict=True) if check != _INTACT))
    if min(map(len, rows), default=ENTRY_SIZE_BYTES) < ENTRY_SIZE_BYTES:
        _damaged(min(keys))
    heads = array("q", b"".join([row[: _ENTRY.size] for row in rows]))
    return EntryColumns(keys, heads[::2], heads[1::2], [row[_VALUE] for row in rows])


def encode_table(row: TableRow) -> bytes:
    state = row.state
    return sealed(
        head(state.number, STATE),
        _STATE.pack(
            state.indexed, state.complete_from, state.anchor, state.anchor_crc, state.entries,
            state.live_size, row.clients, row.forgotten,
        ),
    )  # fmt: skip


def decode_table(number: int, row: bytes) -> TableRow:
    """Inverse of `encode_table`. Raises IndexDamaged."""
    key = head(number, STATE)
    try:
        *state, clients, forgotten = _STATE.unpack(opened(key, row))
    except struct.error:
        _damaged(key)
    return TableRow(IndexState(number, *state), clients, forgotten)


def encode_client(key: bytes, row: ClientRow) -> bytes:
    outcomes = [
        _OUTCOME.pack(number, outcome.version, len(outcome.refusals))
        for number, outcome in row.requests.items()
    ]
    refusals = (
        _REFUSAL.pack(*refusal) for outcome in row.requests.values() for refusal in outcome.refusals
    )
    first = _CLIENT.pack(row.complete_from, len(outcomes))
    return sealed(key, b"".join((first, *outcomes, *refusals)))


def decode_client(key: bytes, row: bytes) -> ClientRow:
    """Inverse of `encode_client`. Raises IndexDamaged."""
    body = opened(key, row)
    try:
        complete_from, count = _CLIENT.unpack_from(body)
        end = _CLIENT.size + count * _OUTCOME.size
        outcomes = list(_OUTCOME.iter_unpack(body[_CLIENT.size : end]))
        refusals: Iterable[Refusal] = map(Refusal._make, _REFUSAL.iter_unpack(body[end:]))
    except struct.error:
        _damaged(key)
    following = iter(refusals)
    requests = {
        number: Outcome(version, tuple(next(following) for _ in range(refused)))
        for number, version, refused in outcomes
    }
    return ClientRow(complete_from, requests)


def _damaged(key: bytes) -> NoReturn:
    raise IndexDamaged("a row of a table index is damaged", segment=_NUMBER.unpack_from(key)[0])
