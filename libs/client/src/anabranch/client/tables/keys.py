"""The keys of one table: from a program's keys to table keys and partitions, and back. Pure.

A table without secondary keys has plain keys. Otherwise a key is a pair (primary, secondary); each
part has a serializer of its own, or both share one. Without a serializer, a part is bytes or text,
and comes back as bytes.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, cast

from anabranch.client.serializers import Serializer, serialized
from anabranch.client.tables.entries import K
from anabranch.common.contracts.tables import TableDescription
from anabranch.common.errors import InvalidKey, InvalidRequest
from anabranch.common.model.table import (
    KEY_SIZE_BYTES_MAX,
    RESERVED_KEYS,
    PartitionMap,
    TableKey,
    after_prefix,
    decode_key,
    encode_key,
    escape,
    primary_prefix,
)

PartSerializer = Serializer[Any] | None
KeySerializers = PartSerializer | tuple[Serializer[Any], Serializer[Any]]
"""Of both parts of the keys, or (of the primary, of the secondary part)."""

_TEXT_LENGTH_MAX = 200


class TableKeyRange(NamedTuple):
    """The table keys in [start, end). `partition`: the index of the only partition that has them;
    None: all may."""

    start: bytes
    end: bytes
    partition: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.end <= self.start


class TableKeys(Generic[K]):
    """The keys of the described table."""

    def __init__(self, description: TableDescription, serializers: KeySerializers) -> None:
        """Raises InvalidRequest for a pair of serializers if the table has no secondary keys."""
        self.config = description.config
        self.has_pairs = self.config.secondary_key_size != 0
        self._partitions = PartitionMap(each.key_start for each in description.partitions)
        if isinstance(serializers, tuple) and not self.has_pairs:
            raise InvalidRequest(
                "the table has no secondary keys, but the keys have two serializers",
                remedy="give one serializer",
                table=f"{description.scope}/{description.table}",
            )
        self._serializers: tuple[PartSerializer, PartSerializer] = (
            serializers if isinstance(serializers, tuple) else (serializers, serializers)
        )

    # --- keys -----------------------------------------------------------------------------

    def place(self, key: K) -> tuple[int, bytes]:
        """(index of the partition, table key). Raises InvalidKey, SerializationFailed."""
        parts = self.parts(key)
        stored = encode_key(self.config, parts)
        return self._partitions.indexes((parts.primary,))[0], stored

    def places(self, keys: Sequence[K]) -> tuple[Sequence[int], Sequence[bytes]]:
        """The index of the partition and the table key of each key. Raises as `place`."""
        if self.has_pairs:
            parts = [self.parts(key) for key in keys]
            stored: Sequence[bytes] = [encode_key(self.config, each) for each in parts]
            return self._partitions.indexes([each.primary for each in parts]), stored
        stored = self._primaries(keys)
        if not stored:
            return (), ()
        sizes = set(map(len, stored))
        least = self.config.primary_key_size or 1
        most = self.config.primary_key_size or KEY_SIZE_BYTES_MAX
        if not least <= min(sizes) <= max(sizes) <= most or max(stored) >= RESERVED_KEYS:
            for primary in stored:
                encode_key(self.config, TableKey(primary))  # raises for the first that is wrong
        return self._partitions.indexes(stored), stored

    def _primaries(self, keys: Sequence[K]) -> Sequence[bytes]:
        serializer = self._serializers[0]
        if serializer is not None:
            return [serialized(serializer, key) for key in keys]
        if set(map(type, keys)) <= {bytes}:
            return cast(Sequence[bytes], keys)
        return [_part(key, None) for key in keys]

    def parts(self, key: K) -> TableKey:
        """Both parts of a key, as bytes. Raises InvalidKey, SerializationFailed."""
        if not self.has_pairs:
            return TableKey(_part(key, self._serializers[0]))
        if not isinstance(key, tuple) or len(key) != 2:
            raise InvalidKey(
                "a key of this table is a pair of a primary and a secondary key",
                type=type(key).__name__,
            )
        of_primary, of_secondary = self._serializers
        return TableKey(_part(key[0], of_primary), _part(key[1], of_secondary))

    def decode(self, stored: bytes) -> K:
        """Inverse of `place`. Raises InvalidKey, SerializationFailed."""
        of_primary, of_secondary = self._serializers
        if self.has_pairs:
            parts = decode_key(self.config, stored)
            if of_primary is None or of_secondary is None:
                return cast(K, parts)
            pair = of_primary.deserialize(parts.primary), of_secondary.deserialize(parts.secondary)
            return cast(K, pair)
        return cast(K, stored if of_primary is None else of_primary.deserialize(stored))

    @property
    def are_stored_unchanged(self) -> bool:
        """Whether `decode` returns the table key itself."""
        return not self.has_pairs and self._serializers[0] is None

    def text(self, stored: bytes) -> str:
        """The table key as text for an error, perhaps cut."""
        parts = decode_key(self.config, stored)
        shown = parts.primary.decode(errors="backslashreplace")
        if self.has_pairs:
            shown += ", " + parts.secondary.decode(errors="backslashreplace")
        return shown[:_TEXT_LENGTH_MAX]

    # --- ranges ---------------------------------------------------------------------------

    def range(
        self,
        *,
        start: object = None,
        end: object = None,
        prefix: object = None,
        primary: object = None,
    ) -> TableKeyRange:
        """The range of a scan; None leaves a bound out, and several bounds all hold. Reserved keys
        are never in it.

        With `primary`, the others bound the secondary keys of its family. Otherwise a bound of a
        table with secondary keys is a pair or a primary key, and a prefix that of primary keys.
        Raises InvalidKey, InvalidRequest, SerializationFailed.
        """
        if primary is None:
            return self._of_all(start, end, prefix)
        own = _part(primary, self._serializers[0])
        encode_key(self.config, TableKey(own, b"\0" * (self.config.secondary_key_size or 0)))
        index = self._partitions.indexes((own,))[0]
        if not self.has_pairs:
            if (start, end, prefix) != (None, None, None):
                raise InvalidRequest(
                    "the table has no secondary keys that could be bounded",
                    remedy="leave `primary` out",
                )
            return TableKeyRange(own, own + b"\0", index)
        family, of_secondary = primary_prefix(self.config, own), self._serializers[1]
        bounds = [None if each is None else _part(each, of_secondary) for each in (start, end)]
        begins = family if prefix is None else family + _part(prefix, of_secondary)
        low = family + (bounds[0] or b"")
        high = None if bounds[1] is None else family + bounds[1]
        return _within(begins, low, high)._replace(partition=index)

    def _of_all(self, start: object, end: object, prefix: object) -> TableKeyRange:
        low = b"" if start is None else self._bound(start)
        high = None if end is None else self._bound(end)
        begins = b""
        if prefix is not None:
            begins = _part(prefix, self._serializers[0])
            size = self.config.primary_key_size
            if self.has_pairs and size is None:
                begins = escape(begins)
            elif size is not None and len(begins) > size:
                raise InvalidKey(
                    "the prefix is longer than the table's primary keys",
                    size=len(begins), limit=size,
                )  # fmt: skip
        return _within(begins, low, high)

    def _bound(self, bound: object) -> bytes:
        of_primary = self._serializers[0]
        if not self.has_pairs:
            return _part(bound, of_primary)
        if not isinstance(bound, tuple):
            return primary_prefix(self.config, _part(bound, of_primary))
        parts = self.parts(cast(K, bound))
        size = self.config.primary_key_size
        if size is not None and len(parts.primary) != size:
            raise InvalidKey(
                "the primary key has a wrong size", size=len(parts.primary), expected=size
            )
        return primary_prefix(self.config, parts.primary) + parts.secondary


def _within(begins: bytes, low: bytes, high: bytes | None) -> TableKeyRange:
    """The keys in [low, high) that begin with `begins`. Raises InvalidKey for a bound too long."""
    ends = [end for end in (high, after_prefix(begins) or None) if end is not None]
    found = TableKeyRange(max(begins, low), min([*ends, RESERVED_KEYS]))
    size = max(len(found.start), len(found.end))
    if size > 2 * KEY_SIZE_BYTES_MAX:  # zeros in primary keys take two bytes
        raise InvalidKey("a bound is too long", size=size, limit=2 * KEY_SIZE_BYTES_MAX)
    return found


def _part(part: object, serializer: PartSerializer) -> bytes:
    """The bytes of a part of a key. Raises InvalidKey, SerializationFailed."""
    if serializer is not None:
        return serialized(serializer, part)
    match part:
        case bytes():
            return part
        case str():
            try:
                return part.encode()
            except UnicodeEncodeError as error:
                raise InvalidKey("a key is not valid Unicode text") from error
        case bytearray() | memoryview():
            return bytes(part)
    raise InvalidKey("a key must be bytes or text", type=type(part).__name__)
