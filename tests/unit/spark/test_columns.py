"""Blocks as Arrow columns, against the block codec itself."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CorruptBlock, EventTooLarge, InvalidRequest
from anabranch.common.wire.block import FLAG_LARGE, Block, LargeReference
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.spark.reading import blocks as runs
from anabranch.spark.reading.columns import SCHEMA, record_batches

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


def rows(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """Rows with event times in ms, as the codec has them."""
    found: list[tuple[object, ...]] = []
    for batch in batches:
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


def test_parts_are_passed_over_and_a_large_event_is_refused_by_name() -> None:
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


def test_keys_that_are_not_text_are_corrupt() -> None:
    data = encode_block(
        [b"e"], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0, keys=[b"\xff"]
    )
    with pytest.raises(CorruptBlock, match="UTF-8"):
        list(record_batches(SEGMENT, data, 0))


def test_a_time_that_spark_cannot_hold_is_refused_and_not_wrapped() -> None:
    with pytest.raises(InvalidRequest, match="exceeds Spark"):
        list(record_batches(SEGMENT, encoded([b"e"], times=[2**62]), 0))
