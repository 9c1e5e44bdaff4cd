"""The first micro-batch of a query, for which Spark asks the start anew after a failure."""

import threading

import pytest
from pyspark.errors import StreamingQueryException

from anabranch.client import Client
from kit.spark_following import QUERY_SECONDS_MAX, Following, World

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]


def fail_first_batch(query: Following) -> None:
    """Run the query up to its first batch, which fails before it has read anything."""

    def fail(_: int) -> None:
        raise RuntimeError("must not end")

    query.before_batch = fail
    with pytest.raises(StreamingQueryException, match="must not end"):
        query.run()
    query.before_batch = lambda _: None


def test_a_query_from_the_tail_misses_nothing_after_its_first_batch_failed(world: World) -> None:
    stream = world.create("tail-failed")
    world.write(stream, "old")
    query = world.following(stream, start="tail")
    fail_first_batch(query)
    written = world.write(stream, "a")
    query.run()
    written += world.write(stream, "b")
    query.run()
    assert query.events == sorted(written)


def test_a_query_from_the_tail_of_a_busy_stream_misses_nothing_behind_its_start(
    world: World,
) -> None:
    stream = world.create("busy", 1)
    stop = threading.Event()

    async def write(client: Client) -> None:
        async with client.writer(stream) as writer:
            for number in range(1_000_000):
                writer.write(f"{number}".encode())
                await writer.flush()
                if stop.is_set():
                    return

    writing = threading.Thread(target=lambda: world.running.run(write, 200))
    writing.start()
    try:
        query = world.following(stream, start="tail")
        third = threading.Event()
        query.before_batch = lambda batch_id: third.set() if batch_id == 2 else None
        started = query.start({}, available_now=False)
        assert third.wait(QUERY_SECONDS_MAX), started.exception()
        started.stop()
    finally:
        stop.set()
        writing.join()
    query.run()
    numbers = sorted(map(int, query.events))
    assert numbers[0] > 0
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


@pytest.mark.parametrize("kept", [0, 150])
def test_a_first_batch_that_was_truncated_before_its_second_run_does_not_stop_the_query(
    world: World, kept: int
) -> None:
    stream = world.create(f"head-failed-{kept}")
    world.write(stream, "lost")
    query = world.following(stream)
    fail_first_batch(query)
    written: list[str] = []
    if kept:
        world.truncate_all(stream)
    written += world.write(stream, "a")
    world.scale(stream, 3)
    if not kept:
        world.truncate_all(stream)
        written = []
        written += world.write(stream, "b")
        with pytest.raises(StreamingQueryException, match="events that the query has not read"):
            query.run()
    query.run(failOnDataLoss=False)
    assert query.events == sorted(written)
