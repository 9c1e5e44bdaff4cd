"""Blocks as Arrow columns, against the block codec itself."""

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CorruptBlock, EventTooLarge, InvalidRequest
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.names import stream_ref
from anabranch.common.wire.block import CRC_AT, FLAG_LARGE, HEADER_SIZE_BYTES, Block, LargeReference
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.spark.reading import blocks as runs
from anabranch.spark.reading.blocks import placed_blocks
from anabranch.spark.reading.columns import SCHEMA, batches, record_batches

SEGMENT = "demo/flights/0.#epoch.0"
KEYS = st.none() | st.text(max_size=6)
OFFSET = 1000


def encoded(
    events: list[bytes],
    keys: list[str | None] | None = None,
    times: list[int] | None = None,
    zstd_level: int | None = None,
) -> bytes:
    stored = None if keys is None else [None if key is None else key.encode() for key in keys]
    return encode_block(
        events, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=1234, keys=stored,
        timestamps_ms=times, zstd_level=zstd_level,
    )  # fmt: skip


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    events = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
    keys = draw(st.none() | st.lists(KEYS, min_size=len(events), max_size=len(events)))
    time = st.integers(-(10**15), 10**15)
    times = draw(st.none() | st.lists(time, min_size=len(events), max_size=len(events)))
    if draw(st.booleans()):
        events = [event * 20 for event in events]
    return encoded(events, keys, times, draw(st.none() | st.just(1)))


def rows(found_batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """Rows with event times in ms, as the codec has them."""
    found: list[tuple[object, ...]] = []
    for batch in found_batches:
        assert batch.schema.equals(SCHEMA)
        batch.validate(full=True)
        times = [us // 1000 for us in batch.column("event_time").cast(pa.int64()).to_pylist()]
        others = (batch.column(name).to_pylist() for name in SCHEMA.names if name != "event_time")
        event, key, segment, offset, index = others
        found += zip(event, key, times, segment, offset, index, strict=True)
    return found


def expected(stored: list[bytes]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    offset = OFFSET
    for data in stored:
        block = Block(data)
        stored_keys = block.keys()
        keys = [None if key is None else key.decode() for key in stored_keys]
        for index, row in enumerate(zip(block, keys, block.timestamps_ms(), strict=True)):
            found.append((*row, SEGMENT, offset, index))
        offset += len(data)
    return found


@given(st.lists(blocks(), max_size=6), st.sampled_from([1, 150, 10**6]))
def test_rows_are_the_events_of_the_blocks_with_their_positions(
    stored: list[bytes], batch_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "BATCH_BYTES", batch_bytes)
        found = rows(list(record_batches(SEGMENT, b"".join(stored), OFFSET)))
    assert found == expected(stored)


@given(st.lists(blocks(), min_size=1, max_size=4), st.data())
def test_events_before_and_after_the_positions_are_left_out(
    stored: list[bytes], data: st.DataObject
) -> None:
    last = len(Block(stored[-1]))
    keep = data.draw(st.integers(0, last - 1))
    first = keep or last if len(stored) == 1 else len(Block(stored[0]))
    skip = data.draw(st.integers(0, first - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "BATCH_BYTES", data.draw(st.sampled_from([1, 10**6])))
        found = rows(list(record_batches(SEGMENT, b"".join(stored), OFFSET, skip=skip, keep=keep)))
    wanted = expected(stored)
    assert found == wanted[skip : len(wanted) - (last - keep if keep else 0)]


def test_parts_are_passed_over_and_a_large_event_needs_a_way_to_fetch_it() -> None:
    part = encode_part(b"piece", writer_id=bytes(16), number=1, base_timestamp_ms=0)
    event = encoded([b"event"])
    found = rows(list(record_batches(SEGMENT, part + event + part + event + part, OFFSET)))
    first = OFFSET + len(part)
    assert [row[4] for row in found] == [first, first + len(part) + len(event)]
    assert list(record_batches(SEGMENT, part, OFFSET)) == []
    large = encode_block(
        [LargeReference(0, len(part), 5, 0).encode()], writer_id=bytes(16), first_event_number=1,
        base_timestamp_ms=0, flags=FLAG_LARGE,
    )  # fmt: skip
    with pytest.raises(EventTooLarge) as caught:
        list(record_batches(SEGMENT, part + large, OFFSET))
    assert caught.value.fields["offset"] == first


def test_many_small_blocks_make_one_batch_and_many_rows_several() -> None:
    small = b"".join(encoded([b"x"]) for _ in range(500))
    assert [batch.num_rows for batch in record_batches(SEGMENT, small, 0)] == [500]
    long = encoded([b""] * (runs.BATCH_ROWS_MAX + 5))
    sizes = [batch.num_rows for batch in record_batches(SEGMENT, long, 0)]
    assert sizes == [runs.BATCH_ROWS_MAX, 5]


def test_a_long_name_and_many_rows_are_not_too_much_together() -> None:
    name = "s" * 250 + "/" + "t" * 250
    (*_, last) = record_batches(name, encoded([b""] * 70_000), 0)
    assert last.column("segment").get_total_buffer_size() < runs.BATCH_ROWS_MAX * 520
    assert last.column("segment")[0].as_py() == name


def test_payloads_of_a_large_block_are_not_copied() -> None:
    data = encoded([b"y" * runs.BATCH_BYTES])
    (batch,) = record_batches(SEGMENT, data, 0)
    start = pa.py_buffer(data).address
    assert start < batch.column("event").buffers()[2].address < start + len(data)


def test_compressed_blocks_are_joined_by_what_they_hold() -> None:
    half = runs.BATCH_BYTES // 2
    data = encoded([b"y" * half], zstd_level=1) * 4
    assert len(data) < 2000
    assert [batch.num_rows for batch in record_batches(SEGMENT, data, 0)] == [2, 2]


def test_a_flipped_bit_is_named_with_its_place() -> None:
    good, bad = encoded([b"one"]), bytearray(encoded([b"two"]))
    bad[-1] ^= 1
    with pytest.raises(CorruptBlock, match="checksum") as refused:
        list(record_batches(SEGMENT, good + bad, OFFSET))
    assert refused.value.fields == {"segment": SEGMENT, "offset": OFFSET + len(good)}


def test_a_block_that_is_cut_off_is_corrupt() -> None:
    with pytest.raises(CorruptBlock, match="truncated"):
        list(record_batches(SEGMENT, encoded([b"one"])[:-1], 0))


@pytest.mark.parametrize("column", ["lengths", "key lengths"])
def test_lengths_that_only_add_up_over_two_blocks_are_corrupt(column: str) -> None:
    # given two blocks with right checksums, of which one claims a byte of the other
    at = HEADER_SIZE_BYTES + (0 if column == "lengths" else 4)
    damaged = b""
    for change in (1, -1):
        block = bytearray(encoded([b"four"], ["five!"]))
        block[at] += change
        body = block[HEADER_SIZE_BYTES:]
        block[CRC_AT:HEADER_SIZE_BYTES] = crc32c(body, crc32c(block[:CRC_AT])).to_bytes(4, "little")
        damaged += block
    with pytest.raises(CorruptBlock, match=f"{column} do not add up"):
        list(record_batches(SEGMENT, damaged, 0))


def test_keys_that_are_not_text_are_corrupt() -> None:
    data = encode_block(
        [b"e"], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0, keys=[b"\xff"]
    )
    with pytest.raises(CorruptBlock, match="UTF-8"):
        list(record_batches(SEGMENT, data, 0))


def test_a_time_that_spark_cannot_hold_is_refused_and_not_wrapped() -> None:
    with pytest.raises(InvalidRequest, match="exceeds Spark"):
        list(record_batches(SEGMENT, encoded([b"e"], times=[2**62]), 0))


def test_columns_on_request_are_those_of_each_event() -> None:
    one = encode_block(
        [b"a", b"b"], writer_id=b"w" * 16, first_event_number=7, base_timestamp_ms=0,
        keys=[b"k", None],
    )  # fmt: skip
    other = encode_block([b"c"], writer_id=b"v" * 16, first_event_number=3, base_timestamp_ms=0)
    names = ("event_number", "writer_id", "key_position", "scope", "stream", "watermark")
    (batch,) = record_batches(SEGMENT, one + other, 0, columns=names)
    batch.validate(full=True)
    assert batch.schema.names == list(names)
    w, v = (b"w" * 16).hex(), (b"v" * 16).hex()
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (7, w, routing_position("k"), "demo", "flights", None),
        (8, w, None, "demo", "flights", None),
        (3, v, None, "demo", "flights", None),
    ]


def test_small_blocks_of_several_segments_make_one_batch_that_tells_them_apart() -> None:
    other = "demo/other/1.#epoch.0"
    data = encoded([b"x", b"y"])
    placed = [*placed_blocks(SEGMENT, data, 0), *placed_blocks(other, data, 0, skip=0, keep=1)]
    names = ("segment", "stream", "watermark")
    (batch,) = batches(placed, names, {stream_ref("demo/other"): 5000})
    batch.validate(full=True)
    assert batch.column("segment").to_pylist() == [SEGMENT, SEGMENT, other]
    assert batch.column("stream").to_pylist() == ["flights", "flights", "other"]
    assert batch.column("watermark").cast(pa.int64()).to_pylist() == [None, None, 5_000_000]


def test_a_large_event_is_alone_in_its_batch_and_keeps_key_and_place() -> None:
    part = encode_part(b"piece", writer_id=bytes(16), number=1, base_timestamp_ms=0)
    reference = LargeReference(0, len(part), 2 * runs.BATCH_BYTES, 0)
    large = encode_block(
        [reference.encode()], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=9,
        keys=[b"k"], flags=FLAG_LARGE,
    )  # fmt: skip
    asked: list[LargeReference] = []

    def fetch(found: LargeReference) -> bytes:
        asked.append(found)
        return b"z" * found.size

    small = encoded([b"s"])
    found = list(record_batches(SEGMENT, small + part + large + small, 0, fetch_large=fetch))
    assert [batch.num_rows for batch in found] == [1, 1, 1]
    assert asked == [reference]
    (row,) = found[1].to_pylist()
    assert (len(row["event"]), row["routing_key"]) == (reference.size, "k")
    assert row["offset"] == len(small) + len(part)
