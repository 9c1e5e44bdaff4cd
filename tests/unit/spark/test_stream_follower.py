"""The streaming reader as Spark calls it, and the client that it keeps between calls."""

import asyncio
import pickle
from asyncio import to_thread
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal, cast

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.following.kept_client import KeptClient
from anabranch.spark.following.source import StreamFollower, budget_of
from anabranch.spark.options.columns import DEFAULT
from anabranch.spark.options.follow import Budget, FollowOptions
from anabranch.spark.options.streams import Named
from anabranch.spark.places.stores import StorePlace
from anabranch.spark.reading.schema import schema_of
from anabranch.spark.reading.source import ReadPartition
from kit.client_bench import STREAM, Bench, bench, writer_settings

OPTIONS = FollowOptions(Named((stream_ref("demo/flights"),)), NatsTarget(("nats://unused",)))
SCHEMA = schema_of(DEFAULT)


class CountedPlace:
    """Stands for an open place, which the work only passes around."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class Opening:
    """Opens places, as often as it is asked; `failures` first attempts fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.opened: list[CountedPlace] = []

    async def __call__(self) -> StorePlace:
        if self.failures:
            self.failures -= 1
            raise Unavailable("not yet")
        self.opened.append(CountedPlace())
        return cast("StorePlace", self.opened[-1])


class QuickClock(SystemClock):
    """Pauses take no time."""

    async def sleep(self, seconds: float) -> None:
        return


@pytest.mark.parametrize(
    ("limit", "taken"),
    [
        (ReadAllAvailable(), Budget()),
        (ReadMaxBytes(7), Budget(7, 20)),
        (ReadMaxRows(7), Budget(10, 7)),
        (ReadMinRows(7), Budget()),
    ],
)
def test_the_limit_of_spark_counts_together_with_the_other_one_of_the_options(
    limit: ReadLimit, taken: Budget
) -> None:
    assert budget_of(limit, Budget(10, 20)) == taken


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(), ReadAllAvailable()),
        (Budget(rows=5), ReadMaxRows(5)),
        (Budget(5, 6), ReadMaxBytes(5)),
    ],
)
def test_spark_learns_the_limit_of_the_options(budget: Budget, limit: ReadLimit) -> None:
    assert StreamFollower(replace(OPTIONS, budget=budget), SCHEMA).getDefaultReadLimit() == limit


def test_a_follower_is_pickled_as_its_options_and_columns_alone() -> None:
    follower = StreamFollower(OPTIONS, SCHEMA)
    follower._kept = KeptClient(Opening(), SystemClock())
    copied = pickle.loads(pickle.dumps(follower))
    assert (copied._options, copied._schema) == (OPTIONS, SCHEMA)
    assert copied._kept is None


def test_an_offset_of_a_later_release_is_refused_before_any_connection() -> None:
    with pytest.raises(InvalidRequest, match="update anabranch-spark"):
        StreamFollower(OPTIONS, SCHEMA).latestOffset({"demo/flights": "v9"}, ReadAllAvailable())


def test_calls_share_one_connection_until_the_client_is_closed() -> None:
    opening = Opening()
    kept = KeptClient(opening, SystemClock())

    async def which(place: StorePlace) -> StorePlace:
        return place

    assert kept.run(which) is kept.run(which)
    kept.close()
    kept.close()
    assert [place.closed for place in opening.opened] == [1]
    kept.run(which)
    kept.close()
    assert len(opening.opened) == 2


def test_a_call_connects_again_after_an_error_that_this_may_heal() -> None:
    opening = Opening(failures=2)
    kept = KeptClient(opening, QuickClock())
    broken = [Unavailable("lost")]

    async def work(_: StorePlace) -> str:
        if broken:
            raise broken.pop()
        return "done"

    assert kept.run(work) == "done"
    assert [place.closed for place in opening.opened] == [1, 0]
    kept.close()


def test_an_error_of_the_request_is_raised_at_once() -> None:
    opening = Opening()
    kept = KeptClient(opening, QuickClock())

    async def work(_: StorePlace) -> None:
        raise InvalidRequest("wrong")

    with pytest.raises(InvalidRequest):
        kept.run(work)
    assert [place.closed for place in opening.opened] == [0]
    kept.close()


class KeptInLoop:
    """Stands for `KeptClient`: performs the work in the loop of the test, from another thread."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()

    def run(self, work: Callable[[StorePlace], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(self._place), self._loop).result(30)


def follower_of(b: Bench, start: Literal["head", "tail"]) -> StreamFollower:
    """A reader of a process that Spark has just begun."""
    options = replace(OPTIONS, which=Named((stream_ref(STREAM),)), start=start)
    found = StreamFollower(options, SCHEMA)
    found._kept = cast("KeptClient", KeptInLoop(StorePlace(b.client)))
    return found


async def write(b: Bench, event: bytes) -> None:
    async with b.client.writer(STREAM, writer_settings()) as writer:
        writer.write(event)


def sizes(follower: StreamFollower, start: Any, end: Any) -> int:
    """The planned bytes of a micro-batch."""
    parts = cast("list[ReadPartition]", follower.partitions(start, end))
    return sum(piece.size for part in parts for piece in part.pieces)


async def test_the_first_batch_from_the_tail_is_empty_and_a_repetition_of_it_too() -> None:
    async with bench(1) as b:
        await write(b, b"old")
        first, length = follower_of(b, "tail"), len(b.segments[0].data)
        start = await to_thread(first.initialOffset)
        await write(b, b"new")
        end = await to_thread(first.latestOffset, start, ReadAllAvailable())
        await write(b, b"new")
        assert start == end == await to_thread(first.initialOffset)
        assert await to_thread(sizes, first, start, end) == 0
        news = len(b.segments[0].data) - length
        later = await to_thread(first.latestOffset, end, ReadAllAvailable())
        assert await to_thread(sizes, first, end, later) == news

        again = follower_of(b, "tail")  # the first process died in the first batch
        moved = await to_thread(again.initialOffset)
        assert moved != start
        assert await to_thread(sizes, again, moved, end) == 0
        later = await to_thread(again.latestOffset, end, ReadAllAvailable())
        assert await to_thread(sizes, again, end, later) == news


async def test_a_run_to_the_tail_that_begins_there_has_nothing_to_read() -> None:
    async with bench(1) as b:
        follower = follower_of(b, "tail")
        await to_thread(follower.prepareForTriggerAvailableNow)
        await write(b, b"later")
        start = await to_thread(follower.initialOffset)
        for _ in range(2):
            assert await to_thread(follower.latestOffset, start, ReadAllAvailable()) == start


@pytest.mark.parametrize("truncated", [1, 2])
async def test_a_first_batch_from_the_head_that_runs_again_has_what_is_left(truncated: int) -> None:
    async with bench(1) as b:
        ends = [0]
        first = follower_of(b, "head")
        start = await to_thread(first.initialOffset)
        for event in (b"one", b"two"):
            await write(b, event)
            ends.append(len(b.segments[0].data))
        end = await to_thread(first.latestOffset, start, ReadAllAvailable())
        await write(b, b"behind")
        b.truncate({0: ends[truncated]})
        again = follower_of(b, "head")
        moved = await to_thread(again.initialOffset)
        assert await to_thread(sizes, again, moved, end) == ends[2] - ends[truncated]


async def test_a_first_batch_whose_start_lies_behind_its_end_is_empty() -> None:
    async with bench(1) as b:
        first = follower_of(b, "head")
        await write(b, b"one")
        start = await to_thread(first.initialOffset)
        end = await to_thread(first.latestOffset, start, ReadAllAvailable())
        await write(b, b"two")
        b.truncate({0: len(b.segments[0].data)})
        again = follower_of(b, "head")
        moved = await to_thread(again.initialOffset)
        assert await to_thread(sizes, again, moved, end) == 0
