"""The streaming reader as Spark calls it, and the client that it keeps between calls."""

import pickle
from dataclasses import replace
from typing import cast

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
