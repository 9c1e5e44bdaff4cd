"""Batches of Arrow, against the events that the reader yields one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client import Event
from anabranch.client.reading.arrow import SCHEMA
from anabranch.client.reading.events import EventBatch, arrow_batch
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.common.errors import CorruptBlock, EventsTruncated
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from kit.client_bench import STREAM, Bench, bench, reader_settings, until, writer_settings

READER = reader_settings(wait_ms=10)
SEGMENTS = st.sampled_from(["plant/sensors/0.#epoch.0", "plant/sensors/1.#epoch.0"])


def rows_of(batch: pa.RecordBatch) -> list[Event]:
    """The rows as events."""
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    columns = {name: batch.column(name) for name in SCHEMA.names}
    columns["timestamp_ms"] = columns["timestamp_ms"].cast(pa.int64())
    return [Event(*row) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)]


@st.composite
def batches(draw: st.DrawFn) -> EventBatch:
    events = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
    count = len(events)
    keys = draw(
        st.none() | st.lists(st.none() | st.text(max_size=4), min_size=count, max_size=count)
    )
    times = st.integers(-(2**63), 2**63 - 1)
    data = encode_block(
        [event * 20 for event in events],
        writer_id=bytes(16),
        first_event_number=1,
        base_timestamp_ms=draw(st.integers(0, 10**13)),
        keys=None if keys is None else [None if key is None else key.encode() for key in keys],
        timestamps_ms=draw(st.none() | st.lists(times, min_size=count, max_size=count)),
        zstd_level=draw(st.none() | st.just(1)),
    )
    first = draw(st.integers(0, count - 1))
    offset = draw(st.integers(0, 2**60))
    batch = EventBatch(FetchedBlock(draw(SEGMENTS), offset, Block(data), first))
    return batch.before(draw(st.integers(first + 1, count)))


@given(st.lists(batches(), min_size=1, max_size=5))
def test_rows_are_the_events_of_the_blocks(found: list[EventBatch]) -> None:
    assert rows_of(arrow_batch(found)) == [each for batch in found for each in batch.events()]


def test_the_payloads_of_a_plain_block_are_not_copied() -> None:
    data = encode_block([b"one", b"two"], writer_id=bytes(16), first_event_number=1,
                        base_timestamp_ms=0)  # fmt: skip
    batch = EventBatch(FetchedBlock("plant/sensors/0.#epoch.0", 0, Block(data))).to_arrow()
    values = batch.column("event").buffers()[2]
    whole = pa.py_buffer(data)
    assert whole.address < values.address < whole.address + whole.size


async def fill(b: Bench, count: int) -> None:
    """Events of some keys, a block each."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        for number in range(count):
            writer.write(b"%d" % number, f"key {number % 7}")


async def test_small_blocks_are_joined_up_to_the_rows_that_were_asked_for() -> None:
    async with bench(segment_count=2) as b:
        await fill(b, 50)
        b.seal()
        async with b.client.reader(STREAM, settings=READER) as reader:
            first = await reader.next_batch()
            assert first is not None
            await until(lambda: len(reader._intake._ready) == 51)
            joined = await reader.next_arrow(rows=20)
            assert joined is not None
            assert joined.num_rows == 20
            positions = reader.positions()
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            rest = [row async for batch in reader.arrow_batches() for row in rows_of(batch)]
        found = [*first.events(), *rows_of(joined), *rest]
        assert sorted(int(event.payload) for event in found) == list(range(50))


async def test_a_truncation_is_told_after_the_events_before_it() -> None:
    async with bench(segment_count=2) as b:
        await fill(b, 50)
        whole, cut = b.store.segments
        start = {whole: (0, 0), cut: (0, 0)}
        boundaries = b.store.segments[cut].boundaries
        ids = {each.name: each.segment_id for each in b.every_segment()}
        b.truncate({ids[whole]: 0, ids[cut]: boundaries[-2]})
        b.seal()
        rows: list[Event] = []
        told = 0
        async with b.client.reader(STREAM, start, settings=READER) as reader:
            for _ in range(60):
                try:
                    batch = await reader.next_arrow()
                except EventsTruncated:
                    told += 1
                else:
                    if batch is None:
                        break
                    rows += rows_of(batch)
        assert told == 1
        assert [row.offset for row in rows if row.segment == cut] == [boundaries[-2]]
        assert len(rows) == 1 + len(b.store.segments[whole].boundaries)


async def test_a_batch_that_cannot_be_made_leaves_the_positions_and_ends_the_reader() -> None:
    async with bench() as b:
        await fill(b, 3)
        (segment,) = b.segments
        data = encode_block([b"bad"], writer_id=bytes(16), first_event_number=1,
                            base_timestamp_ms=0, keys=[b"\xff"])  # fmt: skip
        segment.data += data
        segment.boundaries.append(len(segment.data))
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            await until(lambda: len(reader._intake._ready) == 5)
            positions = reader.positions()
            for _ in range(2):
                with pytest.raises(CorruptBlock, match="UTF-8"):
                    await reader.next_arrow()
                assert reader.positions() == positions


async def test_batches_become_frames_of_pandas() -> None:
    async with bench() as b:
        await fill(b, 3)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            frames = [batch.to_pandas() async for batch in reader.arrow_batches()]
        assert [bytes(event) for frame in frames for event in frame["event"]] == [b"0", b"1", b"2"]
