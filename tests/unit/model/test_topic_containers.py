"""The segments of topics are in the containers that their numbers hold."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import (
    segment_id,
    segment_name,
    transaction_segment_name,
    transient_name,
)
from anabranch.common.model.topics import (
    CONTAINER_LIMIT,
    KEY_SPACE_PARTS,
    TopicName,
    backing_stream,
    next_ordinal,
    segment_number,
)

STREAM = backing_stream(TopicName("orders"), "0123456789ab")
ORDINALS = st.integers(0, KEY_SPACE_PARTS - 1)
CONTAINERS = st.integers(0, CONTAINER_LIMIT - 1)


@given(ORDINALS, CONTAINERS, st.integers(0, 9), st.integers(1, 1024))
def test_a_topics_segment_is_in_the_container_of_its_number(
    ordinal: int, container: int, epoch: int, count: int
) -> None:
    name = segment_name(STREAM, segment_id(epoch, segment_number(ordinal, container)))
    assert container_of(name, count) == container
    assert container_of(transient_name(name, bytes(16)), count) == container
    assert container_of(transaction_segment_name(name, "0" * 32, "1" * 32), count) == container


@given(ORDINALS, CONTAINERS, CONTAINERS)
def test_numbers_of_later_ordinals_are_higher_whatever_their_containers_are(
    ordinal: int, container: int, other: int
) -> None:
    number = segment_number(ordinal, container)
    assert next_ordinal(number) == ordinal + 1
    if ordinal + 1 < KEY_SPACE_PARTS:
        assert segment_number(ordinal + 1, other) > number


def test_a_name_that_is_not_a_segments_has_a_container_all_the_same() -> None:
    for name in (
        f"{STREAM}/",
        f"{STREAM}/x",
        f"{STREAM}/99999999999",
        f"{STREAM}/\u0661",
        "/_TOPIC",
    ):
        assert 0 <= container_of(name, 4) < 4


def test_other_streams_keep_their_containers() -> None:
    assert [container_of(f"s/x/{number}.#epoch.0", 4) for number in range(6)] == EXPECTED
    assert [container_of(f"s/_TABLEt/{number}.#epoch.0", 4) for number in range(6)] == TABLES


EXPECTED = [2, 2, 0, 2, 0, 2]
TABLES = [3, 0, 2, 0, 3, 2]
