"""Columns of Arrow as events: the same as if they were written one by one."""

import sys
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import (
    BufferFull,
    CodecMissing,
    EventTooLarge,
    InvalidRequest,
)
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX, KEY_SIZE_BYTES_MAX
from anabranch.common.wire.messages import Appended
from kit.client_bench import STREAM, bench, writer_settings
from kit.fake_segstore import Fault, no_faults
from kit.scaling import Conductor, shift
from kit.thorough import one_in

arrow = pytest.importorskip("pyarrow")

BLOCKS = writer_settings(block_size_bytes=200)
KINDS = [(arrow.binary(), arrow.string()), (arrow.large_binary(), arrow.large_string())]
ROWS = st.lists(
    st.tuples(
        st.binary(max_size=60),
        st.none() | st.sampled_from(["", "a", "b", "ü", "long key" * 4]),
        st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=60,
)


@pytest.fixture(autouse=True)
def no_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables take the way of large ones."""
    monkeypatch.setattr("anabranch.client.writing.lane_writer.ARROW_SIZE_BYTES_MIN", 0)


def table(rows: list[tuple[bytes, str | None, int]], kinds: tuple[Any, Any]) -> Any:
    events, keys, stamps = zip(*rows, strict=True)
    columns = [
        arrow.array(events, kinds[0]),
        arrow.array(keys, kinds[1]),
        arrow.array(stamps, arrow.int64()),
    ]
    return arrow.Table.from_arrays(columns, ["event", "key", "time"])


@settings(max_examples=40 // one_in(4))
@given(
    rows=ROWS,
    kinds=st.sampled_from(KINDS),
    segments=st.integers(1, 3),
    skip=st.integers(0, 5),
    chunked=st.booleans(),
)
async def test_rows_are_stored_as_if_they_were_written_one_by_one(
    rows: list[tuple[bytes, str | None, int]],
    kinds: tuple[Any, Any],
    segments: int,
    skip: int,
    chunked: bool,
) -> None:
    written = table(rows, kinds)
    written = written.slice(skip)
    rows = rows[skip:]
    if chunked:
        written = arrow.concat_tables([written.slice(0, 7), written.slice(7)])
    async with bench(segments) as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            writer.write_arrow(written, key="key", timestamp_ms="time")
            assert writer.used_bytes == sum(
                len(event) + len((key or "").encode()) + 16 for event, key, _ in rows
            )
        found: dict[str | None, list[tuple[bytes, int]]] = {}
        for batch in await b.stored():
            for event, key, stamp in zip(
                batch.payloads, batch.keys, batch.timestamps_ms, strict=True
            ):
                found.setdefault(key, []).append((event, stamp))
    wanted: dict[str | None, list[tuple[bytes, int]]] = {}
    for event, key, stamp in rows:
        wanted.setdefault(key, []).append((event, stamp))
    assert found == wanted


async def test_without_keys_blocks_are_slices_of_the_column() -> None:
    async with bench(3) as b:
        events = [b"%d" % number for number in range(500)]
        batch = arrow.record_batch({"payload": arrow.array(events, arrow.binary())})
        async with b.client.writer(STREAM, BLOCKS) as writer:
            writer.write_arrow(batch.slice(100, 300), event="payload", timestamp_ms=5)
            done = writer.acknowledgement()
            await done
            assert writer.used_bytes == 0
        batches = await b.stored()
    assert sorted(p for batch in batches for p in batch.payloads) == sorted(events[100:400])
    assert {stamp for batch in batches for stamp in batch.timestamps_ms} == {5}
    assert all(len(batch) < 20 for batch in batches)


async def test_texts_dictionaries_and_timestamps_are_understood() -> None:
    async with bench() as b:
        columns = {
            "event": arrow.array(["grüße", "", "x"]).dictionary_encode(),
            "key": arrow.array(["k", None, "k"]).dictionary_encode(),
            "time": arrow.array([1_500_000, 2_000_000, -1000], arrow.timestamp("us", "UTC")),
        }
        async with b.client.writer(STREAM) as writer:
            writer.write_arrow(arrow.table(columns), key="key", timestamp_ms="time")
        (batch,) = await b.stored()
    assert batch.payloads == ["grüße".encode(), b"", b"x"]
    assert batch.keys == ["k", None, "k"]
    assert batch.timestamps_ms == [1500, 2000, -1]


async def test_it_keeps_its_place_among_other_writes() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            writer.write(b"before", "k")
            writer.write_arrow(arrow.table({"event": [b"1", b"2"], "key": ["k", "k"]}), key="key")
            writer.write(b"after", "k")
        assert await b.payloads() == [b"before", b"1", b"2", b"after"]


@pytest.mark.parametrize(
    ("columns", "how", "column"),
    [
        ({"event": [b"x", None]}, {}, "event"),
        ({"event": [1, 2]}, {}, "event"),
        ({"other": [b"x"]}, {}, "event"),
        ({"event": [b"x"]}, {"key": "key"}, "key"),
        ({"event": [b"x"], "key": [1]}, {"key": "key"}, "key"),
        ({"event": [b"x"], "time": [None]}, {"timestamp_ms": "time"}, "time"),
        ({"event": [b"x"], "time": ["now"]}, {"timestamp_ms": "time"}, "time"),
        (
            {"event": [b"x"], "time": arrow.array([1 << 63], arrow.uint64())},
            {"timestamp_ms": "time"},
            "time",
        ),
    ],
)
async def test_what_cannot_be_written_is_refused_by_the_columns_name(
    columns: dict[str, list[object]], how: dict[str, str], column: str
) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        with pytest.raises(InvalidRequest) as caught:
            writer.write_arrow(arrow.table(columns), **how)
        assert caught.value.fields["column"] == column
        assert writer.used_bytes == 0


async def test_all_is_taken_or_nothing() -> None:
    async with bench() as b:
        settings = writer_settings(buffer_size_bytes=1000)
        b.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, Appended) else None
        )
        async with b.client.writer(STREAM, settings) as writer:
            some = arrow.table({"event": [b"x" * 84] * 6, "key": ["k"] * 6})
            writer.write_arrow(some)
            for key in (None, "key"):
                with pytest.raises(BufferFull):
                    writer.write_arrow(some, key=key)
            with pytest.raises(InvalidRequest, match="larger than"):
                writer.write_arrow(arrow.table({"event": [b"x" * 84] * 20}))
            long = arrow.table({"event": [b"", b""], "key": ["k", "k" * (KEY_SIZE_BYTES_MAX + 1)]})
            with pytest.raises(InvalidRequest):
                writer.write_arrow(long, key="key")
            assert writer.used_bytes == 600
            b.store.fault = no_faults
            b.store.release()
        big = arrow.table({"event": arrow.array([b"a", bytes(EVENT_SIZE_BYTES_MAX + 1)])})
        async with b.client.writer(STREAM) as writer:
            with pytest.raises(EventTooLarge):
                writer.write_arrow(big)
            with pytest.raises(InvalidRequest):
                writer.write_arrow([b"x"])
            writer.write_arrow(big.slice(0, 0))
        assert await b.payloads() == [b"x" * 84] * 6


async def test_large_events_go_as_large_events() -> None:
    async with bench() as b:
        big = arrow.table({"event": arrow.array([b"a", bytes(EVENT_SIZE_BYTES_MAX + 1), b"c"])})
        async with b.client.writer(STREAM, writer_settings(large_events=True)) as writer:
            writer.write_arrow(big)
        assert b.segments[0].event_count == 3


async def test_what_a_sealed_segment_did_not_store_goes_to_its_successors() -> None:
    for start in range(0, 30, 3):
        async with bench() as b:
            conductor = Conductor(b, shift(b), start, every=2)
            keys = [None if n % 7 == 3 else f"key {n % 7}" for n in range(120)]
            events = [b"%d" % number for number in range(120)]
            content = arrow.table({"event": events, "key": keys, "time": list(range(120))})
            async with b.client.writer(STREAM, BLOCKS) as writer:
                writer.write_arrow(content, key="key", timestamp_ms="time")
            conductor.finish()
            found = await b.by_key()
        for key in set(keys) - {None}:
            assert found[key] == [b"%d" % n for n in range(120) if keys[n] == key]
        assert sorted(chain.from_iterable(found.values())) == sorted(events)


async def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with bench() as b, b.client.writer(STREAM) as writer:
        with pytest.raises(CodecMissing):
            writer.write_arrow(object())
