"""Events that are truncated while the tasks of a micro-batch read them.

A query calls the test between the plan of a micro-batch and its tasks.
"""

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from anabranch.client import Client, WriterSettings
from anabranch.common.model.names import parse_segment_name
from kit.spark_following import Following, World

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
LARGE_BYTES = 9 * 1024 * 1024
"""A segment of two of them is read in several steps."""


def once(work: Callable[[], object]) -> Callable[[int], None]:
    """Do the work before the first batch alone."""
    left = [work]

    def before_batch(_: int) -> None:
        if left:
            left.pop()()

    return before_batch


def truncate_behind(world: World, stream: str, count: int) -> set[str]:
    """Truncate at about the block after so many events; returns what the stream still has."""

    async def work(client: Client) -> list[str]:
        async with client.reader(stream, until_tail=True) as reader:
            for _ in range(count):
                await anext(reader)
            places = reader.positions()
        cut: dict[int, int] = {
            parse_segment_name(name)[1]: at.offset for name, at in places.items()
        }
        await client.streams.truncate(stream, cut)
        async with client.reader(stream, until_tail=True) as reader:
            return [bytes(event.payload).decode() async for event in reader]

    return set(world.do(work))


def truncating(world: World, name: str) -> tuple[Following, list[str], list[set[str]]]:
    """A query whose second batch loses a segment and a part of another one behind its plan."""
    stream = world.create(name, 1)
    query = world.following(stream)
    query.run()
    written = world.write(stream, "a")
    world.scale(stream, 2)
    written += world.write(stream, "b")
    kept: list[set[str]] = []
    query.before_batch = once(lambda: kept.append(truncate_behind(world, stream, 280)))
    return query, written, kept


def test_a_query_that_may_lose_events_goes_on_behind_a_truncation_below_its_tasks(
    world: World,
) -> None:
    query, written, kept = truncating(world, "below-tasks")
    query.run(failOnDataLoss=False)
    assert set(query.events) == kept[0]
    assert 0 < len(kept[0]) < len(written) - 200
    assert len(query.events) == len(kept[0])
    later = world.write(f"{query.options['stream']}", "c")
    query.run()
    assert query.events == sorted([*kept[0], *later])


def test_a_query_that_must_not_lose_events_tells_of_a_truncation_below_its_tasks(
    world: World,
) -> None:
    query, _, kept = truncating(world, "below-strict-tasks")
    with pytest.raises(StreamingQueryException, match="set the option failOnDataLoss to false"):
        query.run()
    assert query.events == []
    with pytest.raises(StreamingQueryException, match="events that the query has not read"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.events == sorted(kept[0])


def test_a_large_event_without_its_first_part_is_lost_as_a_whole(world: World) -> None:
    stream = world.create("large", 1)

    async def write(client: Client) -> None:
        async with client.writer(stream, WriterSettings(large_events=True)) as writer:
            writer.write(b"L" * LARGE_BYTES, key="k")
            await writer.flush()
            writer.write(b"after", key="k")

    async def cut_into(client: Client) -> None:
        (segment,) = (await client.streams.current_segments(stream)).segments
        at = await client.ranges().boundary(segment.name, 1)
        await client.streams.truncate(stream, {segment.segment_id: at})

    world.do(write)
    query = world.following(stream)
    query.before_batch = once(lambda: world.do(cut_into))
    query.run(failOnDataLoss=False)
    assert query.events == ["after"]
    again = world.following(stream)  # its plan begins between the parts and their reference
    again.checkpoint = world.directory / "again"
    again.run(failOnDataLoss=False)
    assert again.events == ["after"]
    reader = world.session.read.format("anabranch").option("nats_url", world.running.nats_url)
    assert [bytes(row["event"]) for row in reader.load(stream).select("event").collect()] == [
        b"after"
    ]
