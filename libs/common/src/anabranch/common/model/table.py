"""Key-value tables: names, configuration, keys and partitions. Pure.

An entry's key has a *primary* and a *secondary* part. The primary key alone chooses the partition,
so all entries that share a primary key can change in one atomic batch. A partition is a table
segment; partition `p` owns a range of the key space, as a stream's segment does.

*Table keys* are the bytes that a table segment stores. They sort by primary, then by secondary key:

    the table has no secondary keys        primary
    primary keys of a fixed size           primary, secondary
    primary keys of any size               primary with 00 written as 00 FF, then 00 01, secondary

The keys from `RESERVED_KEYS` on are not keys of programs.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple

import mmh3

from anabranch.common.errors import InvalidKey, InvalidRequest
from anabranch.common.model.names import (
    TABLE_NAME_LENGTH_MAX,
    TABLE_PREFIX,
    ScopeName,
    StreamName,
    StreamRef,
    stream_ref,
)

KEY_SIZE_BYTES_MAX = 8192
"""Of a table key: a primary and a secondary key together, as a table segment stores them."""
VALUE_SIZE_BYTES_MAX = 1024 * 1024 - KEY_SIZE_BYTES_MAX
PARTITION_COUNT_MAX = 1024
TTL_MS_MAX = 100 * 365 * 24 * 3600 * 1000

RESERVED_KEYS = b"\xff" * 32
"""Table keys that begin with these bytes are the client's own: they sort behind all others.

A partition may hold any of them, they never expire, and no scan or watch yields them.
"""

_ROUTING_SEED = 1741865571  # as for routing keys of streams
_PLACES = 1 << 52  # in the key space
_HASH_SHIFT = 64 - 52  # from a hash to a place
_ESCAPED_ZERO = b"\x00\xff"
_END_OF_PRIMARY = b"\x00\x01"


class TableState(StrEnum):
    """The state of a key-value table. Legal moves: controller/domain/kv_table."""

    CREATING = "creating"
    ACTIVE = "active"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class TableConfig:
    """A table's configuration. Sizes in bytes; only `ttl_ms` may change later.

    Invariants, or InvalidRequest: the number of partitions, the sizes and the time to live are in
    range, and the sizes of both keys together are at most 8,192 bytes.
    """

    partition_count: int = 4
    """How many partitions share the keys."""
    primary_key_size: int | None = None
    """The size of every primary key in bytes; None: any size from 1."""
    secondary_key_size: int | None = 0
    """The size of every secondary key in bytes; 0: the table has none; None: any size, also 0."""
    ttl_ms: int = 0
    """How long an entry lives after its last put, in milliseconds; 0: until it is removed."""

    def __post_init__(self) -> None:
        if not 1 <= self.partition_count <= PARTITION_COUNT_MAX:
            raise InvalidRequest(
                "the number of a table's partitions is out of range",
                remedy=f"use 1 to {PARTITION_COUNT_MAX}", partition_count=self.partition_count,
            )  # fmt: skip
        primary, secondary = self.primary_key_size, self.secondary_key_size
        fixed = (primary if primary is not None else 1) + (secondary or 0)
        if primary == 0 or fixed > KEY_SIZE_BYTES_MAX or min(primary or 1, secondary or 0) < 0:
            raise InvalidRequest(
                "a table's key sizes are out of range",
                remedy=f"use a primary key of at least 1 byte, and at most {KEY_SIZE_BYTES_MAX} "
                "bytes for both keys together",
                primary_key_size=primary, secondary_key_size=secondary,
            )  # fmt: skip
        if not 0 <= self.ttl_ms <= TTL_MS_MAX:
            raise InvalidRequest(
                "a table's time to live is out of range",
                remedy=f"use 0 (for ever) to {TTL_MS_MAX} ms", ttl_ms=self.ttl_ms,
            )  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """A key-value table by name."""

    scope: ScopeName
    table: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.table}"

    @property
    def segments(self) -> StreamRef:
        """The internal stream whose segments' names the partitions have."""
        return StreamRef(self.scope, StreamName(f"{TABLE_PREFIX}{self.table}"))


def table_ref(text: str) -> TableRef:
    """Parse ``scope/table``; the rules for stream names apply to tables. Raises InvalidName."""
    ref = stream_ref(text)
    if len(ref.stream) > TABLE_NAME_LENGTH_MAX:
        raise InvalidRequest(
            "the table's name is too long",
            remedy=f"use at most {TABLE_NAME_LENGTH_MAX} characters", table=ref.stream[:32],
        )  # fmt: skip
    return TableRef(ref.scope, ref.stream)


class TableKey(NamedTuple):
    """The two parts of a key."""

    primary: bytes
    secondary: bytes = b""


def key_position(primary: bytes) -> float:
    """The primary key's place in the key space, in [0, 1). Part of the stored data."""
    low: int = mmh3.hash64(primary, _ROUTING_SEED, x64arch=True, signed=False)[0]
    return (low >> _HASH_SHIFT) / float(_PLACES)


class PartitionMap:
    """The partition of each primary key. `starts`: the `key_start` of each partition, ascending."""

    __slots__ = ("_starts",)

    def __init__(self, starts: Iterable[float]) -> None:
        # A key's position is a whole number of places, so it compares alike with rounded bounds.
        # These are shifted, so that they compare with whole hashes. The first one is left out.
        first, *rest = [math.ceil(start * _PLACES) << _HASH_SHIFT for start in starts]
        assert first == 0
        self._starts = rest

    def indexes(self, primaries: Sequence[bytes]) -> list[int]:
        """The index of the partition of each primary key, in their order."""
        if not self._starts:
            return [0] * len(primaries)
        # The loops run in C, which takes less than half of the time of a comprehension.
        digests = b"".join(map(mmh3.mmh3_x64_128_digest, primaries, repeat(_ROUTING_SEED)))
        hashes = array("Q", digests)[::2]
        return list(map(bisect_right, repeat(self._starts), hashes))


def encode_key(config: TableConfig, key: TableKey) -> bytes:
    """The table key. Raises InvalidKey if the sizes do not fit the configuration."""
    primary, secondary = key
    _check_size("primary", len(primary), config.primary_key_size, 1)
    _check_size("secondary", len(secondary), config.secondary_key_size, 0)
    stored = primary_prefix(config, primary) + secondary
    if len(stored) > KEY_SIZE_BYTES_MAX:
        raise InvalidKey("the key is too long", size=len(stored), limit=KEY_SIZE_BYTES_MAX)
    if stored >= RESERVED_KEYS:
        raise InvalidKey(
            "the key is reserved",
            remedy="use a key that does not begin with 32 bytes FF", size=len(stored),
        )  # fmt: skip
    return stored


def primary_prefix(config: TableConfig, primary: bytes) -> bytes:
    """The beginning of the table keys of exactly this primary key. (If the table has no secondary
    keys, the table key itself.)"""
    if config.secondary_key_size == 0 or config.primary_key_size is not None:
        return primary
    return escape(primary) + _END_OF_PRIMARY


def escape(primary: bytes) -> bytes:
    """A primary key, or its beginning, as it is written in keys of a table with secondary keys and
    primary keys of any size."""
    return primary.replace(b"\x00", _ESCAPED_ZERO)


def decode_key(config: TableConfig, stored: bytes) -> TableKey:
    """Inverse of `encode_key`. Raises InvalidKey for bytes that are no key of such a table."""
    if config.secondary_key_size == 0:
        return TableKey(stored)
    size = config.primary_key_size
    if size is not None:
        return TableKey(stored[:size], stored[size:])
    primary, end, secondary = stored.partition(_END_OF_PRIMARY)
    # 00 occurs in the escaped primary key only as 00 FF, so the first 00 01 ends it.
    if not end:
        raise InvalidKey("the stored bytes are not a key of this table", size=len(stored))
    return TableKey(primary.replace(_ESCAPED_ZERO, b"\x00"), secondary)


def after_prefix(prefix: bytes) -> bytes:
    """The lowest key above all keys that begin with `prefix`; ``b""`` if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else b""


def _check_size(part: str, size: int, fixed: int | None, size_min: int) -> None:
    if size < size_min or (fixed is not None and size != fixed):
        raise InvalidKey(
            f"the {part} key has a wrong size",
            remedy="`anabranch table describe SCOPE/TABLE` shows the sizes of the table's keys",
            size=size, expected=fixed,
        )  # fmt: skip
