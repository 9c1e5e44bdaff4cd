"""Names and numbers of topics and their partitions: ADR 15. Pure.

A topic is backed by an internal stream of the scope `topics`, named after the topic and its
incarnation. In such a stream a segment's number holds the container of the segment, and the key
range of a segment is the index of its partition. The *rest* segment owns the keys above all
partitions and stays empty.
"""

import re
from hashlib import blake2b
from typing import NewType

from anabranch.common.errors import InvalidName
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    ScopeName,
    SegmentId,
    StreamName,
    StreamRef,
    number_of,
    scope_name,
    stream_ref,
)

TopicName = NewType("TopicName", str)

TOPIC_SCOPE = ScopeName("topics")
TOPIC_PREFIX = "_TOPIC"
TOPIC_MARK = f"/{TOPIC_PREFIX}"
"""Occurs in the names of the segments of topics, and in no other segment's name."""
TOPIC_NAME_LENGTH_MAX = 63
INCARNATION_LENGTH = 12
PARTITION_COUNT_MAX = 1000
KEY_SPACE_PARTS = 1 << 16
"""Partition `p` owns the keys from p / 65536 up to, not including, (p + 1) / 65536."""
_CONTAINER_BITS = 15
CONTAINER_LIMIT = 1 << _CONTAINER_BITS
TOPIC_CONTAINER_MIN = 1024
"""The lowest number of a topic's container. Containers of streams have lower ones."""

_TOPIC_NAME = re.compile(r"[a-z0-9-]+")


def topic_name(text: str) -> TopicName:
    """`text` as a topic's name, by Fluvio's rules and with its reasons. Raises InvalidName."""
    why = ""
    if not text:
        why = "Topic name is required"
    elif len(text) > TOPIC_NAME_LENGTH_MAX:
        why = f"Name exceeds max characters allowed {TOPIC_NAME_LENGTH_MAX}"
    elif not _TOPIC_NAME.fullmatch(text) or text[0] == "-" or text[-1] == "-":
        why = "Contain only lowercase alphanumeric characters or '-'"
    if why:
        raise InvalidName(
            f"Invalid topic name: '{text[:100]}'. {why}",
            remedy="use 1 to 63 lowercase letters, digits and hyphens, with no hyphen at an end",
            name=text[:100],
        )
    return TopicName(text)


def backing_stream(topic: TopicName, incarnation: str) -> StreamRef:
    """The internal stream that backs one incarnation of a topic."""
    assert len(incarnation) == INCARNATION_LENGTH
    return StreamRef(TOPIC_SCOPE, StreamName(f"{TOPIC_PREFIX}{topic}.{incarnation}"))


def incarnation_from(unique: str) -> str:
    """An incarnation made of a text that no other request has, such as a command id."""
    return blake2b(unique.encode(), digest_size=INCARNATION_LENGTH // 2).hexdigest()


def is_backing(stream: str) -> bool:
    """Whether the stream of this name backs a topic."""
    return stream.startswith(TOPIC_PREFIX)


def readable_stream(text: str) -> StreamRef:
    """Parse ``scope/stream``: a stream of users, or one that backs a topic. Raises InvalidName."""
    scope, slash, stream = text.partition("/")
    if not slash or not is_backing(stream):
        return stream_ref(text)
    topic_of(stream)
    return StreamRef(scope_name(scope), StreamName(stream))


def topic_of(stream: str) -> tuple[TopicName, str]:
    """(topic, incarnation) of a backing stream's name. Raises InvalidName."""
    topic, dot, incarnation = stream.removeprefix(TOPIC_PREFIX).rpartition(".")
    if not is_backing(stream) or not dot or len(incarnation) != INCARNATION_LENGTH:
        raise InvalidName("the name is not a topic's stream", name=stream[:100])
    return topic_name(topic), incarnation


def segment_number(ordinal: int, container: int) -> int:
    """The number of a segment of a topic."""
    assert 0 <= ordinal < KEY_SPACE_PARTS
    assert 0 <= container < CONTAINER_LIMIT
    return ordinal << _CONTAINER_BITS | container


def container_in(number: int) -> int:
    """The container that a segment's number holds."""
    return number % CONTAINER_LIMIT


def next_ordinal(highest_number: int) -> int:
    """The ordinal after all that were planned; `highest_number` is -1 before the first one."""
    return (highest_number >> _CONTAINER_BITS) + 1


def container_of_segment(segment: SegmentId) -> int:
    """The container of a topic's segment."""
    return container_in(number_of(segment))


def partition_keys(index: int) -> KeyRange:
    """The keys of a partition, which are only its mark: producers choose partitions themselves."""
    assert 0 <= index < PARTITION_COUNT_MAX
    return KeyRange(index / KEY_SPACE_PARTS, (index + 1) / KEY_SPACE_PARTS)


def rest_keys(partition_count: int) -> KeyRange:
    """The keys of the rest segment beside so many partitions."""
    return KeyRange(partition_count / KEY_SPACE_PARTS, 1.0)


def partition_at(key_start: float, key_end: float) -> int | None:
    """The index of the partition with these keys; None for the rest segment."""
    return None if key_end == 1.0 else round(key_start * KEY_SPACE_PARTS)


def partition_key(topic: str, index: int) -> str:
    """The key of a partition object, for example ``orders-0``."""
    return f"{topic}-{index}"


def parse_partition_key(key: str) -> tuple[TopicName, int]:
    """Inverse of `partition_key`; the last hyphen divides. Raises InvalidName."""
    topic, hyphen, index = key.rpartition("-")
    if not hyphen or not index.isdecimal() or len(index) > 5:
        raise InvalidName(
            f"{key[:100]!r} is not a partition", remedy="write it as TOPIC-INDEX", name=key[:100]
        )
    return topic_name(topic), int(index)
