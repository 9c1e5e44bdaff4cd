"""What a read may be told, and how it refuses what cannot be meant."""

import pytest

from anabranch.common.errors import Invalid
from anabranch.spark.options import parse_options

TIER2 = {"path": "demo/flights", "tier2": "file:///t"}


def test_a_stream_and_a_source_are_enough() -> None:
    options = parse_options(TIER2)
    assert (str(options.stream), options.source, options.place) == (
        "demo/flights", "tier2", "file:///t",
    )  # fmt: skip
    assert (options.start, options.end, options.min_partitions) == ("head", "tail", None)


def test_a_topic_stands_in_place_of_a_stream() -> None:
    options = parse_options({"topic": "orders", "tier2": "file:///t"})
    assert options.topic == "orders"
    assert parse_options(TIER2).topic is None


def test_positions_are_read_from_json() -> None:
    options = parse_options({**TIER2, "start": '{"demo/flights/0.#epoch.0": [68, 2]}'})
    assert options.start == {"demo/flights/0.#epoch.0": (68, 2)}


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
        ({**TIER2, "min_partitions": "0"}, "min_partitions is not understood"),
        ({**TIER2, "min_partitions": "10001"}, "min_partitions is not understood"),
        ({**TIER2, "target_partition_bytes": "64m"}, "target_partition_bytes is not understood"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        parse_options(options)
