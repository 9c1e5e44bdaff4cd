"""What a write may be told, and how it refuses what cannot be meant."""

import pytest

from anabranch.common.errors import Invalid
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.common.model.topics import TopicName
from anabranch.spark.options.write import WriteOptions, parse_write

PLACE = {"path": "demo/flights", "nats_url": "nats://127.0.0.1:4222"}


def parsed(streaming: bool = False, overwrite: bool = False, **options: str) -> WriteOptions:
    return parse_write({**PLACE, **options}, overwrite=overwrite, streaming=streaming)


def test_a_stream_and_a_cluster_are_enough_for_a_write_exactly_once() -> None:
    options = parsed()
    assert options.stream == stream_ref("demo/flights")
    assert options.exactly_once
    assert (options.application, options.version, options.create) == (None, None, None)


def test_the_checkpoint_that_spark_hands_on_is_no_option_of_the_sink() -> None:
    assert parsed(streaming=True, checkpointlocation="/c") == parsed(streaming=True)


def test_the_application_and_version_key_a_batch_write() -> None:
    options = parsed(application="nightly-import", version="0")
    assert (options.application, options.version) == ("nightly-import", 0)


def test_a_stream_to_create_is_described_as_on_the_command_line() -> None:
    made = parsed(create_stream="true", segments="4", retain_time="3d", tags="raw, eu").create
    assert made == StreamConfig(
        ScalingPolicy(min_segments=4),
        RetentionPolicy(RetentionType.TIME_MS, 3 * 24 * 3600 * 1000),
        ("raw", "eu"),
    )
    rated = parsed(create_stream="true", by_events="500", min_segments="2", retain_size_max="1GiB")
    assert rated.create == StreamConfig(
        ScalingPolicy(ScalingType.EVENT_RATE, 500, scale_factor=2, min_segments=2),
        RetentionPolicy(RetentionType.SIZE_BYTES, 2**30, 2**30),
    )


def test_a_topic_is_written_at_least_once() -> None:
    texts = {"topic": "orders", "nats_url": PLACE["nats_url"], "exactly_once": "false"}
    assert parse_write(texts, overwrite=False, streaming=True).target == TopicName("orders")


@pytest.mark.parametrize(
    ("streaming", "options", "text"),
    [
        (False, {"stream": "demo/other"}, "exactly one stream or topic"),
        (False, {"tier2": "file:///t"}, "a write needs a running cluster"),
        (False, {"start": "head"}, "no option 'start'"),
        (False, {"application": "a"}, "both application and version"),
        (False, {"version": "1"}, "both application and version"),
        (True, {"application": "a", "version": "1"}, "no option version"),
        (False, {"application": "a b", "version": "1"}, "application is not understood"),
        (False, {"application": "a", "version": "-1"}, "version is not understood"),
        (False, {"application": "a", "version": str(2**53)}, "version is not understood"),
        (False, {"lease_s": "601"}, "lease_s is not understood"),
        (False, {"exactly_once": "no"}, "exactly_once is not understood"),
        (False, {"exactly_once": "false", "application": "a", "version": "1"}, "is for exactly-"),
        (False, {"segments": "4"}, "for a stream that the write creates"),
        (False, {"create_stream": "true", "segments": "4", "by_events": "5"}, "contradict"),
        (False, {"create_stream": "true", "factor": "4"}, "belongs to scaling by rate"),
        (False, {"create_stream": "true", "retain_time": "3d", "retain_size": "1K"}, "contradict"),
        (False, {"create_stream": "true", "segments": "9999"}, "segments is out of range"),
    ],
)
def test_a_write_that_cannot_be_meant_is_refused(
    streaming: bool, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Invalid, match=text) as caught:
        parse_write({**PLACE, **options}, overwrite=False, streaming=streaming)
    assert caught.value.remedy


@pytest.mark.parametrize("streaming", [False, True])
def test_overwriting_is_refused_by_name(streaming: bool) -> None:
    with pytest.raises(Invalid, match="cannot be overwritten"):
        parsed(streaming, overwrite=True)


def test_a_topic_takes_no_transactions_and_is_not_created() -> None:
    topic = {"topic": "orders", "nats_url": PLACE["nats_url"]}
    with pytest.raises(Invalid, match="a topic has no transactions"):
        parse_write(topic, overwrite=False, streaming=False)
    direct = {**topic, "exactly_once": "false", "create_stream": "true"}
    with pytest.raises(Invalid, match="is for a stream"):
        parse_write(direct, overwrite=False, streaming=False)
