"""Table blocks and the columns of table requests and answers.

A table segment holds *table blocks*: blocks (`block.py`) with FLAG_TABLE. One block is one accepted
update: its entries become visible together. Each entry is an event of the block, with the table key
as routing key (any bytes). Its payload is a form, one byte, and then::

    PUT        value
    REMOVE     nothing
    PUT_FOR    u64 ttl_ms, value; the entry expires `ttl_ms` after the block's base timestamp
    COPY       u64 version, i64 expires_ms, value; compaction moved the entry here
    REFUSED    refusals (below); always last, under the empty key; not an entry

The header's writer id and first event number are the client's id and the number of its request.
The store that accepts a block sets the base timestamp to its own time (`stamped`).

The *version* of an entry is the offset of its block in the segment plus its index in the block. It
is unique in the segment and grows with every update. A copy keeps the version that it had.

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
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from crc32c import crc32c

from anabranch.common.errors import BadPacket, CorruptBlock, InvalidRequest, MalformedBlock
from anabranch.common.model.table import (
    KEY_SIZE_BYTES_MAX,
    RESERVED_KEYS,
    TTL_MS_MAX,
    VALUE_SIZE_BYTES_MAX,
)
from anabranch.common.wire.block import (
    CRC_AT,
    FLAG_KEYS,
    FLAG_TABLE,
    HEADER_SIZE_BYTES,
    BlockHeader,
    parse_header,
    verify_block,
)
from anabranch.common.wire.block_encoding import BlockColumns, encode_columns
from anabranch.common.wire.codec import CODEC_NONE

ANY, ABSENT = -2, -1
"""Conditions: none; the key has no entry."""

UPDATE_ENTRIES_MAX = 4096
UPDATE_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Of one update, as a block."""
GET_KEYS_MAX = 4096
"""Of one request for entries."""

PUT, REMOVE, PUT_FOR, COPY, REFUSED = 0, 1, 2, 3, 4
_FORMS = tuple(bytes((form,)) for form in range(5))
_PUT_FORM, _REMOVE_FORM = _FORMS[PUT], _FORMS[REMOVE]
_PUT_FOR = struct.Struct("<BQ")
_COPY = struct.Struct("<BQq")
COPY_OVERHEAD_BYTES = _COPY.size + 6
"""Of a copy in a block, beyond its key and value: with the sizes of both."""
_REFUSAL = struct.Struct("<HHq")
_COUNT = struct.Struct("<I")
_TIMESTAMP_AT = HEADER_SIZE_BYTES - 16
_TIMESTAMP = struct.Struct("<q")
_NUMBER_LIMIT = 1 << 63


class Refusal(NamedTuple):
    """A unit that was not performed, because of the entry number `entry` (from 0) of the update:
    the key's version is `version`, or ABSENT."""

    unit: int
    entry: int
    version: int


class Copied(NamedTuple):
    """An entry that compaction moves."""

    key: bytes
    version: int
    expires_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class TableBlock:
    """The entries of a table block that begins at some offset of its segment, in their order.

    `values[i]` is None if the update removed the key. `expires_ms[i]` is 0 if the entry never
    expires. `copies`: the entries are moved ones, with the versions that they had.
    """

    client_id: bytes
    request_number: int
    time_ms: int
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    versions: Sequence[int]
    expires_ms: Sequence[int]
    copies: bool
    refusals: tuple[Refusal, ...]


def encode_update(
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    *,
    client_id: bytes,
    request_number: int,
    ttl_ms: int = 0,
    refusals: Sequence[Refusal] = (),
    time_ms: int = 0,
) -> bytes:
    """A table block that puts each value, or removes the key if the value is None.

    The caller has checked the sizes of keys and values. Entries with reserved keys never expire.
    `refusals` and `time_ms` are the store's.
    """
    form = _PUT_FOR.pack(PUT_FOR, ttl_ms) if ttl_ms else _PUT_FORM
    payloads = [_REMOVE_FORM if value is None else form + value for value in values]
    if ttl_ms and max(keys) >= RESERVED_KEYS:
        for entry, (key, value) in enumerate(zip(keys, values, strict=True)):
            if key >= RESERVED_KEYS and value is not None:
                payloads[entry] = _PUT_FORM + value
    if refusals:
        keys = [*keys, b""]
        payloads.append(_FORMS[REFUSED] + encode_refusals(refusals))
    return _encode(keys, payloads, client_id, request_number, time_ms)


def encode_copies(
    copies: Sequence[Copied], *, client_id: bytes, request_number: int, time_ms: int
) -> bytes:
    """A table block of moved entries."""
    payloads = [_COPY.pack(COPY, each.version, each.expires_ms) + each.value for each in copies]
    return _encode([each.key for each in copies], payloads, client_id, request_number, time_ms)


def _encode(
    keys: Sequence[bytes],
    payloads: Sequence[bytes],
    client_id: bytes,
    request_number: int,
    time_ms: int,
) -> bytes:
    assert len(keys) == len(payloads)
    columns = BlockColumns(
        array("I", map(len, payloads)).tobytes(),
        payloads,
        array("H", map(len, keys)).tobytes(),
        b"".join(keys),
    )
    return encode_columns(
        columns,
        writer_id=client_id,
        first_event_number=request_number,
        base_timestamp_ms=time_ms,
        flags=FLAG_TABLE,
    )


def stamped(block: bytes, time_ms: int) -> bytes:
    """The block with this base timestamp and a checksum that fits. It must have been verified."""
    head = block[:_TIMESTAMP_AT] + _TIMESTAMP.pack(time_ms) + block[_TIMESTAMP_AT + 8 : CRC_AT]
    body = memoryview(block)[HEADER_SIZE_BYTES:]
    return b"".join((head, _COUNT.pack(crc32c(body, crc32c(head))), body))


def parse_table_block(data: bytes | memoryview, offset: int, at: int = 0) -> TableBlock:
    """Verify and parse the table block at `at` of `data`; in its segment it begins at `offset`.

    Raises CorruptBlock (checksum, not a table block), MalformedBlock (its writer encoded it wrong),
    FormatTooNew.
    """
    header = verify_block(data, at)
    if not header.flags & FLAG_TABLE:
        raise CorruptBlock("a table segment holds a block that is not a table block", at=at)
    if header.codec != CODEC_NONE or not header.flags & FLAG_KEYS:
        raise MalformedBlock("a table block is compressed or has no keys", offset=offset)
    # One copy as bytes, because slices of bytes are what callers keep.
    body = bytes(memoryview(data)[at + HEADER_SIZE_BYTES : at + header.size])
    keys, payloads = _columns(header, body, offset)
    return _block(header, keys, payloads, offset)


def _columns(header: BlockHeader, body: bytes, offset: int) -> tuple[list[bytes], list[bytes]]:
    count = header.event_count
    lengths = array("I", body[: 4 * count])
    key_lengths = array("H", body[4 * count : 6 * count])
    bounds = list(accumulate(lengths, initial=header.columns_size))
    key_bounds = list(accumulate(key_lengths, initial=header.columns_size + header.payloads_size))
    if bounds[-1] != header.columns_size + header.payloads_size or key_bounds[-1] != len(body):
        raise MalformedBlock("a table block's lengths do not add up", offset=offset)
    return (
        [body[low:high] for low, high in pairwise(key_bounds)],
        [body[low:high] for low, high in pairwise(bounds)],
    )


def _block(
    header: BlockHeader, keys: list[bytes], payloads: list[bytes], offset: int
) -> TableBlock:
    refusals: tuple[Refusal, ...] = ()
    if payloads[-1][:1] == _FORMS[REFUSED]:
        refusals = _refusals_in(payloads.pop(), offset)
        keys.pop()
    forms = {payload[:1] for payload in payloads}
    copies = False
    try:
        if forms <= {_PUT_FORM, _REMOVE_FORM}:
            values: list[bytes | None] = (
                [payload[1:] for payload in payloads]
                if _REMOVE_FORM not in forms
                else [payload[1:] if payload[0] == PUT else None for payload in payloads]
            )
            versions: Sequence[int] = range(offset, offset + len(keys))
            expires: Sequence[int] = [0] * len(keys)
        elif forms == {_FORMS[COPY]}:
            copies = True
            heads = [_COPY.unpack_from(payload) for payload in payloads]
            values = [payload[_COPY.size :] for payload in payloads]
            versions = [version for _, version, _ in heads]
            expires = [until for _, _, until in heads]
            if max(versions) >= _NUMBER_LIMIT:
                raise MalformedBlock("a version of a copy is out of range", offset=offset)
        else:
            versions = range(offset, offset + len(keys))
            found = [_mortal(payload, header.base_timestamp_ms) for payload in payloads]
            values = [value for value, _ in found]
            expires = [until for _, until in found]
    except (struct.error, IndexError) as error:
        raise MalformedBlock("an entry of a table block is truncated", offset=offset) from error
    return TableBlock(
        header.writer_id, header.first_event_number, header.base_timestamp_ms,
        keys, values, versions, expires, copies, refusals,
    )  # fmt: skip


def _refusals_in(payload: bytes, offset: int) -> tuple[Refusal, ...]:
    try:
        return decode_refusals(payload[1:])
    except BadPacket as error:
        raise MalformedBlock("the refusals of a block are truncated", offset=offset) from error


def _mortal(payload: bytes, time_ms: int) -> tuple[bytes | None, int]:
    """(value, expires_ms) of an entry in a block with a time to live."""
    match payload[0]:
        case 0:
            return payload[1:], 0
        case 1:
            return None, 0
        case 2:
            _, ttl_ms = _PUT_FOR.unpack_from(payload)
            if not 0 < ttl_ms <= TTL_MS_MAX or time_ms + ttl_ms >= _NUMBER_LIMIT:
                raise MalformedBlock("a time to live is out of range", ttl_ms=ttl_ms)
            return payload[_PUT_FOR.size :], time_ms + ttl_ms
        case form:
            raise MalformedBlock("an entry of a table block has an unknown form", form=form)


def placed(block: TableBlock, offset: int, time_ms: int) -> TableBlock:
    """The entries of a parsed update, as they are after `stamped` and an append at `offset`."""
    later = time_ms - block.time_ms
    return replace(
        block,
        time_ms=time_ms,
        versions=range(offset, offset + len(block.keys)),
        expires_ms=[until and until + later for until in block.expires_ms],
    )


def kept_entries(data: bytes, kept: Sequence[int], refusals: Sequence[Refusal]) -> bytes:
    """The verified table block with only these entries (their numbers, ascending), and the
    refusals of the others."""
    header = parse_header(data)
    keys, payloads = _columns(header, data[HEADER_SIZE_BYTES : header.size], 0)
    keys, payloads = [keys[entry] for entry in kept], [payloads[entry] for entry in kept]
    if refusals:
        keys.append(b"")
        payloads.append(_FORMS[REFUSED] + encode_refusals(refusals))
    return _encode(
        keys, payloads, header.writer_id, header.first_event_number, header.base_timestamp_ms
    )


def check_sizes(block: TableBlock) -> None:
    """Check the sizes of keys and values. Raises InvalidRequest, naming the first one."""
    longest = max(map(len, block.keys))
    if longest > KEY_SIZE_BYTES_MAX or b"" in block.keys:
        raise InvalidRequest(
            "a table key is empty or too long", size=longest, limit=KEY_SIZE_BYTES_MAX
        )
    largest = max((len(value) for value in block.values if value is not None), default=0)
    if largest > VALUE_SIZE_BYTES_MAX:
        raise InvalidRequest("a value is too large", size=largest, limit=VALUE_SIZE_BYTES_MAX)


# --- columns --------------------------------------------------------------------------------------


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
    bounds = list(accumulate(sizes, initial=4 + 4 * count))
    if len(sizes) != count or bounds[-1] != len(column):
        raise BadPacket("a column of keys has a wrong size", size=len(column), keys=count)
    return [column[low:high] for low, high in pairwise(bounds)]


class Row(NamedTuple):
    """An entry in an answer; `version` is ABSENT if the key has none."""

    key: bytes
    version: int
    expires_ms: int
    value: bytes


NO_ROW = Row(b"", ABSENT, 0, b"")


def encode_rows(rows: Sequence[Row]) -> bytes:
    """The columns of rows. An answer to a get may leave out the keys (`b""`)."""
    if not rows:
        return _COUNT.pack(0)
    keys, versions, expires, values = zip(*rows, strict=True)
    return b"".join(
        (
            _COUNT.pack(len(rows)),
            array("q", versions).tobytes(),
            array("q", expires).tobytes(),
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
        data, bounds = self.data, accumulate(self.key_sizes, initial=self.keys_at)
        return [data[low:high] for low, high in pairwise(bounds)]

    def values(self) -> list[bytes]:
        """The value of each row."""
        data, bounds = self.data, accumulate(self.value_sizes, initial=self.values_at)
        return [data[low:high] for low, high in pairwise(bounds)]


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
