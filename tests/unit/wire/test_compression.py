"""Compressed blocks: the same events, fewer bytes, and no bomb goes off."""

import builtins
import struct
from collections.abc import Callable

import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CodecMissing, CorruptBlock, FormatTooNew
from anabranch.common.wire import block
from anabranch.common.wire.block import (
    EVENT_SIZE_BYTES_MAX,
    HEADER,
    HEADER_SIZE_BYTES,
    Block,
    count_events,
    parse_header,
    verify_block,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.codec import CODEC_NONE, CODEC_ZSTD, decompress_zstd
from kit.golden import read_golden

WRITER = bytes(range(16))
EVENTS = [b'{"reading": %d, "unit": "degrees"}' % number for number in range(40)]
KEYS = [b"sensor-%d" % (number % 3) if number % 5 else None for number in range(40)]
TIMES = [1_700_000_000_000 + number for number in range(40)]


def compressed(
    events: list[bytes], *, keyed: bool = False, timed: bool = False, level: int | None = 1
) -> bytes:
    return encode_block(
        events,
        writer_id=WRITER,
        first_event_number=7,
        base_timestamp_ms=1_700_000_000_000,
        keys=KEYS if keyed else None,
        timestamps_ms=TIMES if timed else None,
        zstd_level=level,
    )


SMALL = compressed(EVENTS, keyed=True, timed=True)


def forged(frame: bytes, *, columns: int, payloads: int, count: int, keys: int = 0) -> bytes:
    """A block with a right checksum that says what it likes."""
    head = HEADER.pack(
        block.MAGIC, 1, 0, CODEC_ZSTD, 0, count, HEADER_SIZE_BYTES + len(frame), columns,
        payloads, keys, WRITER, 1, 0, 0, 0,
    )[:-4]  # fmt: skip
    return head + struct.pack("<I", crc32c(frame, crc32c(head))) + frame


def test_a_frozen_compressed_block_decodes_to_what_was_written() -> None:
    decoded = Block(read_golden("block_zstd"))
    assert decoded.header.codec == CODEC_ZSTD
    assert decoded.events() == EVENTS
    assert decoded.keys() == KEYS
    assert decoded.timestamps_ms() == TIMES


@given(
    st.lists(st.binary(max_size=8).map(lambda part: part * 50), min_size=1, max_size=30),
    st.sampled_from([1, 3, 19]),
)
def test_compressed_events_survive_a_round_trip(events: list[bytes], level: int) -> None:
    decoded = Block(compressed(events, level=level))
    assert [decoded[index] for index in range(len(events))] == events
    assert decoded.events(len(events) // 2) == events[len(events) // 2 :]


def test_a_compressed_block_is_smaller_and_its_header_tells_all_but_the_events() -> None:
    plain = parse_header(compressed(EVENTS, keyed=True, timed=True, level=None))
    header = verify_block(SMALL)
    assert header.size == len(SMALL) < plain.size
    assert (header.event_count, header.body_size) == (plain.event_count, plain.body_size)
    assert count_events(SMALL + SMALL) == (2, 80)


def test_a_block_that_does_not_shrink_stays_plain() -> None:
    assert compressed([b"x"]) == compressed([b"x"], level=None)
    assert parse_header(compressed([b"x"])).codec == CODEC_NONE


def test_a_block_with_more_payload_than_an_event_may_have_stays_plain() -> None:
    half = bytes(EVENT_SIZE_BYTES_MAX // 2)
    assert parse_header(compressed([half, half])).codec == CODEC_ZSTD
    assert parse_header(compressed([half, half, b"x"])).codec == CODEC_NONE


def test_every_flipped_bit_of_a_compressed_block_is_detected() -> None:
    for position in range(len(SMALL) * 8):
        damaged = bytearray(SMALL)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises((CorruptBlock, FormatTooNew)):
            verify_block(bytes(damaged))


def test_a_waiting_block_is_decompressed_only_when_it_is_asked_for() -> None:
    broken = forged(b"no frame at all, but rightly summed", columns=4, payloads=100, count=1)
    waiting = Block(broken)
    assert len(waiting) == 1
    with pytest.raises(CorruptBlock, match="cannot be decompressed"):
        waiting.open()


BODY = struct.pack("<I", 5000) + bytes(5000)
FRAME = zstandard.compress(BODY)
UNSIZED = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
WIDE = zstandard.ZstdCompressor(
    compression_params=zstandard.ZstdCompressionParameters(window_log=27)
).compressobj()
WIDE_FRAME = WIDE.compress(BODY) + WIDE.flush()


@pytest.mark.parametrize(
    "frame",
    [
        zstandard.compress(bytes(100_000_000)),
        FRAME[:4] + b"\xe0" + (1 << 40).to_bytes(8, "little") + FRAME[7:],
        zstandard.compress(BODY + b"!"),
        FRAME + FRAME,
        FRAME + b"more",
        FRAME[:-3],
        UNSIZED,
        WIDE_FRAME,
        b"\x50\x2a\x4d\x18\x10\x00\x00\x00" + bytes(16),
    ],
    ids=[
        "bomb",
        "a terabyte, it says",
        "longer",
        "two",
        "rest",
        "cut",
        "unsized",
        "wide window",
        "skippable",
    ],
)
def test_what_is_not_one_frame_of_the_stated_size_is_refused(frame: bytes) -> None:
    with pytest.raises(CorruptBlock):
        Block(forged(frame, columns=4, payloads=5000, count=1)).events()


def test_a_frame_that_lies_about_its_own_size_is_refused() -> None:
    bomb = bytearray(zstandard.compress(bytes(200_000)))
    at = bomb.index(struct.pack("<I", 200_000))
    bomb[at : at + 4] = struct.pack("<I", len(BODY))
    assert zstandard.get_frame_parameters(bytes(bomb)).content_size == len(BODY)
    with pytest.raises(CorruptBlock, match="cannot be decompressed"):
        decompress_zstd(bytes(bomb), len(BODY))


@pytest.mark.parametrize(
    "sizes",
    [
        {"columns": 4, "payloads": EVENT_SIZE_BYTES_MAX + 1, "count": 1},
        {"columns": 4, "payloads": 8, "count": 1},
        {"columns": 8, "payloads": 5000, "count": 1},
        {"columns": 0, "payloads": 5000, "count": 0},
        {"columns": 4, "payloads": 5000, "count": 1, "keys": 2**32 - 1},
    ],
    ids=["payloads", "not smaller", "columns", "empty", "keys"],
)
def test_sizes_that_a_compressed_block_cannot_have_are_refused_before_anything_else(
    sizes: dict[str, int],
) -> None:
    with pytest.raises(CorruptBlock, match="contradict"):
        parse_header(forged(FRAME, **sizes))


def test_lengths_that_do_not_add_up_are_found_after_decompression() -> None:
    body = struct.pack("<I", 4999) + bytes(5000)
    with pytest.raises(CorruptBlock, match="add up"):
        Block(forged(zstandard.compress(body), columns=4, payloads=5000, count=1)).open()


def test_an_unknown_codec_is_refused_by_name() -> None:
    newer = bytearray(SMALL)
    newer[6] = CODEC_ZSTD + 1
    with pytest.raises(FormatTooNew):
        verify_block(bytes(newer))


def test_without_the_library_plain_blocks_work_and_others_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., object] = builtins.__import__

    def without_zstandard(name: str, *rest: object, **more: object) -> object:
        if name == "zstandard":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_zstandard)
    assert Block(compressed(EVENTS, level=None)).events() == EVENTS
    assert count_events(SMALL) == (1, 40)
    with pytest.raises(CodecMissing) as refused:
        Block(SMALL).events()
    assert refused.value.remedy == "pip install 'anabranch-client[zstd]'"
    with pytest.raises(CodecMissing):
        compressed(EVENTS)
