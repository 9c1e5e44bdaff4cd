"""The checks of a topic's spec, with Fluvio's reasons."""

import pytest

from anabranch.common.errors import InvalidTopic
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    TopicSpec,
)
from anabranch.controller.domain.cluster.objects.topic_checks import fault_of, grown, require_valid


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (TopicSpec(), ""),
        (TopicSpec(retention_s=9), "retention_secs 9 is less than minimum 10"),
        (TopicSpec(segment_size_bytes=1023), "segment_size 1023 is less than minimum 1024"),
        (
            TopicSpec(segment_size_bytes=1024, partition_size_max_bytes=2047),
            "max_partition_size 2047 is less than minimum 2048",
        ),
        (
            TopicSpec(partition_size_max_bytes=4096),
            "max_partition_size 4096 is less than segment size 1073741824",
        ),
        (TopicSpec(segment_size_bytes=4096, partition_size_max_bytes=4096), ""),
        (TopicSpec(deduplication=Deduplication(0)), "count must be non-zero"),
        (TopicSpec(Computed(0)), "partition must be greater than 0"),
        (TopicSpec(Computed(1, 0)), "replication factor must be greater than 0"),
        (TopicSpec(Computed(0, 0)), "partition must be greater than 0"),
        (TopicSpec(Computed(1000)), ""),
        (TopicSpec(Computed(1001)), "partition must not be greater than 1000"),
        (TopicSpec(Assigned(())), "no assigned partitions found"),
        (TopicSpec(Computed(0), retention_s=1), "retention_secs 1 is less than minimum 10"),
        (TopicSpec(retention_s=10, segment_size_bytes=1024, partition_size_max_bytes=2048), ""),
    ],
)
def test_the_first_fault_of_a_spec_is_named(spec: TopicSpec, why: str) -> None:
    assert fault_of(spec) == why


def test_more_rows_than_partitions_are_permitted_are_refused() -> None:
    rows = tuple(AssignedPartition(i, (1,)) for i in range(1001))
    assert fault_of(TopicSpec(Assigned(rows))) == "partition must not be greater than 1000"


def test_a_fault_is_raised_with_topic_and_reason() -> None:
    with pytest.raises(InvalidTopic) as refused:
        require_valid("orders", TopicSpec(retention_s=9))
    why = "retention_secs 9 is less than minimum 10"
    assert refused.value.fields == {"topic": "orders", "why": why}
    assert refused.value.message == why


def test_partitions_are_added_and_everything_else_stays() -> None:
    spec = TopicSpec(Computed(2, 3, True), 20, 2048, 4096, Compression.NONE, Deduplication(3))

    after = grown("orders", spec, 4)

    assert after == TopicSpec(
        Computed(6, 3, True), 20, 2048, 4096, Compression.NONE, Deduplication(3)
    )


@pytest.mark.parametrize(
    ("spec", "count", "why"),
    [
        (TopicSpec(Assigned((AssignedPartition(0, (1,)),))), 1, "invalid replica type"),
        (TopicSpec(system=True), 1, "partitions cannot be added to a system topic"),
        (TopicSpec(Computed(999)), 2, "partition must not be greater than 1000"),
        (TopicSpec(), 0, "count must be non-zero"),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(spec: TopicSpec, count: int, why: str) -> None:
    with pytest.raises(InvalidTopic, match=why):
        grown("orders", spec, count)
