"""Encodes events and columns as blocks, in the layout that `block` describes."""

import struct
from array import array
from collections.abc import Sequence
from typing import cast

from crc32c import crc32c
from msgspec import Struct

from anabranch.common.errors import EventTooLarge, InvalidRequest
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    CRC_AT,
    EVENT_SIZE_BYTES_MAX,
    FLAG_KEYS,
    FLAG_PART,
    FLAG_TIMESTAMPS,
    FORMAT,
    HEADER,
    HEADER_SIZE_BYTES,
    KEY_SIZE_BYTES_MAX,
    MAGIC,
    NO_KEY,
    PART_SIZE_BYTES_MAX,
)
from anabranch.common.wire.codec import CODEC_NONE, CODEC_ZSTD, compress_zstd


def encode_block(
    events: Sequence[bytes],
    *,
    writer_id: bytes,
    first_event_number: int,
    base_timestamp_ms: int,
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    zstd_level: int | None = None,
    flags: int = 0,
) -> bytes:
    """Encode one block of 1 … n events; keys and timestamps, if given, have one item per event.

    `zstd_level`: compress with this level if that makes the block smaller. `flags`: FLAG_LARGE
    or 0. Raises EventTooLarge, InvalidRequest, CodecMissing.
    """
    if not events:
        raise InvalidRequest("a block needs at least one event")
    assert len(writer_id) == 16
    lengths = array("I", map(len, events))
    if max(lengths) > EVENT_SIZE_BYTES_MAX:
        raise EventTooLarge("an event is over the limit", size=max(lengths))
    key_lengths, joined_keys, stamps = b"", b"", b""
    if keys is not None and any(key is not None for key in keys):
        assert len(keys) == len(events)
        stored = keys if all(keys) else [key for key in keys if key is not None]
        key_lengths = _key_lengths(keys, cast(Sequence[bytes], stored))
        joined_keys = b"".join(cast(Sequence[bytes], stored))
    if timestamps_ms is not None:
        assert len(timestamps_ms) == len(events)
        stamps = array("q", timestamps_ms).tobytes()
    return encode_columns(
        BlockColumns(lengths.tobytes(), events, key_lengths, joined_keys, stamps),
        writer_id=writer_id,
        first_event_number=first_event_number,
        base_timestamp_ms=base_timestamp_ms,
        zstd_level=zstd_level,
        flags=flags,
    )


class BlockColumns(Struct, frozen=True):
    """The columns of a block in their stored form; `payloads` in any number of pieces.

    Without keys, `key_lengths` is empty; without timestamps, `timestamps` is. The caller has
    checked the sizes of events and keys.
    """

    lengths: bytes
    payloads: Sequence[bytes | memoryview]
    key_lengths: bytes = b""
    keys: bytes | memoryview = b""
    timestamps: bytes = b""


def encode_columns(
    content: BlockColumns,
    *,
    writer_id: bytes,
    first_event_number: int,
    base_timestamp_ms: int,
    zstd_level: int | None = None,
    flags: int = 0,
) -> bytes:
    """Encode one block of these columns, as `encode_block`. Raises InvalidRequest, CodecMissing."""
    lengths, key_lengths, stamps = content.lengths, content.key_lengths, content.timestamps
    flags |= (FLAG_KEYS if key_lengths else 0) | (FLAG_TIMESTAMPS if stamps else 0)
    body = b"".join([lengths, key_lengths, stamps, *content.payloads, content.keys])
    size = HEADER_SIZE_BYTES + len(body)
    if size > BLOCK_SIZE_BYTES_MAX:
        raise InvalidRequest("the block is over the limit", size=size, limit=BLOCK_SIZE_BYTES_MAX)
    columns_size = len(lengths) + len(key_lengths) + len(stamps)
    payloads_size = len(body) - columns_size - len(content.keys)
    codec = CODEC_NONE
    if zstd_level is not None and payloads_size <= EVENT_SIZE_BYTES_MAX:
        frame = compress_zstd(body, zstd_level)
        if len(frame) < len(body):
            codec, body = CODEC_ZSTD, frame
    header = HEADER.pack(
        MAGIC, FORMAT, flags, codec, 0,
        len(lengths) // 4, HEADER_SIZE_BYTES + len(body), columns_size, payloads_size,
        len(content.keys), writer_id, first_event_number, base_timestamp_ms, 0, 0,
    )[:CRC_AT]  # fmt: skip
    return b"".join((header, struct.pack("<I", crc32c(body, crc32c(header))), body))


def encode_part(
    piece: bytes | memoryview,
    *,
    writer_id: bytes,
    number: int,
    base_timestamp_ms: int,
    zstd_level: int | None = None,
) -> bytes:
    """Encode part `number` (from 1) of a large event; 1 … `PART_SIZE_BYTES_MAX` bytes."""
    assert 0 < len(piece) <= PART_SIZE_BYTES_MAX
    return encode_columns(
        BlockColumns(b"", [piece]),
        writer_id=writer_id,
        first_event_number=number,
        base_timestamp_ms=base_timestamp_ms,
        zstd_level=zstd_level,
        flags=FLAG_PART,
    )


def _key_lengths(keys: Sequence[bytes | None], stored: Sequence[bytes]) -> bytes:
    """The column of key lengths; `stored` are the keys without the None items."""
    sizes = list(map(len, stored))
    longest = max(sizes)
    if longest > KEY_SIZE_BYTES_MAX:
        raise InvalidRequest("a routing key is too long", size=longest, limit=KEY_SIZE_BYTES_MAX)
    if len(stored) != len(keys):
        sizes = [NO_KEY if key is None else len(key) for key in keys]
    return struct.pack(f"<{len(sizes)}H", *sizes)
