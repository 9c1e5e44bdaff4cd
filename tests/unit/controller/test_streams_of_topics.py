"""Streams of topics: numbers never repeat, and a partition keeps its segment and container."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.contracts.commands import (
    CreateStream,
    NewRange,
    ScaleStream,
    TruncateStream,
)
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.errors import InvalidRequest, ScaleRefused
from anabranch.common.model.names import SegmentId, number_of
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.model.topics import (
    CONTAINER_LIMIT,
    KEY_SPACE_PARTS,
    PARTITION_COUNT_MAX,
    TOPIC_CONTAINER_MIN,
    partition_at,
    segment_number,
)
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.backing import first_segments
from anabranch.controller.domain.stream.decide import Circumstances, decide
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction.decide import Opening, opened
from kit.topic_stream import REF, Life, growth

CONTAINERS = st.integers(TOPIC_CONTAINER_MIN, CONTAINER_LIMIT - 1)


@given(
    lives=st.lists(
        st.tuples(
            st.lists(CONTAINERS, min_size=1, max_size=5),
            st.lists(st.lists(CONTAINERS, min_size=2, max_size=5), max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_numbers_never_repeat_and_partitions_stay_in_their_containers(
    lives: list[tuple[list[int], list[list[int]]]],
) -> None:
    life = Life()
    for first, growths in lives:
        life.create(*first)
        assert life.containers == [*first, first[0]]
        for added in growths:
            kept = life.stream.segment_names()[:-1]
            life.grow(*added)
            assert life.stream.segment_names()[: len(kept)] == kept
            assert life.containers[len(kept) :] == added
        indexes = [partition_at(s.keys.start, s.keys.end) for s in life.stream.segments]
        assert indexes == [*range(len(indexes) - 1), None]
        life.delete()
    numbers = [int(name.rpartition("/")[2].partition(".")[0]) for name in life.names]
    assert all(earlier < later for earlier, later in pairwise(numbers))


def test_a_topic_with_a_thousand_partitions_is_created_truncated_and_deleted() -> None:
    life = Life()
    life.create(TOPIC_CONTAINER_MIN)
    life.grow(*[TOPIC_CONTAINER_MIN + 1] * PARTITION_COUNT_MAX)
    segments = life.stream.segments
    assert len(segments) == PARTITION_COUNT_MAX + 1
    cut = tuple(SegmentOffset(s.segment_id, 7) for s in segments[:-1])
    rest = SegmentOffset(segments[-1].segment_id, 0)
    life.command(
        TruncateStream(command_id="t", scope=REF.scope, stream=REF.stream, cut=(*cut, rest))
    )
    life.store(events.StreamCutChecked())
    life.store(events.StreamTruncated())
    assert life.stream.head == tuple(sorted((*cut, rest)))
    with pytest.raises(ScaleRefused):
        life.command(growth_to_too_many(life.stream))
    life.delete()


def growth_to_too_many(stream: Stream) -> ScaleStream:
    rest = stream.segments[-1]
    middle = (rest.keys.start + 1.0) / 2
    halves = ((rest.keys.start, middle), (middle, 1.0))
    return ScaleStream(
        command_id="more",
        scope=REF.scope,
        stream=REF.stream,
        seal=(rest.segment_id,),
        new_ranges=tuple(NewRange(key_start=low, key_end=high) for low, high in halves),
        containers=(TOPIC_CONTAINER_MIN,) * 2,
    )


def test_used_up_ordinals_are_refused_and_not_reused() -> None:
    last = segment_number(KEY_SPACE_PARTS - 3, TOPIC_CONTAINER_MIN)
    created = first_segments(last, [TOPIC_CONTAINER_MIN])
    assert number_of(SegmentId(created[-1].segment_id)) < 2**31
    with pytest.raises(ScaleRefused):
        first_segments(last, [TOPIC_CONTAINER_MIN] * 2)


def test_other_streams_have_no_containers() -> None:
    life = Life()
    life.create(TOPIC_CONTAINER_MIN)
    around = Circumstances(
        revision=1, open_scope_incarnation=1, now_ms=0, history=lambda: History(())
    )
    plain = STREAM.apply(
        Stream(), decide(Stream(), CreateStream(command_id="c", scope="s", stream="x"), around)
    )
    active = STREAM.apply(plain, (events.StreamJoinedScope(), events.StreamCreated()))
    scale = growth(life.stream, (TOPIC_CONTAINER_MIN,) * 2, "g")
    with pytest.raises(InvalidRequest):
        decide(active, scale.model_copy(update={"scope": "s", "stream": "x"}), around)


def test_a_topic_takes_no_transaction() -> None:
    asked = BeginTransaction(scope=REF.scope, stream=REF.stream)
    with pytest.raises(InvalidRequest):
        opened(asked, Opening("0" * 32, 1, 0, 0))
