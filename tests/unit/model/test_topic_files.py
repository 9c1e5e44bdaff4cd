"""The topic file and the replica assignment file."""

from typing import Any

import pytest
import yaml

from anabranch.common.errors import InvalidName, InvalidTopic
from anabranch.common.model.assignment_file import assigned_from_json
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    TopicSpec,
)
from anabranch.common.model.topic_file import compression_of, topic_from_mapping

FULL = """
version: 0.1.0
meta:
  name: orders
partition:
  count: 3
  max-size: 10.0 KB
  replication: 2
  ignore-rack-assignment: true
retention:
  time: 2m
  segment-size: 2.0 KB
compression:
  type: Zstd
deduplication:
  bounds:
    count: 5
    age: 5s
"""
MAPS = """
meta: {name: orders}
partition:
  maps:
    - {id: 0, replicas: [5001, 5002]}
    - {id: 1, replicas: [5002, 5001]}
"""
ROWS = Assigned((AssignedPartition(0, (5001, 5002)), AssignedPartition(1, (5002, 5001))))


def read(text: str) -> tuple[str, TopicSpec]:
    return topic_from_mapping(yaml.safe_load(text))


@pytest.mark.parametrize("text", [FULL, FULL.replace("-size", "_size").replace("k-as", "k_as")])
def test_a_topic_file_is_read_in_either_spelling(text: str) -> None:
    assert read(text) == (
        "orders",
        TopicSpec(
            Computed(3, 2, ignore_racks=True),
            retention_s=120,
            segment_size_bytes=2000,
            partition_size_max_bytes=10_000,
            compression=Compression.ZSTD,
            deduplication=Deduplication(5, 5),
        ),
    )


def test_a_topic_file_may_assign_the_replicas() -> None:
    assert read(MAPS) == ("orders", TopicSpec(ROWS))


def test_all_but_the_name_has_a_default() -> None:
    assert read("meta: {name: orders}\npartition:\n") == ("orders", TopicSpec())


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("count: 3", "cuont: 3", "unknown key partition.cuont in the topic file"),
        ("meta:", "nothing: 1\nmeta:", "unknown key nothing in the topic file"),
        ("time: 2m", "time: 2m\n  days: 3", "unknown key retention.days in the topic file"),
        ("    age: 5s", "    years: 5", "unknown key deduplication.bounds.years in the topic file"),
        ("count: 3", "count: three", "partition.count: 'three' is not a whole number"),
        ("count: 3", "count: true", "partition.count: 'True' is not a whole number"),
        ("count: 3", "count: [3]", "partition.count must be a text or a number"),
        ("ment: true", "ment: 1", "partition.ignore-rack-assignment must be true or false"),
        ("time: 2m", "time: soon", "retention.time: 'soon' is not a duration"),
        ("10.0 KB", "much", "partition.max-size: 'much' is not a size"),
        ("type: Zstd", "type: gzip", "compression type gzip is not supported: any, none and zstd"),
        ("type: Zstd", "type: zip", "unknown compression type: zip"),
        ("0.1.0", "9.9", "version 9.9 of topic files is not supported: 0.1.0 is"),
        ("  max-size", "  max_size: 1 KB\n  max-size", "partition.max-size is given twice"),
        ("  bounds:", "  filter: {}\n  bounds:", "deduplication.filter is not supported"),
    ],
)
def test_a_fault_of_a_topic_file_is_named(old: str, new: str, why: str) -> None:
    assert old in FULL
    with pytest.raises(InvalidTopic) as refused:
        read(FULL.replace(old, new))
    assert refused.value.message.startswith(why)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("  maps", "  count: 2\n  maps", "partition.maps cannot be used with partition.count"),
        ("id: 0, replicas", "id: 0, rack: 1, replicas", "unknown key partition.maps[0].rack"),
        ("[5001, 5002]", "[5001, x]", "partition.maps[0].replicas must be a list of spu ids"),
        ("[5001, 5002]", "5001", "partition.maps[0].replicas must be a list of spu ids"),
        ("- {id: 1, replicas: [5002, 5001]}", "- 7", "partition.maps[1] must be a mapping"),
    ],
)
def test_a_fault_of_assigned_replicas_is_named(old: str, new: str, why: str) -> None:
    assert old in MAPS
    with pytest.raises(InvalidTopic) as refused:
        read(MAPS.replace(old, new))
    assert refused.value.message.startswith(why)


@pytest.mark.parametrize("loaded", [None, [], "orders", 7, {1: 2}])
def test_what_is_no_topic_file_is_refused(loaded: object) -> None:
    with pytest.raises((InvalidTopic, InvalidName)):
        topic_from_mapping(loaded)


@pytest.mark.parametrize("word", ["any", "none", "zstd"])
def test_a_codec_is_found_by_its_name(word: str) -> None:
    assert compression_of(word) is Compression(word)


@pytest.mark.parametrize("word", ["gzip", "snappy", "lz4"])
def test_a_codec_of_fluvio_that_is_missing_is_refused_by_its_name(word: str) -> None:
    with pytest.raises(InvalidTopic, match=f"compression type {word} is not supported"):
        compression_of(word)


@pytest.mark.parametrize(
    "data",
    [
        '[{"id":0,"replicas":[5001,5002]},{"id":1,"replicas":[5002,5001]}]',
        b' {"partitions":[{"id":0,"replicas":[5001,5002]},{"id":1,"replicas":[5002,5001]}]}',
    ],
)
def test_an_assignment_file_is_read_in_either_shape(data: Any) -> None:
    assert assigned_from_json(data) == ROWS


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[7]", b"\xff", '[{"id":0}]', '[{"id":0,"replicas":[1],"rack":2}]', "{"]
)
def test_what_is_no_assignment_file_is_refused(data: Any) -> None:
    with pytest.raises(InvalidTopic, match="error reading replica assignment: "):
        assigned_from_json(data)
