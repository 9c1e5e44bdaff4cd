"""The cut of a stream at a time: by watermarks, by block times, and what starts there."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from anabranch.client import Position
from anabranch.client.reading.times.cut_at import CLOCKS_APART_MS
from anabranch.client.reading.times.instants import looks_like_time, parse_time, unix_ms
from anabranch.common.errors import CorruptBlock, InvalidRequest, StreamNotFound
from anabranch.common.model.watermark import watermark_segment
from anabranch.common.wire.messages import LocateTime
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.scaling import merge, split
from kit.watermarks import mark_at, store_marks

READER = reader_settings(wait_ms=10)
GROUP = "plant/readers"
KEYS = [f"key {number}" for number in range(8)]
"""In both halves of the key space."""


async def write_at(b: Bench, time_ms: int, *payloads: str) -> None:
    """Each payload by all keys, a block each; the stores take them at that time."""
    for segment in b.segments:
        segment.now_ms = time_ms
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        for payload in payloads:
            for key in KEYS:
                writer.write(payload.encode(), key)


async def read_from(b: Bench, start: datetime | int) -> dict[str | None, list[str]]:
    """Key → its payloads from there to the tail."""
    found: dict[str | None, list[str]] = {}
    async with b.client.reader(STREAM, start, until_tail=True, settings=READER) as reader:
        async for event in reader:
            found.setdefault(event.key, []).append(event.payload.decode())
    return found


def of_all(payloads: list[Any]) -> dict[str | None, list[Any]]:
    """Every key has these payloads."""
    return {key: list(payloads) for key in KEYS}


def mark_here(b: Bench, lower_ms: int, upper_ms: int) -> None:
    """A watermark at the present tail."""
    segments = b.stream.listed(b.ref)
    offsets = {each.name: len(b.store.segments[each.name].data) for each in segments}
    store_marks(b.store, b.ref, mark_at(segments, offsets, lower_ms, upper_ms))


# --- by block times -----------------------------------------------------------------------------


async def test_without_watermarks_the_first_block_that_is_not_older_comes_first() -> None:
    async with bench(2) as b:
        await write_at(b, 1000, "a", "b")
        await write_at(b, 2000, "c")
        await write_at(b, 3000, "d")
        assert await read_from(b, 2000) == of_all(["c", "d"])
        assert await read_from(b, 2001) == of_all(["d"])
        assert await read_from(b, 0) == of_all(["a", "b", "c", "d"])
        assert await read_from(b, 3001) == {}
        cut = await b.client.streams.cut_at(STREAM, 2000)
        assert cut.basis == "block times"
        assert all(at.event_index == 0 for at in cut.positions.values())


async def test_the_cut_at_a_time_goes_through_splits_and_merges() -> None:
    async with bench() as b:
        await write_at(b, 1000, "a")
        for _ in split(b):
            pass
        await write_at(b, 2000, "b")
        await write_at(b, 3000, "c")
        for _ in merge(b):
            pass
        await write_at(b, 4000, "d")
        for time_ms, expected in (
            (1000, ["a", "b", "c", "d"]),
            (1500, ["b", "c", "d"]),
            (2500, ["c", "d"]),
            (3500, ["d"]),
            (4000, ["d"]),
        ):
            assert await read_from(b, time_ms) == of_all(expected)
        assert await read_from(b, 4500) == {}


async def test_a_key_whose_events_are_younger_holds_only_its_own_segment_back() -> None:
    async with bench(2) as b:
        await write_at(b, 1000, "a")
        left, right = b.segments
        left.times = [5000] * len(left.times)
        for _ in merge(b):
            pass
        await write_at(b, 6000, "b")
        cut = await b.client.streams.cut_at(STREAM, 4000)
        names = [name for name in b.store.segments if name.endswith("epoch.0")]
        assert cut.positions == {names[0]: Position(0), names[1]: Position(len(right.data))}
        found = await read_from(b, 4000)
        assert {tuple(payloads) for payloads in found.values()} == {("a", "b"), ("b",)}


async def test_the_search_begins_an_hour_before_the_time_so_that_old_epochs_cost_nothing() -> None:
    async with bench() as b:
        await write_at(b, 1000, "a")
        for _ in split(b):
            pass
        now_ms = 2 * CLOCKS_APART_MS
        b.stream.begun_ms[1] = 2000
        await write_at(b, now_ms, "b")
        b.store.requests.clear()
        assert await read_from(b, now_ms) == of_all(["b"])
        asked = {one.segment for one in b.store.requests if isinstance(one, LocateTime)}
        assert all(name.endswith("epoch.1") for name in asked)


async def test_an_epoch_that_began_a_moment_before_is_not_trusted_alone() -> None:
    """The controller's clock is behind, so it says that the split was before the time."""
    async with bench() as b:
        await write_at(b, 10_000_000, "a")
        for _ in split(b):
            pass
        b.stream.begun_ms[1] = 9_990_000
        await write_at(b, 10_001_000, "b")
        assert await read_from(b, 9_995_000) == of_all(["a", "b"])


async def test_a_time_before_the_head_is_the_head() -> None:
    async with bench() as b:
        await write_at(b, 1000, "a")
        for _ in split(b):
            pass
        await write_at(b, 2000, "b", "c")
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        assert await read_from(b, 500) == of_all(["b", "c"])
        assert await read_from(b, 1500) == of_all(["b", "c"])


# --- by watermarks ------------------------------------------------------------------------------


async def test_the_cut_is_that_of_the_last_watermark_whose_upper_bound_is_not_after_the_time() -> (
    None
):
    async with bench() as b:
        await write_at(b, 9000, "a")
        mark_here(b, 100, 150)
        await write_at(b, 9001, "b")
        mark_here(b, 200, 250)
        for _ in split(b):
            pass
        await write_at(b, 9002, "c")
        mark_here(b, 300, 350)
        await write_at(b, 9003, "d")
        for time_ms, expected in (
            (150, ["b", "c", "d"]),
            (249, ["b", "c", "d"]),
            (250, ["c", "d"]),
            (350, ["d"]),
            (10**15, ["d"]),
        ):
            assert await read_from(b, time_ms) == of_all(expected)
            assert (await b.client.streams.cut_at(STREAM, time_ms)).basis == "watermarks"


async def test_a_writer_that_was_far_ahead_and_left_does_not_hide_later_watermarks() -> None:
    async with bench() as b:
        await write_at(b, 9000, "a")
        mark_here(b, 100, 150)
        await write_at(b, 9001, "b")
        mark_here(b, 200, 99_999)
        await write_at(b, 9002, "c")
        mark_here(b, 300, 350)
        await write_at(b, 9003, "d")
        assert await read_from(b, 400) == of_all(["d"])
        assert await read_from(b, 260) == of_all(["b", "c", "d"])


async def test_among_many_watermarks_the_right_one_is_found() -> None:
    async with bench() as b:
        await write_at(b, 9000, "a")
        (name,) = b.store.segments
        (segment,) = b.stream.listed(b.ref)
        end = len(b.store.segments[name].data)
        marks = [mark_at([segment], {name: 0}, 10 * n, 10 * n + 5) for n in range(1, 5000)]
        store_marks(b.store, b.ref, *marks, mark_at([segment], {name: end}, 50_000, 50_000))
        store_marks(b.store, b.ref, mark_at([segment], {name: end}, 50_010, 50_020))
        assert await read_from(b, 50_015) == {}
        assert await read_from(b, 49_999) == of_all(["a"])


async def test_a_time_before_the_first_watermark_goes_by_block_times() -> None:
    async with bench() as b:
        await write_at(b, 100, "a")
        await write_at(b, 200, "b")
        mark_here(b, 300, 350)
        assert (await b.client.streams.cut_at(STREAM, 150)).basis == "block times"
        assert await read_from(b, 150) == of_all(["b"])


async def test_a_watermark_before_the_head_starts_at_the_head() -> None:
    async with bench() as b:
        await write_at(b, 100, "a")
        mark_here(b, 100, 100)
        for _ in split(b):
            pass
        await write_at(b, 200, "b", "c")
        cut = {}
        for life, each in zip(b.stream.current, b.stream.listed(b.ref), strict=True):
            cut[life.segment_id] = b.store.segments[each.name].boundaries[0]
        b.truncate(cut)
        found = await b.client.streams.cut_at(STREAM, 150)
        assert found.basis == "watermarks"
        assert {at.offset for at in found.positions.values()} == set(cut.values())
        await read_from(b, 150)  # and no EventsTruncated


async def test_watermarks_of_an_earlier_life_of_the_stream_do_not_count() -> None:
    async with bench() as b:
        await write_at(b, 1000, "a")
        segments = b.stream.listed(b.ref)
        store_marks(b.store, b.ref, mark_at(segments, {}, 10, 10, incarnation=7))
        assert (await b.client.streams.cut_at(STREAM, 2000)).basis == "block times"


async def test_damaged_watermarks_are_not_passed_over_in_silence() -> None:
    async with bench() as b:
        await write_at(b, 1000, "a")
        mark_here(b, 100, 150)
        b.store.segments[watermark_segment(b.ref)].data[80] ^= 1
        with pytest.raises(CorruptBlock, match="watermarks are damaged"):
            await b.client.streams.cut_at(STREAM, 2000)


# --- times ---------------------------------------------------------------------------------------


async def test_a_reader_starts_at_a_datetime_of_any_zone() -> None:
    async with bench() as b:
        noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
        await write_at(b, unix_ms(noon) - 1, "a")
        await write_at(b, unix_ms(noon), "b")
        assert await read_from(b, noon) == of_all(["b"])
        elsewhere = noon.astimezone(timezone(timedelta(hours=5)))
        assert await read_from(b, elsewhere) == of_all(["b"])
        with pytest.raises(InvalidRequest, match="no time zone"):
            await read_from(b, noon.replace(tzinfo=None))
        with pytest.raises(InvalidRequest, match="a time must be"):
            await read_from(b, -1)


async def test_a_stream_that_does_not_exist_has_no_cut() -> None:
    async with bench() as b:
        with pytest.raises(StreamNotFound):
            await b.client.streams.cut_at("plant/other", 1000)


def test_texts_are_times_in_utc_unless_they_name_a_zone() -> None:
    noon = unix_ms(datetime(2026, 11, 20, 12, tzinfo=UTC))
    for text in (
        "2026-11-20T12:00", "2026-11-20 12:00", "2026-11-20T12:00:00Z", "2026-11-20T13:00+01:00",
        str(noon),
    ):  # fmt: skip
        assert parse_time(text) == noon
    assert parse_time("2026-11-20") == noon - 12 * 3_600_000


@pytest.mark.parametrize(
    "text", ["", "head", "2026", "2026-13-01", "2026-11-20T25:00", "noon", "1e12", "٢٠٢٦١١٢٠١٢"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a time"):
        parse_time(text)


def test_a_position_token_is_not_taken_for_a_time() -> None:
    assert not looks_like_time("eJyrVipILM4vyszPi1eyUqpWSsxRsjKoBQBTjAd")
    assert looks_like_time("2026-11-20T12:00")


# --- groups --------------------------------------------------------------------------------------


async def test_a_group_is_reset_to_a_time_after_a_look_at_what_it_would_read_again() -> None:
    async with bench(2) as b:
        await write_at(b, 1000, "a")
        await write_at(b, 2000, "b")
        await write_at(b, 3000, "c")
        b.seal()
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        group = b.client.reader_group(GROUP)
        before = await group.preview_reset(2000)
        (stream,) = before.streams
        size = sum(len(one.data) for name, one in b.store.segments.items() if "sensors" in name)
        assert (stream.stream, stream.basis, stream.again_bytes) == (STREAM, "block times", 0)
        assert 3 * stream.skipped_bytes == size
        async with group.reader("one") as reader:
            async for _ in reader:
                pass
        (stream,) = (await group.preview_reset(2000)).streams
        assert (3 * stream.again_bytes, stream.skipped_bytes) == (2 * size, 0)
        assert stream.target == (await b.client.streams.cut_at(STREAM, 2000)).positions
        assert (await group.describe()).generation == 0, "a look changes nothing"

        await b.client.reader_groups.reset(GROUP, to_time=2000, expected_generation=0)
        again: dict[str | None, list[bytes]] = {}
        async with group.reader("one") as reader:
            async for event in reader:
                again.setdefault(event.key, []).append(event.payload)
        assert again == of_all([b"b", b"c"])
        with pytest.raises(InvalidRequest, match="not to both"):
            await b.client.reader_groups.reset(GROUP, start={}, to_time=2000)
