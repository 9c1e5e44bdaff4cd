"""Streaming queries on one cluster: every event exactly once, whatever happens to the stream."""

import json
from functools import partial

import pytest
from pyspark.errors import StreamingQueryException

from anabranch.client import Client, Position
from kit.spark_following import SCOPE, World

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]


def test_each_event_comes_once_over_restarts_splits_and_merges(world: World) -> None:
    stream = world.create("scaled")
    query = world.following(stream)
    written: list[str] = []
    for round_, segments in enumerate([6, 2, 3]):
        written += world.write(stream, f"a{round_}")
        query.run()
        written += world.write(stream, f"b{round_}")
        world.scale(stream, segments)
        world.scale(stream, segments + 1)
        written += world.write(stream, f"c{round_}")
    query.run()
    assert query.events == sorted(written)
    assert len(query.runs) == 4


def test_limits_divide_a_backlog_over_scales_into_batches_without_loss(world: World) -> None:
    stream = world.create("limited")
    written = world.write(stream, "a")
    world.scale(stream, 5)
    written += world.write(stream, "b")
    world.scale(stream, 2)
    written += world.write(stream, "c")
    query = world.following(stream, max_bytes_per_trigger=1500)
    query.run()
    assert query.events == sorted(written)
    assert len(query.runs) > 5
    assert max(len(batch) for batch in query.batches.values()) < 250


def test_a_limit_of_rows_is_kept_about(world: World) -> None:
    stream = world.create("rows")
    written = world.write(stream, "a", 1000)
    query = world.following(stream, max_rows_per_trigger=200)
    query.run()
    assert query.events == written
    sizes = [len(batch) for batch in query.batches.values()]
    assert len(sizes) >= 4
    assert max(sizes) <= 300


def test_a_batch_that_failed_is_repeated_with_the_same_events_after_a_scale(world: World) -> None:
    stream = world.create("repeated")
    written = world.write(stream, "a")
    query = world.following(stream)

    def fail(batch_id: int) -> None:
        raise RuntimeError(f"batch {batch_id} must not end")

    query.before_batch = fail
    with pytest.raises(StreamingQueryException, match="must not end"):
        query.run()
    assert query.runs == []
    world.scale(stream, 4)
    later = world.write(stream, "b")
    query.before_batch = lambda _: None
    query.run()
    assert sorted(query.batches[0]) == written
    assert query.events == sorted(written + later)


def test_a_query_that_is_stopped_and_started_goes_on_where_it_was(world: World) -> None:
    stream = world.create("stopped")
    query = world.following(stream)
    written: list[str] = []
    for round_ in range(3):
        written += world.write(stream, f"r{round_}")
        started = query.start({}, available_now=False)
        started.processAllAvailable()
        started.stop()
    assert query.events == sorted(written)


@pytest.mark.parametrize("limits", [{}, {"max_bytes_per_trigger": 3000}])
def test_truncated_events_fail_the_query_or_are_passed_over(
    world: World, limits: dict[str, int]
) -> None:
    stream = world.create(f"truncated{len(limits)}")
    before = world.write(stream, "a")
    query = world.following(stream, **limits)
    query.run()
    world.write(stream, "lost")
    world.scale(stream, 3)
    world.truncate_all(stream)
    after = world.write(stream, "b")
    with pytest.raises(StreamingQueryException, match="events that the query has not read"):
        query.run()
    assert query.events == before
    query.run(failOnDataLoss=False)
    assert query.events == sorted(before + after)


def test_a_stream_created_again_under_the_name_is_not_followed(world: World) -> None:
    stream = world.create("again")
    written = world.write(stream, "a")
    query = world.following(stream)
    query.run()

    async def create_again(client: Client) -> None:
        await client.streams.seal(stream)
        await client.streams.delete(stream)
        await client.streams.create(stream, segments=2)

    world.do(create_again)
    world.write(stream, "b")
    for may_lose in (False, True):
        with pytest.raises(StreamingQueryException, match="was deleted, and another one"):
            query.run(failOnDataLoss=not may_lose)
    assert query.events == written


def test_a_deleted_stream_fails_the_query_unless_it_may_lose_events(world: World) -> None:
    stays, goes = world.create("stays"), world.create("goes")
    written = world.write(stays, "a") + world.write(goes, "b")
    query = world.following(streams=f"{stays},{goes}")
    query.run()

    async def delete(client: Client) -> None:
        await client.streams.seal(goes)
        await client.streams.delete(goes)

    world.do(delete)
    written += world.write(stays, "c")
    with pytest.raises(StreamingQueryException, match="no such stream"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.events == sorted(written)


def test_a_sealed_stream_is_read_to_its_end_and_then_has_no_batches(world: World) -> None:
    stream = world.create("sealed")
    written = world.write(stream, "a")
    query = world.following(stream)
    world.do(lambda client: client.streams.seal(stream))
    for _ in range(2):
        query.run()
    assert query.events == written
    assert query.runs == [0]


def test_a_stream_that_matches_later_is_read_from_its_head(world: World) -> None:
    written = world.write(world.create("some-one"), "a")
    query = world.following(pattern=f"{SCOPE}/some-.*")
    query.run()
    written += world.write(world.create("some-two"), "b")
    world.create("other")
    written += world.write(f"{SCOPE}/some-one", "c")
    query.run(max_bytes_per_trigger=5000)
    assert query.events == sorted(written)


def test_two_streams_share_the_limit_of_a_batch(world: World) -> None:
    short, long = world.create("short"), world.create("long")
    few, many = world.write(short, "few", 40), world.write(long, "many", 1000)
    query = world.following(streams=f"{short},{long}", max_bytes_per_trigger=8000)
    query.run()
    assert query.events == sorted(few + many)
    assert {event[:3] for event in query.batches[0]} == {"few", "man"}


def test_a_transaction_comes_whole_in_one_batch(world: World) -> None:
    stream = world.create("transactional", 4)
    query = world.following(stream)
    started = query.start({}, available_now=False)

    async def commit(client: Client, round_: int) -> None:
        async with await client.transactions(stream).begin() as transaction:
            for number in range(40):
                transaction.write(f"{round_}-{number}".encode(), key=f"k{number}")
            await transaction.commit()

    for round_ in range(5):
        world.do(partial(commit, round_=round_))
    started.processAllAvailable()
    started.stop()
    assert len(query.events) == len(set(query.events)) == 200
    for batch in query.batches.values():
        assert len(batch) % 40 == 0


def test_retention_may_delete_what_a_later_batch_has_confirmed(world: World) -> None:
    stream = world.create("retained")
    group = f"{SCOPE}/spark"
    seen: dict[int, tuple[object, ...]] = {}

    async def released(client: Client) -> tuple[object, ...]:
        return (await client.reader_groups.subscribers(stream))[0].cut

    query = world.following(stream, reader_group=group, max_bytes_per_trigger=800)
    query.before_batch = lambda batch_id: seen.update({batch_id: world.do(released)})
    written = world.write(stream, "a")
    query.run()
    head = world.do(lambda client: client.streams.head_cut(stream))
    first = tuple(sorted((int(at.segment_id), at.offset) for at in head.segments))
    assert [(int(at.segment_id), at.offset) for at in seen[0]] == list(first)  # type: ignore[attr-defined]
    assert len(seen) >= 4
    before = seen[max(seen)]
    assert before > seen[0]
    world.write(stream, "b")
    query.run()
    assert len(query.events) == len(set(query.events)) == 2 * len(written)
    assert world.do(released) > before


def test_queries_start_at_the_tail_at_a_time_and_within_a_block(world: World) -> None:
    stream = world.create("starts")
    world.write(stream, "old")

    async def positions(client: Client) -> dict[str, Position]:
        async with client.reader(stream, until_tail=True) as reader:
            for _ in range(33):
                await anext(reader)
            return reader.positions()

    place = world.do(positions)
    assert any(index for _, index in place.values())
    within = world.following(stream, start=json.dumps(place))
    within.run()
    assert len(within.events) == len(set(within.events)) == 200 - 33

    tail = world.following(stream, start="tail")
    tail.checkpoint = world.directory / "tail"
    tail.run()
    timed = world.following(stream, start="2001-01-01T00:00:00Z")
    timed.checkpoint = world.directory / "timed"
    timed.run()
    new = world.write(stream, "new")
    tail.run()
    assert tail.events == new
    assert len(timed.events) == 200


def test_progress_tells_the_lag(world: World) -> None:
    stream = world.create("lagging")
    world.write(stream, "a")
    query = world.following(stream, max_bytes_per_trigger=800)
    progress = query.run().recentProgress
    lags = [
        json.loads(str(told["sources"][0]["latestOffset"]).replace("'", '"'))["lag_bytes"]
        for told in progress
        if told["numInputRows"]
    ]
    assert len(lags) >= 4
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 1500
    assert lags[-1] == 0


def test_a_stream_of_many_segments_is_followed_in_few_tasks(world: World) -> None:
    stream = world.create("wide", 200)
    written = world.write(stream, "a", 1000)
    query = world.following(stream)
    query.run()
    written += world.write(stream, "b", 1000)
    query.run(max_bytes_per_trigger=20_000)
    assert query.events == sorted(written)


def test_what_cannot_be_followed_is_refused_with_a_remedy(world: World) -> None:
    stream = world.create("refused")
    query = world.following(stream)
    for options, told in (
        ({"end": "tail"}, "there is no option 'end'"),
        ({"failOnDataLoss": "perhaps"}, "give true or false"),
        ({"stream": f"{SCOPE}/none"}, "no such stream"),
    ):
        with pytest.raises(StreamingQueryException, match=told):
            query.run(**options)
