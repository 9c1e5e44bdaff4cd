"""The options of following, and the versions of Spark that have them."""

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import stream_ref
from anabranch.spark.options.follow import Budget, parse_follow, parse_inference
from anabranch.spark.options.payload import ArrowPayload
from anabranch.spark.options.streams import Named
from anabranch.spark.source import refuse_old_spark

GIVEN = {"nats_url": "nats://127.0.0.1:4222", "path": "demo/flights"}


def test_a_query_without_further_options_takes_everything_from_the_head() -> None:
    options = parse_follow(GIVEN)
    assert options.which == Named((stream_ref("demo/flights"),))
    assert (options.start, options.budget, options.fail_on_data_loss) == ("head", Budget(), True)
    assert options.reader_group is None


def test_limits_losses_and_the_group_are_read() -> None:
    options = parse_follow(
        {
            **GIVEN, "max_bytes_per_trigger": "10", "max_rows_per_trigger": "20",
            "failondataloss": "False", "reader_group": "demo/spark", "start": "tail",
        }
    )  # fmt: skip
    assert options.budget == Budget(10, 20)
    assert (options.fail_on_data_loss, options.start) == (False, "tail")
    assert str(options.reader_group) == "demo/spark"


def test_arrow_payloads_have_columns_about_events_only_on_request() -> None:
    plain = parse_follow({**GIVEN, "payload": "arrow", "payload_schema": "id INT"})
    assert (plain.payload, plain.columns) == (ArrowPayload("id INT"), ())
    named = parse_follow({**GIVEN, "payload": "arrow", "columns": "event_time"})
    assert (named.payload, named.columns) == (ArrowPayload(), ("event_time",))


def test_columns_are_inferred_for_the_options_of_both_kinds_of_reads() -> None:
    arrow = {**GIVEN, "payload": "arrow", "start": "tail"}
    following = parse_inference({**arrow, "max_rows_per_trigger": "5", "reader_group": "demo/x"})
    assert (following.start, following.payload) == ("tail", ArrowPayload())
    assert parse_inference({**arrow, "end": "head"}).end == "head"
    with pytest.raises(InvalidRequest, match="there is no option 'max_rows'"):
        parse_inference({**arrow, "max_rows": "5"})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"end": "tail"}, "there is no option 'end'"),
        ({"max_bytes_per_trigger": "0"}, "max_bytes_per_trigger is not understood"),
        ({"failondataloss": "no"}, "failOnDataLoss is not understood"),
        ({"payload_schema": "id INT"}, "goes with Arrow payloads"),
        ({"payload": "arrow", "columns": "event"}, "has no column event"),
        ({"tier2": "file:///tmp"}, "needs a running cluster"),
        ({"nats_url": ""}, "needs a running cluster"),
        ({"path": "", "pattern": "demo/.*", "reader_group": "demo/x"}, "subscribes to streams by"),
        ({"start": '{"demo/other/0.#epoch.0": [0, 0]}'}, "does not follow"),
        (
            {"path": "", "pattern": "demo/.*", "start": '{"demo/a/0.#epoch.0": [0, 0]}'},
            "streams that it names",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(changes: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as refused:
        parse_follow({**GIVEN, **changes})
    assert refused.value.remedy


def test_spark_before_4_2_is_refused_with_the_version_that_is_needed() -> None:
    for version in ("4.2.0", "4.3.0", "5.0.0.dev1"):
        refuse_old_spark(version)
    with pytest.raises(InvalidRequest, match=r"needs Spark 4\.2 or newer"):
        refuse_old_spark("4.1.3")
