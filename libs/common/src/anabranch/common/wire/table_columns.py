"""The columns of table requests and answers.

Columns (little-endian)::

    conditions   i64[n]: one per entry of an update: ANY, ABSENT or a version
    units        u32[u]: the number of entries of each unit; a unit is performed whole or not at all
    refusals     per refused unit: u16 unit, u16 number of an entry in the update, i64 its key's
                 version at present, or ABSENT
    keys         u32 n, u32[n] sizes, the keys joined
    rows         u32 n, i64[n] versions (ABSENT: no entry), i64[n] expires_ms (0: never),
                 u32[n] key sizes, u32[n] value sizes, keys joined, values joined
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, cast

from anabranch.common.errors import BadPacket

ANY, ABSENT = -2, -1
"""Conditions: none; the key has no entry."""

_REFUSAL = struct.Struct("<HHq")
_COUNT = struct.Struct("<I")


class Refusal(NamedTuple):
    """A unit that was not performed, because of the entry number `entry` (from 0) of the update:
    the key's version is `version`, or ABSENT."""

    unit: int
    entry: int
    version: int


class EntryColumns(NamedTuple):
    """Entries as columns of one length. `values[i]` is None if the entry removes its key;
    `expires_ms[i]` is 0 if the entry never expires."""

    keys: Sequence[bytes]
    versions: Sequence[int]
    expires_ms: Sequence[int]
    values: Sequence[bytes | None]

    def at(self, places: Sequence[int]) -> "EntryColumns":
        """The entries at these places of the columns."""
        return EntryColumns._make([column[place] for place in places] for column in self)

    def between(self, low: int, high: int) -> "EntryColumns":
        """The entries from the place `low` to before `high`."""
        return EntryColumns._make(column[low:high] for column in self)


def sliced(data: bytes, sizes: Sequence[int], at: int = 0, skip: int = 0) -> list[bytes]:
    """The parts of `data` that lie end to end from `at` on, each without its first `skip` bytes.

    `sizes` are those of the whole parts, which must lie within the data.
    """
    size = sizes[0] if sizes else 0
    if size and sizes.count(size) == len(sizes):
        # The loop runs in C, which takes a third of the time of slices.
        each = struct.Struct(f"{skip}x{size - skip}s")
        parts = memoryview(data)[at : at + size * len(sizes)]
        return list(chain.from_iterable(each.iter_unpack(parts)))
    return [data[low + skip : high] for low, high in pairwise(accumulate(sizes, initial=at))]


def encode_refusals(refusals: Iterable[Refusal]) -> bytes:
    """The column of refusals."""
    return b"".join(_REFUSAL.pack(*refusal) for refusal in refusals)


def decode_refusals(column: bytes) -> tuple[Refusal, ...]:
    """Inverse of `encode_refusals`. Raises BadPacket."""
    if len(column) % _REFUSAL.size:
        raise BadPacket("a column of refusals is truncated", size=len(column))
    return tuple(Refusal(*each) for each in _REFUSAL.iter_unpack(column))


def encode_numbers(numbers: Sequence[int], typecode: str) -> bytes:
    """A column of numbers: `q` for conditions, `I` for units."""
    return array(typecode, numbers).tobytes()


def decode_numbers(column: bytes, typecode: str) -> "array[int]":
    """Inverse of `encode_numbers`. Raises BadPacket."""
    numbers = array(typecode)
    if len(column) % numbers.itemsize:
        raise BadPacket("a column of numbers is truncated", size=len(column))
    numbers.frombytes(column)
    return numbers


def encode_keys(keys: Sequence[bytes]) -> bytes:
    """The column of keys."""
    sizes = array("I", map(len, keys)).tobytes()
    return b"".join((_COUNT.pack(len(keys)), sizes, *keys))


def decode_keys(column: bytes) -> list[bytes]:
    """Inverse of `encode_keys`. Raises BadPacket."""
    try:
        (count,) = _COUNT.unpack_from(column)
    except struct.error as error:
        raise BadPacket("a column of keys is truncated", size=len(column)) from error
    sizes = decode_numbers(column[4 : 4 + 4 * count], "I")
    if len(sizes) != count or 4 + 4 * count + sum(sizes) != len(column):
        raise BadPacket("a column of keys has a wrong size", size=len(column), keys=count)
    return sliced(column, sizes, 4 + 4 * count)


class Row(NamedTuple):
    """An entry in an answer; `version` is ABSENT if the key has none."""

    key: bytes
    version: int
    expires_ms: int
    value: bytes


NO_ROW = Row(b"", ABSENT, 0, b"")


def in_columns(rows: Sequence[Row]) -> EntryColumns:
    """The columns of rows."""
    if not rows:
        return EntryColumns((), (), (), ())
    keys, versions, expires, values = zip(*rows, strict=True)
    return EntryColumns(keys, versions, expires, values)


def encode_rows(rows: EntryColumns) -> bytes:
    """The columns of rows, all of which have values. An answer to a get may leave out the keys
    (`b""`)."""
    keys, versions, expires_ms = rows[:3]
    values = cast("Sequence[bytes]", rows.values)
    return b"".join(
        (
            _COUNT.pack(len(keys)),
            array("q", versions).tobytes(),
            array("q", expires_ms).tobytes(),
            array("I", map(len, keys)).tobytes(),
            array("I", map(len, values)).tobytes(),
            *keys,
            *values,
        )
    )


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows that are not divided yet. The joined keys begin at `keys_at` of `data`, and the joined
    values, which follow them, at `values_at`."""

    data: bytes
    versions: "array[int]"
    expires_ms: "array[int]"
    key_sizes: "array[int]"
    value_sizes: "array[int]"
    keys_at: int
    values_at: int

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def last_key(self) -> bytes:
        """The key of the last row. There must be one."""
        return self.data[self.values_at - self.key_sizes[-1] : self.values_at]

    def keys(self) -> list[bytes]:
        """The key of each row."""
        return sliced(self.data, self.key_sizes, self.keys_at)

    def values(self) -> list[bytes]:
        """The value of each row."""
        return sliced(self.data, self.value_sizes, self.values_at)


def parse_rows(columns: bytes) -> RowColumns:
    """The columns of rows, with sizes that add up. Raises BadPacket."""
    try:
        (count,) = _COUNT.unpack_from(columns)
    except struct.error as error:
        raise BadPacket("the columns of rows are truncated", size=len(columns)) from error
    start = 4 + 24 * count
    versions = decode_numbers(columns[4 : 4 + 8 * count], "q")
    expires = decode_numbers(columns[4 + 8 * count : 4 + 16 * count], "q")
    key_sizes = decode_numbers(columns[4 + 16 * count : 4 + 20 * count], "I")
    value_sizes = decode_numbers(columns[4 + 20 * count : start], "I")
    values_at = start + sum(key_sizes)
    if len(value_sizes) != count or values_at + sum(value_sizes) != len(columns):
        raise BadPacket("the columns of rows have a wrong size", size=len(columns), rows=count)
    return RowColumns(columns, versions, expires, key_sizes, value_sizes, start, values_at)


def decode_rows(columns: bytes) -> list[Row]:
    """Inverse of `encode_rows`. Raises BadPacket."""
    found = parse_rows(columns)
    each = zip(found.keys(), found.versions, found.expires_ms, found.values(), strict=True)
    return list(map(Row._make, each))
