"""Names and numbers of topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import InvalidName
from anabranch.common.model import topics
from anabranch.common.model.names import any_stream_name, segment_id


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Topic name is required"),
        ("a" * 64, "Name exceeds max characters allowed 63"),
        ("Orders", "Contain only lowercase alphanumeric characters or '-'"),
        ("-orders", "Contain only lowercase alphanumeric characters or '-'"),
        ("orders-", "Contain only lowercase alphanumeric characters or '-'"),
        ("or_ders", "Contain only lowercase alphanumeric characters or '-'"),
    ],
)
def test_a_topic_has_a_name_by_fluvios_rules(name: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        topics.topic_name(name)


def test_a_backing_stream_has_an_internal_name_that_tells_topic_and_incarnation() -> None:
    for name in ("a", "orders-2", "a" * 63):
        stream = topics.backing_stream(topics.topic_name(name), "0123456789ab")
        assert any_stream_name(stream.stream) == stream.stream
        assert topics.topic_of(stream.stream) == (name, "0123456789ab")


def test_an_incarnation_follows_from_a_command_id_and_fits_a_backing_stream() -> None:
    first = topics.incarnation_from("command-1")
    assert first == topics.incarnation_from("command-1") != topics.incarnation_from("command-2")
    topics.backing_stream(topics.topic_name("orders"), first)


@pytest.mark.parametrize("name", ["_TABLEx", "_TOPICorders", "_TOPICorders.12", "orders"])
def test_another_streams_name_tells_no_topic(name: str) -> None:
    with pytest.raises(InvalidName):
        topics.topic_of(name)


@given(st.integers(0, 65_535), st.integers(0, 32_767))
def test_a_segments_number_tells_its_container_and_the_next_ordinal(
    ordinal: int, container: int
) -> None:
    number = topics.segment_number(ordinal, container)
    assert topics.container_of_segment(segment_id(3, number)) == container
    assert topics.next_ordinal(number) == ordinal + 1


def test_the_first_segment_has_ordinal_0() -> None:
    assert topics.next_ordinal(-1) == 0


@given(st.integers(1, topics.PARTITION_COUNT_MAX))
def test_partitions_and_the_rest_cover_all_keys_and_tell_their_index(count: int) -> None:
    at = 0.0
    for index in range(count):
        keys = topics.partition_keys(index)
        assert keys.start == at
        assert topics.partition_at(keys.start, keys.end) == index
        at = keys.end
    rest = topics.rest_keys(count)
    assert (rest.start, rest.end) == (at, 1.0)
    assert topics.partition_at(rest.start, rest.end) is None


def test_a_partitions_key_is_divided_at_its_last_hyphen() -> None:
    assert topics.parse_partition_key(topics.partition_key("a-1", 7)) == ("a-1", 7)
    for wrong in ("orders", "orders-", "-1", "orders-x"):
        with pytest.raises(InvalidName):
            topics.parse_partition_key(wrong)
