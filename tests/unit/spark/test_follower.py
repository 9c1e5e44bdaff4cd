"""Following against a fake controller and store: what each micro-batch holds, over all scales."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from anabranch.common.errors import EventsTruncated, StreamNotFound
from anabranch.common.model.names import StreamRef, parse_segment_name, stream_ref
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.following.follower import Follower
from anabranch.spark.following.offsets import Offset, parse_offset, to_json
from anabranch.spark.options.follow import Budget, FollowOptions
from anabranch.spark.options.read import Division
from anabranch.spark.options.streams import Matching, Named
from anabranch.spark.places.stores import StorePlace
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.fake_segment import FakeSegment
from kit.fake_streams import FakeStream
from kit.scaling import chain, merge, shift, split
from kit.watermarks import mark_at, store_marks

SENSORS = stream_ref(STREAM)
ALL = Budget()
OPTIONS = FollowOptions(
    Named((SENSORS,)),
    NatsTarget(("nats://unused",)),
    division=Division(min_partitions=1),
)


@dataclass
class Query:
    """A query that is asked as Spark asks it: offsets go through their texts."""

    bench: Bench
    options: FollowOptions = OPTIONS
    offset: Offset = field(default_factory=dict)
    batches: list[list[bytes]] = field(default_factory=list)

    @property
    def follower(self) -> Follower:
        return Follower(StorePlace(self.bench.client), self.options)

    async def begin(self) -> None:
        self.offset = parse_offset(to_json(await self.follower.initial()))

    async def step(self, budget: Budget = ALL, target: Offset | None = None) -> bool:
        """One trigger; returns whether there was a batch."""
        end = await self.follower.latest(self.offset, budget, target)
        end = parse_offset(to_json(end))
        if to_json(end) == to_json(self.offset):
            return False
        plan = await self.follower.plan(self.offset, end, 1)
        batch: list[bytes] = []
        for piece in (piece for pieces in plan.partitions for piece in pieces):
            at, skip = piece.start, piece.skip
            source = StorePlace(self.bench.client).source(parse_segment_name(piece.segment)[0])
            while at < piece.end:
                data = await source.read(piece, at)
                batch += [payload for _, payload in self.bench.events_in(data)][skip:]
                at, skip = at + len(data), 0
        self.batches.append(batch)
        self.offset = end
        return True

    async def drain(self, budget: Budget = ALL, target: Offset | None = None) -> None:
        for _ in range(10_000):
            if not await self.step(budget, target):
                return
        raise AssertionError("the query makes no progress")

    @property
    def events(self) -> list[bytes]:
        return [event for batch in self.batches for event in batch]


async def write(b: Bench, label: str, count: int = 60, stream: str = STREAM) -> list[bytes]:
    """Events of twenty keys in blocks of a few events each."""
    events = [f"{label}-{number:03}".encode() for number in range(count)]
    async with b.client.writer(stream, writer_settings()) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=f"k{number % 20}")
            if number % 20 == 19:
                await writer.flush()
    return events


@pytest.mark.parametrize("size", [1, 100, 700, 10_000_000, None])
@pytest.mark.parametrize("stages", [split, merge, shift, chain])
async def test_batches_hold_every_event_once_over_any_scale(stages, size: int | None) -> None:  # type: ignore[no-untyped-def]
    async with bench(4) as b:
        query = Query(b)
        await query.begin()
        written: list[bytes] = []
        for round_ in range(3):
            written += await write(b, f"a{round_}")
            for _ in stages(b):
                await query.step(Budget(bytes=size))
            written += await write(b, f"b{round_}")
        await query.drain(Budget(bytes=size))
        assert sorted(query.events) == sorted(written)


async def test_keys_keep_their_order_from_batch_to_batch() -> None:
    async with bench(2) as b:
        query = Query(b)
        await query.begin()
        for round_ in range(4):
            await write(b, str(round_))
            for _ in shift(b):
                pass
        await query.drain(Budget(bytes=300))
        rounds: dict[bytes, list[bytes]] = {}
        for batch in query.batches:
            for event in sorted(batch):
                rounds.setdefault(event.partition(b"-")[2], []).append(event[:1])
        assert all(found == sorted(found) for found in rounds.values())


async def test_a_limited_batch_is_about_as_large_as_the_limit() -> None:
    async with bench(4) as b:
        query = Query(b)
        await query.begin()
        await write(b, "a", 1000)
        await query.drain(Budget(rows=200))
        sizes = [len(batch) for batch in query.batches]
        assert len(sizes) == 5
        assert max(sizes) <= 220


async def test_a_limit_of_one_byte_still_makes_progress_in_the_longest_segment() -> None:
    async with bench(3) as b:
        query = Query(b)
        await query.begin()
        written = await write(b, "a")
        await query.drain(Budget(bytes=1))
        assert sorted(query.events) == written
        assert all(query.batches)


async def test_a_query_without_news_stays_where_it_is() -> None:
    async with bench(2) as b:
        query = Query(b)
        await query.begin()
        assert not await query.step()
        await write(b, "a")
        assert await query.step()
        assert not await query.step()


async def test_available_now_ends_at_the_tail_of_its_beginning() -> None:
    async with bench(2) as b:
        query = Query(b)
        await query.begin()
        written = await write(b, "a")
        target = await query.follower.tails()
        for _ in split(b):
            pass
        later = await write(b, "b")
        await query.drain(Budget(bytes=300), target)
        assert sorted(query.events) == sorted(written)
        await query.drain()
        assert sorted(query.events) == sorted(written + later)


async def test_lost_ranges_fail_the_query_and_are_named() -> None:
    async with bench(1) as b:
        query = Query(b)
        await query.begin()
        await write(b, "a")
        length = len(b.segments[0].data)
        b.truncate({0: length})
        await write(b, "b")
        with pytest.raises(EventsTruncated, match=f"1 ranges of segments, {length} bytes") as lost:
            await query.step()
        assert (lost.value.fields["offset"], lost.value.fields["end"]) == (0, length)
        assert "failOnDataLoss" in lost.value.remedy


@pytest.mark.parametrize("size", [1, 300, None])
async def test_a_query_that_may_lose_events_goes_on_at_the_head(size: int | None) -> None:
    async with bench(3) as b:
        query = Query(b, replace(OPTIONS, fail_on_data_loss=False))
        await query.begin()
        await write(b, "lost")
        for _ in shift(b):
            pass
        lives = b.stream.current
        after = await write(b, "b")
        b.truncate({life.segment_id: 0 for life in lives})
        for _ in merge(b):
            pass
        after += await write(b, "c")
        await query.drain(Budget(bytes=size))
        assert sorted(query.events) == sorted(after)


async def test_a_truncation_behind_the_end_of_available_now_leaves_nothing_to_read() -> None:
    async with bench(1) as b:
        query = Query(b, replace(OPTIONS, fail_on_data_loss=False))
        await query.begin()
        await write(b, "a")
        target = await query.follower.tails()
        await write(b, "b")
        b.truncate({0: len(b.segments[0].data)})
        await query.drain(Budget(bytes=10), target)
        assert query.events == []
        later = await write(b, "c")
        await query.drain()
        assert sorted(query.events) == later


async def test_another_incarnation_fails_a_query_even_if_it_may_lose_events() -> None:
    for may_lose in (False, True):
        async with bench(1) as b:
            query = Query(b, replace(OPTIONS, fail_on_data_loss=not may_lose))
            await query.begin()
            query.offset = {SENSORS: replace(query.offset[SENSORS], incarnation=7)}
            with pytest.raises(StreamNotFound, match="another one was created") as refused:
                await query.step()
            assert "new checkpoint" in refused.value.remedy


async def test_a_stream_that_is_gone_fails_the_query_or_is_left_out() -> None:
    async with bench(1) as b:
        other = add_stream(b, "other")
        written = await write(b, "a") + await write(b, "b", stream=str(other))
        options = replace(OPTIONS, which=Matching("plant/.*"))
        query, careless = Query(b, options), Query(b, replace(options, fail_on_data_loss=False))
        for each in (query, careless):
            await each.begin()
            await each.drain()
        del b.controller.scopes["plant"]["other"]
        written += await write(b, "c")
        with pytest.raises(StreamNotFound, match="is gone"):
            await query.step()
        await careless.drain()
        assert sorted(careless.events) == sorted(written)
        assert other in careless.offset


async def test_a_stream_that_matches_later_begins_at_its_head() -> None:
    async with bench(1) as b:
        query = Query(b, replace(OPTIONS, which=Matching("plant/.*"), start="tail"))
        await write(b, "old")
        await query.begin()
        other = add_stream(b, "other")
        written = await write(b, "b", stream=str(other))
        await query.drain()
        assert sorted(query.events) == written


async def test_streams_share_a_limit_and_a_short_one_is_taken_whole() -> None:
    async with bench(1) as b:
        other = add_stream(b, "other")
        query = Query(b, replace(OPTIONS, which=Named((SENSORS, other))))
        await query.begin()
        many, few = await write(b, "many", 600), await write(b, "few", 20, str(other))
        await query.step(Budget(rows=100))
        assert set(few) <= set(query.batches[0])
        assert set(many) & set(query.batches[0])
        await query.drain(Budget(rows=100))
        assert sorted(query.events) == sorted(many + few)


async def test_positions_within_a_block_begin_with_the_next_event() -> None:
    async with bench(1) as b:
        written = await write(b, "a")
        name = b.every_segment()[0].name
        query = Query(b, replace(OPTIONS, start={name: (0, 7)}))
        await query.begin()
        await query.drain(Budget(bytes=1))
        assert query.events == written[7:]


async def test_the_backlog_is_the_number_of_unread_bytes() -> None:
    async with bench(2) as b:
        query = Query(b)
        await query.begin()
        await write(b, "a")
        length = sum(len(segment.data) for segment in b.segments)
        assert (await query.follower.backlog(query.offset))[1] == length
        await query.step(Budget(bytes=length // 2))
        left = (await query.follower.backlog(query.offset))[1]
        assert 0 < left < length
        await query.drain()
        assert (await query.follower.backlog(query.offset))[1] == 0


async def test_a_batch_has_the_last_watermark_whose_cut_lies_before_its_end() -> None:
    async with bench(1) as b:
        query = Query(b, replace(OPTIONS, columns=("event", "watermark")))
        await query.begin()
        start = query.offset
        assert (await query.follower.plan(start, await query.follower.tails(), 1)).watermarks == {}
        name = b.every_segment()[0].name
        ends: list[Offset] = []
        for round_ in range(3):
            await write(b, str(round_))
            ends.append(await query.follower.tails())
            length = len(b.segments[0].data)
            mark = mark_at(b.every_segment(), {name: length}, lower_ms=1000 * (round_ + 1))
            store_marks(b.store, b.ref, mark)
        await write(b, "behind")
        for round_, end in enumerate([*ends, await query.follower.tails()]):
            found = (await query.follower.plan(start, end, 1)).watermarks
            assert found == {SENSORS: 1000 * (min(round_, 2) + 1)}


async def test_a_watermark_behind_a_scale_does_not_count_before_it() -> None:
    async with bench(2) as b:
        query = Query(b, replace(OPTIONS, columns=("event", "watermark")))
        await query.begin()
        start, old = query.offset, b.every_segment()
        await write(b, "a")
        end = await query.follower.tails()
        store_marks(b.store, b.ref, mark_at(old, {}, lower_ms=5))
        for _ in shift(b):
            pass
        new = b.every_segment()[len(old) :]
        store_marks(b.store, b.ref, mark_at(new, {}, lower_ms=9))
        assert (await query.follower.plan(start, end, 1)).watermarks == {SENSORS: 5}
        await write(b, "b")
        later = await query.follower.tails()
        assert (await query.follower.plan(start, later, 1)).watermarks == {SENSORS: 9}


def add_stream(b: Bench, name: str) -> StreamRef:
    """Another stream of one segment in the scope."""
    b.controller.scopes["plant"][name] = FakeStream(1)
    segments: Mapping[str, FakeSegment] = {
        each: FakeSegment() for each in b.controller.segment_names("plant", name)
    }
    b.store.segments.update(segments)
    return stream_ref(f"plant/{name}")
