"""What a read may be told, and how it refuses what cannot be meant."""

import pytest

from anabranch.common.errors import Invalid
from anabranch.common.model.names import ScopeName, stream_ref
from anabranch.common.model.topics import TopicName
from anabranch.spark.options.bounds import AtTime
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.read import parse_options
from anabranch.spark.options.streams import Matching, Named, OfTopic, Tagged

TIER2 = {"path": "demo/flights", "tier2": "file:///t"}


def test_a_stream_and_a_source_are_enough() -> None:
    options = parse_options(TIER2)
    assert options.which == Named((stream_ref("demo/flights"),))
    assert options.place == TierTwo("file:///t")
    assert (options.start, options.end) == ("head", "tail")
    assert options.division.min_partitions is None


def test_a_topic_stands_in_place_of_a_stream() -> None:
    options = parse_options({"topic": "orders", "tier2": "file:///t"})
    assert options.which == OfTopic(TopicName("orders"))


def test_positions_are_read_from_json() -> None:
    options = parse_options({**TIER2, "start": '{"demo/flights/0.#epoch.0": [68, 2]}'})
    assert options.start == {"demo/flights/0.#epoch.0": (68, 2)}


def test_several_streams_are_named_matched_or_tagged() -> None:
    place = {"tier2": "file:///t"}
    listed = parse_options({**place, "streams": "demo/a, demo/b,demo/a"})
    assert listed.which == Named((stream_ref("demo/a"), stream_ref("demo/b")))
    matching = parse_options({**place, "pattern": r"demo/f.*", "scope": "demo"}).which
    assert matching == Matching(r"demo/f.*", ScopeName("demo"))
    assert matching.matches(stream_ref("demo/flights"))
    assert not matching.matches(stream_ref("demo/aflights"))
    assert parse_options({**place, "tag": "eu", "scope": "demo"}).which == Tagged(
        ScopeName("demo"), "eu"
    )


def test_a_read_begins_at_a_time_with_a_zone() -> None:
    options = parse_options({**TIER2, "start": "1970-01-01T00:00:01+00:00"})
    assert options.start == AtTime(1000)


def test_columns_are_chosen_by_name() -> None:
    assert parse_options({**TIER2, "columns": "event, writer_id"}).columns == (
        "event", "writer_id",
    )  # fmt: skip
    assert parse_options(TIER2).columns[0] == "event"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tier2": "file:///t"}, "the read names no stream"),
        ({**TIER2, "stream": "demo/other"}, "the read names two streams"),
        ({**TIER2, "topic": "orders"}, "a stream and a topic"),
        ({"topic": "Orders", "tier2": "file:///t"}, "Invalid topic name"),
        ({"path": "flights", "tier2": "file:///t"}, "does not name a stream"),
        ({"path": "demo/flights"}, "exactly one source"),
        ({**TIER2, "nats_url": "nats://127.0.0.1:1"}, "exactly one source"),
        ({**TIER2, "tierr2": "x"}, "there is no option 'tierr2'"),
        ({**TIER2, "start": "yesterday"}, "start is not understood"),
        ({**TIER2, "end": '{"s": [1]}'}, "end is not understood"),
        ({**TIER2, "end": '{"s": [-1, 0]}'}, "end is not understood"),
        ({**TIER2, "start": "[1, 2]"}, "start is not understood"),
        ({**TIER2, "start": '{"s": [true, 0]}'}, "start is not understood"),
        ({**TIER2, "start": "2013-01-01T00:00:00"}, "start is not understood"),
        ({**TIER2, "pattern": "demo/.*"}, "in several ways"),
        ({"pattern": "(", "tier2": "file:///t"}, "not a regular expression"),
        ({"tag": "eu", "tier2": "file:///t"}, "in one scope"),
        ({"streams": ",", "tier2": "file:///t"}, "streams is not understood"),
        ({**TIER2, "scope": "demo"}, "scope goes with"),
        ({**TIER2, "columns": "event,event"}, "columns is not understood"),
        ({**TIER2, "columns": "evnt"}, "columns is not understood"),
        ({**TIER2, "min_partitions": "0"}, "min_partitions is not understood"),
        ({**TIER2, "min_partitions": "10001"}, "min_partitions is not understood"),
        ({**TIER2, "target_partition_bytes": "64m"}, "target_partition_bytes is not understood"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        parse_options(options)
