"""The updates of an open table: from keys and values to units of partitions, and back to versions
or errors.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, cast, overload

from anabranch.client.serializers import Serializer, serialized
from anabranch.client.tables.entries import (
    Insert,
    K,
    Put,
    Remove,
    Replace,
    TableUpdate,
    V,
    Version,
)
from anabranch.client.tables.keys import TableKeys
from anabranch.client.tables.partitions import Partitions
from anabranch.client.tables.units import (
    ENTRY_OVERHEAD_BYTES,
    FOREIGN,
    Outcome,
    Performed,
    Refused,
    size_of,
)
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    KeyExists,
    KeyNotFound,
    VersionMismatch,
)
from anabranch.common.model.table import TTL_MS_MAX, VALUE_SIZE_BYTES_MAX, TableConfig, TableRef
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX
from anabranch.common.wire.table_columns import ABSENT, ANY

BATCH_SIZE_BYTES = 1024 * 1024
"""About the size of each batch into which `put_many` divides its entries."""


class PutVersions(Sequence[Version]):
    """The versions of many entries, made when the first one is read: few programs read them.

    Each part is the places of a batch, and the version of its first entry; the next entry has the
    next number.
    """

    def __init__(self, parts: Sequence[tuple[Sequence[int], Version]], count: int) -> None:
        self._parts = parts
        self._count = count

    @cached_property
    def _all(self) -> list[Version]:
        versions = [self._parts[0][1]] * self._count
        for places, first in self._parts:
            segment_id, segment_number, number = first
            for at, place in enumerate(places, number):
                versions[place] = Version(segment_id, segment_number, at)
        return versions

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Version: ...

    @overload
    def __getitem__(self, index: slice) -> list[Version]: ...

    def __getitem__(self, index: int | slice) -> Version | list[Version]:
        return self._all[index]

    def __iter__(self) -> Iterator[Version]:
        return iter(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


class Updates(Generic[K, V]):
    """Performs updates and returns versions, or raises the error of the first refused entry."""

    def __init__(
        self,
        table: TableRef,
        config: TableConfig,
        keys: TableKeys[K],
        values: Serializer[V] | None,
        partitions: Partitions,
    ) -> None:
        self._table = table
        self._config = config
        self._keys = keys
        self._values = values
        self._partitions = partitions
        self._segment_ids = [each.segment_id for each in partitions.described]

    # --- one entry ------------------------------------------------------------------------

    async def put(self, key: K, value: V, condition: Version | int, ttl_ms: int | None) -> Version:
        """Put a value: `condition` is a version, ABSENT or ANY."""
        return await self._one(key, self._stored(value), condition, self._ttl_ms(ttl_ms))

    async def remove(self, key: K, condition: Version | int) -> Version:
        """Remove an entry: `condition` is a version or ANY."""
        return await self._one(key, None, condition, 0)

    async def _one(
        self, key: K, value: bytes | None, condition: Version | int, ttl_ms: int
    ) -> Version:
        index, stored = self._keys.place(key)
        number = 0
        conditions: tuple[int, ...] = ()
        if condition != ANY:
            number, wanted = self._wanted(index, condition)
            conditions = (wanted,)
        size = len(stored) + len(value or b"") + ENTRY_OVERHEAD_BYTES
        told = await self._partitions.update(
            index, ((stored,), (value,), conditions),
            size=size, segment_number=number, ttl_ms=ttl_ms,
        )  # fmt: skip
        outcome = await told
        if isinstance(outcome, Refused):
            raise self._refusal(index, outcome, stored, condition)
        return self._version(index, outcome)

    def _wanted(self, index: int, condition: Version | int) -> tuple[int, int]:
        """(segment number, condition) as the store compares them."""
        if isinstance(condition, int):
            return 0, condition
        is_own = condition.segment_id == self._segment_ids[index]
        return (condition.segment_number if is_own else FOREIGN), condition.number

    # --- a batch --------------------------------------------------------------------------

    async def batch(
        self, updates: Sequence[TableUpdate[K, V]], ttl_ms: int | None
    ) -> Sequence[Version]:
        """Perform all updates or none; see `Table.update`."""
        if not updates:
            return []
        index = self._only_partition([each.key for each in updates])
        stored = self._keys.places([each.key for each in updates])[1]
        values = [
            None if isinstance(each, Remove) else self._stored(each.value) for each in updates
        ]
        terms = [_condition(each) for each in updates]
        wanted = [self._wanted(index, each) for each in terms]
        numbers = {number for number, _ in wanted if number} or {0}
        conditions = [condition for _, condition in wanted]
        if len(numbers) > 1:
            # The versions are of several lives of the partition: at most one of them is its own.
            numbers, conditions = self._of_one_life(numbers, wanted)
        told = await self._partitions.update(
            index, (stored, values, conditions),
            size=size_of(stored, values), segment_number=numbers.pop(), ttl_ms=self._ttl_ms(ttl_ms),
        )  # fmt: skip
        outcome = await told
        if isinstance(outcome, Refused):
            at = outcome.entry
            raise self._refusal(index, outcome, stored[at], terms[at])
        return PutVersions([(range(len(stored)), self._version(index, outcome))], len(stored))

    def _of_one_life(
        self, numbers: set[int], wanted: Sequence[tuple[int, int]]
    ) -> tuple[set[int], list[int]]:
        """Send the versions of the newest life; no version equals the largest number."""
        newest = max(numbers)
        return {newest}, [
            condition if number in (0, newest) else _NEVER for number, condition in wanted
        ]

    def _only_partition(self, keys: Sequence[K]) -> int:
        """The index of the partition of all keys. Raises InvalidRequest for several primary keys,
        unless the table has a single partition."""
        if len(self._segment_ids) == 1:
            return 0
        if len({self._keys.parts(key).primary for key in keys}) > 1:
            raise InvalidRequest(
                "the keys of an atomic batch have several primary keys",
                remedy="use keys that share their primary key, or `put_many`",
                table=str(self._table),
            )
        return self._keys.place(keys[0])[0]

    # --- many entries ---------------------------------------------------------------------

    async def put_many(
        self, pairs: Iterable[tuple[K, V]] | Mapping[K, V], ttl_ms: int | None
    ) -> Sequence[Version]:
        """Put all entries, in batches per partition; see `Table.put_many`."""
        keys, values = _columns(pairs)
        if not keys:
            return []
        indexes, stored = self._keys.places(keys)
        data = self._stored_values(values)
        batches = list(_batches(indexes, stored, data))
        is_divided = len({batch.partition for batch in batches}) < len(batches)
        in_turn = is_divided and len(set(stored)) < len(stored)
        sent: list[tuple[_Batch, asyncio.Future[Outcome]]] = []
        for batch in batches:
            told = await self._partitions.update(
                batch.partition, (batch.keys, batch.values, ()),
                size=batch.size, ttl_ms=self._ttl_ms(ttl_ms),
            )  # fmt: skip
            sent.append((batch, told))
            if in_turn:  # a later value of the same key must not be overtaken
                await asyncio.wait([told])
        await asyncio.wait([told for _, told in sent])
        parts: list[tuple[Sequence[int], Version]] = []
        for batch, told in sent:
            outcome = told.result()
            assert isinstance(outcome, Performed), "a batch without conditions is not refused"
            parts.append((batch.places, self._version(batch.partition, outcome)))
        return PutVersions(parts, len(keys))

    def _version(self, index: int, outcome: Performed) -> Version:
        return Version(self._segment_ids[index], outcome.segment_number, outcome.version)

    # --- values and errors ----------------------------------------------------------------

    def _stored(self, value: V) -> bytes:
        data = _as_bytes(value) if self._values is None else serialized(self._values, value)
        if len(data) > VALUE_SIZE_BYTES_MAX:
            raise InvalidRequest("a value is too large", size=len(data), limit=VALUE_SIZE_BYTES_MAX)
        return data

    def _stored_values(self, values: Sequence[V]) -> Sequence[bytes]:
        if self._values is not None or set(map(type, values)) != {bytes}:
            return [self._stored(value) for value in values]
        data = cast(Sequence[bytes], values)
        if max(map(len, data)) > VALUE_SIZE_BYTES_MAX:
            return [self._stored(value) for value in values]  # raises for the first that is
        return data

    def _ttl_ms(self, given: int | None) -> int:
        if given is None:
            return self._config.ttl_ms
        if not 0 <= given <= TTL_MS_MAX:
            raise InvalidRequest("a time to live is out of range", ttl_ms=given, limit=TTL_MS_MAX)
        return given

    def _refusal(
        self, index: int, refused: Refused, stored: bytes, condition: Version | int
    ) -> AnabranchError:
        fields: dict[str, Any] = {"table": str(self._table), "key": self._keys.text(stored)}
        if refused.version == ABSENT:
            return KeyNotFound("the key has no entry", **fields)
        present = Version(self._segment_ids[index], refused.segment_number, refused.version)
        if condition == ABSENT:
            return KeyExists("the key has an entry", **fields, version=str(present))
        return VersionMismatch("the entry has another version", **fields, version=str(present))


def _as_bytes(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise InvalidRequest("a value is not valid Unicode text") from error
        case bytearray() | memoryview():
            return bytes(value)
    raise InvalidRequest("a value must be bytes or text", type=type(value).__name__)


_NEVER = (1 << 63) - 1
"""A version that no entry has: offsets do not get that far."""


def _condition(update: TableUpdate[Any, Any]) -> Version | int:
    match update:
        case Put():
            return ANY
        case Insert():
            return ABSENT
        case Replace(version=version):
            return version
        case Remove(version=expected):
            return ANY if expected is None else expected


def _columns(
    pairs: Iterable[tuple[K, V]] | Mapping[K, V],
) -> tuple[Sequence[K], Sequence[V]]:
    if isinstance(pairs, Mapping):  # without a tuple for each pair
        return list(pairs), list(pairs.values())
    listed = list(pairs)
    keys, values = zip(*listed, strict=True) if listed else ((), ())
    return keys, values


class _Batch(NamedTuple):
    """A part of the entries of `put_many`: the partition's index, and the places in the call."""

    partition: int
    places: Sequence[int]
    keys: Sequence[bytes]
    values: Sequence[bytes]
    size: int


def _batches(
    indexes: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
) -> Iterator[_Batch]:
    """The entries of each partition, in their order, divided at the limits."""
    groups: dict[int, Sequence[int]] = {indexes[0]: range(len(keys))}
    if min(indexes) != max(indexes):
        lists: dict[int, list[int]] = {index: [] for index in set(indexes)}
        for place, index in enumerate(indexes):
            lists[index].append(place)
        groups = dict(lists)
    for index, places in groups.items():
        is_all = len(places) == len(keys)
        own_keys = keys if is_all else [keys[place] for place in places]
        own_values = values if is_all else [values[place] for place in places]
        whole = _Batch(index, places, own_keys, own_values, size_of(own_keys, own_values))
        if whole.size <= BATCH_SIZE_BYTES and len(places) <= UPDATE_ENTRIES_MAX:
            yield whole
        else:
            yield from _split(whole)


def _split(whole: _Batch) -> Iterator[_Batch]:
    """Batches of at most `UPDATE_ENTRIES_MAX` entries; the last entry of each, except of the last
    batch, reaches `BATCH_SIZE_BYTES`."""
    partition, places, keys, values, _ = whole
    low = size = 0
    last = len(keys) - 1
    for at, (key, value) in enumerate(zip(keys, values, strict=True)):
        size += len(key) + len(value) + ENTRY_OVERHEAD_BYTES
        high = at + 1
        if size >= BATCH_SIZE_BYTES or high - low == UPDATE_ENTRIES_MAX or at == last:
            yield _Batch(partition, places[low:high], keys[low:high], values[low:high], size)
            low, size = high, 0
