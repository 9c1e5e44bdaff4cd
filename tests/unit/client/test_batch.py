"""The batch client: ranges between cuts, and cuts so many bytes apart, across scales."""

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client import BatchClient, Closed, EventBatch, Position, SegmentRange
from anabranch.common.errors import (
    EventsTruncated,
    InvalidCut,
    InvalidRequest,
    PlanOutdated,
    SegmentNotFound,
)
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.history import KeyedHistory
from kit.scaling import assert_covers, chain, merge, shift, split

SCALES = {"split": split, "merge": merge, "shift": shift, "chain": chain}
KEYS = [f"key {number}" for number in range(6)]
STEPS_MAX = 500
Rows = list[tuple[str | None, bytes]]


async def write(b: Bench, history: KeyedHistory, epoch: str, count: int) -> None:
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=60)) as writer:
        for number in range(count):
            key = KEYS[number % len(KEYS)]
            payload = f"{epoch} {number}".encode()
            writer.write(payload, key)
            history.wrote(payload, key)


async def written(b: Bench, *epochs: str, count: int = 12) -> KeyedHistory:
    """Something in every epoch."""
    history = KeyedHistory()
    await write(b, history, "first", count)
    for number, epoch in enumerate(epochs):
        if epoch == "merge" and len(b.stream.current) < 2:
            epoch = "split"  # noqa: PLW2901
        for _ in SCALES[epoch](b):
            pass
        await write(b, history, f"{number} {epoch}", count)
    return history


def rows(batch: EventBatch) -> Rows:
    return [(event.key, event.payload) for event in batch.events()]


async def read(batch: BatchClient, ranges: list[SegmentRange]) -> Rows:
    return [row for each in ranges async for found in batch.read_range(each) for row in rows(found)]


async def steps(
    batch: BatchClient, size: int, cut: Mapping[str, Position] | None = None
) -> list[Mapping[str, Position] | None]:
    """Cuts from `cut` to the tail, each `size` bytes further on."""
    found: list[Mapping[str, Position] | None] = [cut]
    for _ in range(STEPS_MAX):
        after = await batch.next_stream_cut(STREAM, found[-1], size)
        if after == found[-1]:
            return found
        found.append(after)
    raise AssertionError("the cuts do not come to an end")


# --- ranges -----------------------------------------------------------------------------------


async def test_the_ranges_of_all_epochs_hold_every_event_once() -> None:
    async with bench(2) as b:
        history = await written(b, "split", "shift", "merge")
        ranges = await b.client.batch.segment_ranges(STREAM)
        history.check(await read(b.client.batch, ranges))
        assert sum(each.size for each in ranges) == await b.client.batch.distance(
            STREAM, None, None
        )


async def test_ranges_between_cuts_have_what_was_written_between_them() -> None:
    async with bench(2) as b:
        await written(b, "split")
        async with b.client.reader(STREAM, "tail") as reader:
            start = reader.positions()
        history = KeyedHistory()
        await write(b, history, "between", 20)
        for _ in chain(b):
            pass
        await write(b, history, "later", 20)
        async with b.client.reader(STREAM, "tail") as reader:
            end = reader.positions()
        await write(b, KeyedHistory(), "behind", 20)
        batch = b.client.batch
        ranges = await batch.segment_ranges(STREAM, start, end)
        history.check(await read(batch, ranges))
        assert await batch.distance(STREAM, start, end) == sum(each.size for each in ranges)
        assert await batch.segment_ranges(STREAM, end, end) == []
        assert await batch.distance(STREAM, start, start) == 0


async def test_an_empty_stream_has_no_ranges() -> None:
    async with bench(3) as b:
        assert await b.client.batch.segment_ranges(STREAM) == []


async def test_a_cut_of_another_stream_is_refused() -> None:
    async with bench() as b:
        with pytest.raises(InvalidCut):
            await b.client.batch.segment_ranges(STREAM, {"plant/other/0.#epoch.0": (0, 0)})


async def test_a_truncated_range_is_told_once_and_the_rest_of_it_is_read() -> None:
    async with bench() as b:
        history = await written(b)
        (segment,) = b.segments
        (whole,) = await b.client.batch.segment_ranges(STREAM)
        b.truncate({0: segment.boundaries[-2]})
        reader = b.client.batch.read_range(whole)
        with pytest.raises(EventsTruncated) as told:
            await anext(reader)
        assert told.value.fields["start"] == reader.offset == segment.boundaries[-2]
        found = [row async for batch in reader for row in rows(batch)]
        assert 0 < len(found) < sum(map(len, history.written.values()))
        assert found == b.events_in(bytes(segment.data[segment.boundaries[-2] :]))


async def test_a_range_of_a_deleted_segment_is_told_of_and_ends() -> None:
    async with bench() as b:
        await written(b, "split")
        first, *_ = await b.client.batch.segment_ranges(STREAM)
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        reader = b.client.batch.read_range(first)
        with pytest.raises(EventsTruncated):
            await anext(reader)
        assert [batch async for batch in reader] == []


async def test_a_range_beyond_the_end_of_a_sealed_segment_is_outdated() -> None:
    async with bench() as b:
        await written(b)
        b.seal()
        (whole,) = await b.client.batch.segment_ranges(STREAM)
        reader = b.client.batch.read_range(SegmentRange(whole.segment, 0, whole.end + 100))
        with pytest.raises(PlanOutdated):
            [batch async for batch in reader]
        assert [batch async for batch in reader] == []


async def test_a_range_of_no_segment_says_so() -> None:
    async with bench() as b:
        reader = b.client.batch.read_range(SegmentRange(f"{STREAM}/7.#epoch.0", 0, 10))
        with pytest.raises(SegmentNotFound):
            await anext(reader)


async def test_a_closed_range_says_so_and_a_closed_client_too() -> None:
    async with bench() as b:
        await written(b)
        (whole,) = await b.client.batch.segment_ranges(STREAM)
        async with b.client.batch.read_range(whole) as reader:
            await anext(reader)
        with pytest.raises(Closed):
            await anext(reader)
        unread = b.client.batch.read_range(whole)
        await anext(unread)  # ends with the client
    with pytest.raises(Closed):
        _ = b.client.batch
    with pytest.raises(Closed):
        b.client.reader(STREAM)


# --- steps ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(sorted(SCALES)), max_size=3),
    st.integers(1, 3),
    st.sampled_from([1, 90, 400, 3000, 10**7]),
    st.booleans(),
)
def test_the_steps_to_the_tail_hold_every_event_once(
    epochs: list[str], segment_count: int, size: int, sealed: bool
) -> None:
    async def scenario() -> None:
        async with bench(segment_count) as b:
            history = await written(b, *epochs)
            if sealed:
                b.seal()
            batch = b.client.batch
            cuts = await steps(batch, size)
            found: Rows = []
            for start, end in pairwise(cuts):
                assert end is not None
                assert_covers(b, [name for name, place in end.items() if place.offset >= 0])
                found += await read(batch, await batch.segment_ranges(STREAM, start, end))
            history.check(found)

    asyncio.run(scenario())


async def test_a_step_is_about_as_long_as_asked_for_and_never_past_the_tail() -> None:
    async with bench(2) as b:
        await written(b, count=60)
        batch = b.client.batch
        cuts = await steps(batch, 500)
        sizes = [await batch.distance(STREAM, *pair) for pair in pairwise(cuts)]
        blocks = [end - at for one in b.segments for at, end in pairwise((0, *one.boundaries))]
        assert max(sizes) < 500 + 2 * max(blocks)
        assert len(cuts) > 3
        lengths = {name: len(segment.data) for name, segment in b.store.segments.items()}
        assert {name: place.offset for name, place in (cuts[-1] or {}).items()} == lengths


async def test_a_merged_segment_is_begun_when_all_its_predecessors_were_read() -> None:
    async with bench(2) as b:
        async with b.client.writer(STREAM, writer_settings(block_size_bytes=60)) as writer:
            for _ in range(60):
                writer.write(b"in the one half alone", "key 1")
        await written(b, "merge", count=2)
        cuts = await steps(b.client.batch, 200)
        for cut in cuts[1:]:
            assert cut is not None
            assert_covers(b, list(cut))
        assert len(cuts) > 4


async def test_a_truncated_cut_does_not_move_on() -> None:
    async with bench() as b:
        await written(b, "split")
        first, *_ = b.every_segment()
        for cut in ({0: b.store.segments[first.name].boundaries[0]}, None):
            b.truncate(cut or {life.segment_id: 0 for life in b.stream.current})
            with pytest.raises(EventsTruncated) as told:
                await b.client.batch.next_stream_cut(STREAM, {first.name: (0, 0)}, 100)
            assert told.value.fields["segment"] == first.name
            assert told.value.fields["start"] == (cut or {}).get(0)


async def test_a_step_of_no_bytes_is_refused() -> None:
    async with bench() as b:
        with pytest.raises(InvalidRequest):
            await b.client.batch.next_stream_cut(STREAM, None, 0)
