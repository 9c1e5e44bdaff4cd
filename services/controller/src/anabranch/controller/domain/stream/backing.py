"""The segments of the streams that back topics (ADR 15). Pure.

    keys         0 ── 1/65536 ── 2/65536 ── … ── n/65536 ─────────────── 1
    segments      p0          p1          p2  …            rest
    numbers       (ordinal << 15 | container), ordinals in the order of creation

Such a stream is created with all partitions of its topic, and only grows: a scale seals the rest
segment, and more partitions and another rest segment replace it. Partitions are never sealed
before the stream is. Commands on such a stream carry the containers of the new segments; commands
on other streams carry none.
"""

from collections.abc import Iterable, Sequence

from anabranch.common.contracts.commands import CreateStream, ScaleStream
from anabranch.common.errors import InvalidName, InvalidRanges, InvalidRequest, ScaleRefused
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamName, number_of, segment_id
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.topics import (
    CONTAINER_LIMIT,
    KEY_SPACE_PARTS,
    PARTITION_COUNT_MAX,
    TOPIC_CONTAINER_MIN,
    TOPIC_SCOPE,
    backing_stream,
    container_in,
    is_backing,
    next_ordinal,
    partition_keys,
    rest_keys,
    segment_number,
    topic_of,
)
from anabranch.controller.domain.stream.events import PlannedSegment


def backing_name(command: CreateStream) -> StreamName:
    """The name of the stream that a command with containers creates.

    Raises InvalidName, InvalidRequest.
    """
    if not is_backing(command.stream):
        raise InvalidRequest(
            "only the stream of a topic has containers", stream=f"{command.scope}/{command.stream}"
        )
    if command.scope != TOPIC_SCOPE:
        raise InvalidName(
            "the stream of a topic is in another scope", scope=command.scope, expected=TOPIC_SCOPE
        )
    return backing_stream(*topic_of(command.stream)).stream


def first_segments(highest_number: int, containers: Sequence[int]) -> tuple[PlannedSegment, ...]:
    """The segments of epoch 0: a partition in each container, in order, and the rest segment.

    `highest_number`: the highest that was ever planned under the name. Raises InvalidRequest.
    """
    keys = [*map(partition_keys, range(len(containers))), rest_keys(len(containers))]
    return _planned(0, highest_number, keys, [*containers, containers[0]])


def grown(
    segments: Sequence[SegmentRange], stream_epoch: int, highest_number: int, command: ScaleStream
) -> tuple[PlannedSegment, ...]:
    """The partitions and the rest segment that replace the present rest segment.

    `segments` are the current ones, sorted by key. Raises InvalidRequest, InvalidRanges,
    ScaleRefused.
    """
    containers = command.containers or ()
    if len(containers) != len(command.new_ranges):
        raise InvalidRequest(
            "a topic's stream needs a container for each new range",
            ranges=len(command.new_ranges), containers=len(containers),
        )  # fmt: skip
    if command.seal != (segments[-1].segment_id,):
        raise ScaleRefused(
            "only the rest segment of a topic's stream is replaced",
            segment=segments[-1].segment_id, stream_epoch=stream_epoch,
        )  # fmt: skip
    present = len(segments) - 1
    count = present + len(containers) - 1
    if count > PARTITION_COUNT_MAX:
        raise ScaleRefused(
            f"the topic would have {count} partitions", limit=PARTITION_COUNT_MAX, count=count
        )
    keys = [*map(partition_keys, range(present, count)), rest_keys(count)]
    if [(new.key_start, new.key_end) for new in command.new_ranges] != [
        (one.start, one.end) for one in keys
    ]:
        raise InvalidRanges("the new ranges are not the next partitions and the rest")
    return _planned(stream_epoch + 1, highest_number, keys, containers)


def containers_of(segments: Iterable[SegmentRange]) -> tuple[int, ...]:
    """The containers of a topic's segments, in the given order."""
    return tuple(container_in(number_of(segment.segment_id)) for segment in segments)


def is_shaped(segments: Sequence[SegmentRange]) -> bool:
    """Whether the segments, sorted by key, are partitions 0 … n - 1 and the rest segment, all in
    containers of topics."""
    count = len(segments) - 1
    if not 1 <= count <= PARTITION_COUNT_MAX:
        return False
    keys = [*map(partition_keys, range(count)), rest_keys(count)]
    placed = all(number >= TOPIC_CONTAINER_MIN for number in containers_of(segments))
    return placed and [segment.keys for segment in segments] == keys


def _planned(
    stream_epoch: int, highest_number: int, keys: Sequence[KeyRange], containers: Sequence[int]
) -> tuple[PlannedSegment, ...]:
    for container in containers:
        if not TOPIC_CONTAINER_MIN <= container < CONTAINER_LIMIT:
            raise InvalidRequest(
                f"containers of topics are numbered {TOPIC_CONTAINER_MIN} to {CONTAINER_LIMIT - 1}",
                container=container,
            )
    first = next_ordinal(highest_number)
    if first + len(keys) > KEY_SPACE_PARTS:
        raise ScaleRefused(
            "the topic has used up the numbers of its segments",
            remedy="copy its records to another topic, and delete this one",
            limit=KEY_SPACE_PARTS,
        )
    return tuple(
        PlannedSegment(
            segment_id=segment_id(stream_epoch, segment_number(ordinal, container)),
            key_start=taken.start,
            key_end=taken.end,
        )
        for ordinal, (taken, container) in enumerate(zip(keys, containers, strict=True), first)
    )
