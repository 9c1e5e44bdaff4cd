"""Table blocks, which hold the entries of key-value tables.

A table segment holds *table blocks*: blocks (`block.py`) with FLAG_TABLE. One block is one accepted
update: its entries become visible together. Each entry is an event of the block, with the table key
as routing key (any bytes). Its payload is a form, one byte, and then::

    PUT        value
    REMOVE     nothing
    PUT_FOR    u64 ttl_ms, value; the entry expires `ttl_ms` after the block's base timestamp
    COPY       u64 version, i64 expires_ms, value; compaction moved the entry here
    REFUSED    refusals (`table_columns.py`); always last, under the empty key; not an entry

The header's writer id and first event number are the client's id and the number of its request.
The store that accepts a block sets the base timestamp to its own time (`stamped`).

The *version* of an entry is the offset of its block in the segment plus its index in the block. It
is unique in the segment and grows with every update. A copy keeps the version that it had.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, cast

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
from anabranch.common.wire.table_columns import (
    Refusal,
    decode_refusals,
    encode_refusals,
    sliced,
)

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
_COUNT = struct.Struct("<I")
_TIMESTAMP_AT = HEADER_SIZE_BYTES - 16
_TIMESTAMP = struct.Struct("<q")
_NUMBER_LIMIT = 1 << 63


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
    are_alike = None not in values and not (ttl_ms and max(keys) >= RESERVED_KEYS)
    if are_alike and values and not refusals:
        puts = cast("Sequence[bytes]", values)
        sizes = array("I", [len(form) + len(value) for value in puts])
        joined = [form, form.join(puts)]
        return _encode(keys, joined, client_id, request_number, time_ms, sizes=sizes)
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
    *,
    sizes: "array[int] | None" = None,
) -> bytes:
    """The block; `sizes` are those of the payloads if these are in other pieces."""
    sizes = array("I", map(len, payloads)) if sizes is None else sizes
    assert len(keys) == len(sizes)
    columns = BlockColumns(
        sizes.tobytes(),
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
    return _block(header, _divided(header, body, offset), offset)


@dataclass(slots=True)
class _Body:
    """The body of a table block. The payloads begin at `payloads_at`; `forms` are their first
    bytes."""

    data: bytes
    keys: list[bytes]
    sizes: "array[int]"
    payloads_at: int
    forms: bytes

    def payloads(self) -> list[bytes]:
        """The payload of each entry."""
        return sliced(self.data, self.sizes, self.payloads_at)

    def values(self) -> list[bytes]:
        """The payload of each entry without its form."""
        return sliced(self.data, self.sizes, self.payloads_at, 1)

    def pop(self) -> bytes:
        """Remove the last entry; return its payload."""
        self.keys.pop()
        self.forms = self.forms[:-1]
        end = self.payloads_at + sum(self.sizes)
        return self.data[end - self.sizes.pop() : end]


def _divided(header: BlockHeader, body: bytes, offset: int) -> _Body:
    """Raises MalformedBlock."""
    count = header.event_count
    sizes = array("I", body[: 4 * count])
    key_sizes = array("H", body[4 * count : 6 * count])
    keys_at = header.columns_size + header.payloads_size
    if sum(sizes) != header.payloads_size or keys_at + sum(key_sizes) != len(body):
        raise MalformedBlock("a table block's lengths do not add up", offset=offset)
    if 0 in sizes:
        raise MalformedBlock("an entry of a table block is truncated", offset=offset)
    if sizes.count(sizes[0]) == count:
        forms = body[header.columns_size : keys_at : sizes[0]]
    else:
        forms = bytes([body[at] for at in accumulate(sizes[:-1], initial=header.columns_size)])
    return _Body(body, sliced(body, key_sizes, keys_at), sizes, header.columns_size, forms)


def _block(header: BlockHeader, body: _Body, offset: int) -> TableBlock:
    refusals: tuple[Refusal, ...] = ()
    if body.forms[-1] == REFUSED:
        refusals = _refusals_in(body.pop(), offset)
    count = len(body.keys)
    forms = set(body.forms)
    copies = forms == {COPY}
    versions: Sequence[int] = range(offset, offset + count)
    expires: Sequence[int] = [0] * count
    values: Sequence[bytes | None]
    if forms <= {PUT}:
        values = body.values()
    elif forms <= {PUT, REMOVE}:
        columns = zip(body.forms, body.values(), strict=True)
        values = [None if form == REMOVE else value for form, value in columns]
    else:
        read = _copies if copies else _mortals
        versions, expires, values = read(header, body.payloads(), offset)
    return TableBlock(
        header.writer_id, header.first_event_number, header.base_timestamp_ms,
        body.keys, values, versions, expires, copies, refusals,
    )  # fmt: skip


_Columns = tuple[Sequence[int], Sequence[int], Sequence[bytes | None]]
"""Versions, expires_ms and values."""


def _copies(_: BlockHeader, payloads: list[bytes], offset: int) -> _Columns:
    if min(map(len, payloads)) < _COPY.size:
        raise MalformedBlock("an entry of a table block is truncated", offset=offset)
    heads = [_COPY.unpack_from(payload) for payload in payloads]
    versions = [version for _, version, _ in heads]
    if max(versions) >= _NUMBER_LIMIT:
        raise MalformedBlock("a version of a copy is out of range", offset=offset)
    return versions, [until for _, _, until in heads], [each[_COPY.size :] for each in payloads]


def _mortals(header: BlockHeader, payloads: list[bytes], offset: int) -> _Columns:
    try:
        found = [_mortal(payload, header.base_timestamp_ms) for payload in payloads]
    except struct.error as error:
        raise MalformedBlock("an entry of a table block is truncated", offset=offset) from error
    versions = range(offset, offset + len(payloads))
    return versions, [until for _, until in found], [value for value, _ in found]


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
        expires_ms=[until and until + later for until in block.expires_ms]
        if any(block.expires_ms)
        else block.expires_ms,
    )


def kept_entries(data: bytes, kept: Sequence[int], refusals: Sequence[Refusal]) -> bytes:
    """The verified table block with only these entries (their numbers, ascending), and the
    refusals of the others."""
    header = parse_header(data)
    body = _divided(header, data[HEADER_SIZE_BYTES : header.size], 0)
    payloads = body.payloads()
    keys, payloads = [body.keys[entry] for entry in kept], [payloads[entry] for entry in kept]
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
    largest = max(map(len, filter(None, block.values)), default=0)
    if largest > VALUE_SIZE_BYTES_MAX:
        raise InvalidRequest("a value is too large", size=largest, limit=VALUE_SIZE_BYTES_MAX)
