"""Histograms beside exact percentiles, payloads, open loops, awaited appends, pauses."""

import asyncio
from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.perf.load.appends import append_one_by_one, take
from anabranch.cli.perf.load.histogram import (
    SUB_BITS,
    TIME_US_MAX,
    Histogram,
    bucket_of,
    highest_in,
)
from anabranch.cli.perf.load.pacing import Pace
from anabranch.cli.perf.load.payloads import (
    BATCH_SIZE_BYTES_MAX,
    POOL_SIZE_BYTES_MAX,
    all_numbered,
    batch_count,
    index_of,
    numbered,
    pool_count,
    pool_of,
)
from anabranch.cli.perf.load.scales import Moments
from bench.stats import percentile
from kit.client_bench import STREAM, bench, writer_settings

TIMES_US = st.lists(st.integers(0, TIME_US_MAX), min_size=1, max_size=200)
TOO_HIGH = 1 + 2**-SUB_BITS


def histogram_of(times_us: list[int]) -> Histogram:
    histogram = Histogram()
    for time_us in times_us:
        histogram.record(time_us / 1e6)
    return histogram


@given(TIMES_US, st.floats(0.1, 100))
def test_a_percentile_is_the_exact_one_or_at_most_a_128th_more(
    times_us: list[int], percent: float
) -> None:
    exact_ms = percentile([time_us / 1000 for time_us in times_us], percent)

    found_ms = histogram_of(times_us).percentile_ms(percent)

    assert exact_ms <= found_ms <= exact_ms * TOO_HIGH


@given(st.integers(0, TIME_US_MAX))
def test_each_bucket_ends_where_the_next_one_begins(time_us: int) -> None:
    bucket = bucket_of(time_us)

    assert time_us <= highest_in(bucket)
    assert bucket_of(highest_in(bucket)) == bucket
    assert bucket_of(highest_in(bucket) + 1) == bucket + 1


@given(TIMES_US)
def test_the_maximum_and_the_count_are_exact(times_us: list[int]) -> None:
    histogram = histogram_of(times_us)

    assert histogram.max_ms == max(times_us) / 1000
    assert histogram.percentile_ms(100) == histogram.max_ms
    assert histogram.count == len(times_us)


def test_times_out_of_range_count_as_the_nearest_in_range() -> None:
    histogram = Histogram()
    histogram.record(-3.0)
    histogram.record(1e9)

    assert histogram.percentile_ms(50) == 0
    assert histogram.max_ms == TIME_US_MAX / 1000


def test_a_run_of_events_counts_half_as_its_first_and_half_as_its_last() -> None:
    histogram = Histogram()
    histogram.record_run(0.003, 0.001, 5)

    assert histogram.count == 5
    assert histogram.percentile_ms(40) == pytest.approx(1.0, rel=0.01)
    assert histogram.percentile_ms(41) == pytest.approx(3.0, rel=0.01)


def test_nothing_has_no_percentiles() -> None:
    assert Histogram().summary_ms() is None
    assert Histogram().percentile_ms(99) == 0


@pytest.mark.parametrize(("size", "checksum"), [(100, 2608181669), (1024, 102686618)])
def test_the_pool_of_a_size_is_the_same_in_every_release(size: int, checksum: int) -> None:
    pool = pool_of(size)

    assert len(pool) == 1000
    assert crc32(b"".join(pool)) == checksum


@given(st.integers(1, 8 * 1024 * 1024))
def test_pools_and_batches_are_bounded_in_bytes_and_never_empty(size: int) -> None:
    assert pool_count(size) == 1 or pool_count(size) * size <= POOL_SIZE_BYTES_MAX
    assert batch_count(size) == 1 or batch_count(size) * size <= BATCH_SIZE_BYTES_MAX


def test_numbered_events_keep_their_size_and_tell_their_numbers() -> None:
    events = all_numbered(pool_of(20, 3), first=7)

    found = [next(events) for _ in range(5)]

    assert [index_of(event) for event in found] == [7, 8, 9, 10, 11]
    assert {len(event) for event in found} == {20}
    assert found[3][8:] == found[0][8:]
    assert index_of(numbered(bytes(8), 2**63)) == 2**63


@given(st.floats(0.1, 1e6), st.floats(0, 1e5), st.floats(0, 1e4))
def test_an_event_is_due_no_earlier_than_its_time(rate: float, start: float, after: float) -> None:
    pace = Pace(rate, start)
    now = start + after

    due = pace.due(now)

    assert due >= 1
    assert pace.at(due - 1) <= now + 1e-6
    assert pace.late(due - 1, now) == pytest.approx(now - pace.at(due - 1), abs=1e-6)


async def test_a_batch_waits_for_room_in_the_writers_buffer() -> None:
    events = [bytes(1000)] * 8
    async with bench() as b:
        settings = writer_settings(buffer_size_bytes=10_000)
        async with b.client.writer(STREAM, settings) as writer:
            for _ in range(3):
                await take(writer, events)

        assert len(await b.payloads()) == 24


async def test_appends_follow_one_another_until_the_caller_has_enough() -> None:
    now = Counter[str]()
    noted: list[tuple[float, float]] = []

    async def append(_event: bytes) -> None:
        now["s"] += 2

    def note(begun: float, acknowledged: float) -> bool:
        noted.append((begun, acknowledged))
        return len(noted) < 2

    await append_one_by_one(append, [b"a", b"b", b"c"], note, now=lambda: now["s"])

    assert noted == [(0, 2), (2, 4)]


async def test_an_append_that_waits_for_its_turn_counts_from_there() -> None:
    noted: list[tuple[float, float]] = []

    async def turn(number: int) -> float:
        return 10.0 * number

    def note(begun: float, acknowledged: float) -> bool:
        noted.append((begun, acknowledged))
        return True

    await append_one_by_one(
        lambda _: asyncio.sleep(0), [b"a", b"b"], note, now=lambda: 15.0, turn=turn
    )

    assert noted == [(0.0, 15.0), (10.0, 15.0)]


def test_a_pause_lies_between_the_last_moment_before_and_the_end() -> None:
    moments = Moments()
    for at in (0.0, 1.0, 1.1, 4.0, 4.1, 9.0):
        moments.add(at)

    assert moments.longest_gap(2.0, 5.0) == pytest.approx(2.9)
    assert moments.longest_gap(4.05, 4.2) == pytest.approx(0.1)
    assert moments.longest_gap(4.05, 10.0) == pytest.approx(4.9)
    assert moments.longest_gap(20.0, 30.0) == 0.0


def test_only_the_latest_moments_are_held() -> None:
    moments = Moments()
    for at in range(200_000):
        moments.add(float(at))

    assert moments.longest_gap(5.0, 10.0) == 0.0
    assert moments.longest_gap(150_000.5, 150_010.0) == 1.0
