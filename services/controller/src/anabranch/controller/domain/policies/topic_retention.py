"""The records that a topic's retention gives up, and the questions that find them. Pure.

A partition loses the records that are older than `retention_s`, and, if it is larger than
`partition_size_max_bytes`, its oldest bytes, in steps of `segment_size_bytes`.

Sizes are reported by the leaders, so a partition that is not too large costs no question. Ages are
asked for, and each question looks ahead: *is anything older than the retention minus so much?* If
not, nothing expires for so long, and the next question comes then and looks twice as far ahead. If
something is, the next one looks half as far. An idle partition whose records expire in a week is
thus asked about twenty times in this week, and an empty one never.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.names import SegmentId, StreamRef
from anabranch.common.model.stream import SegmentOffset, SegmentRange, StreamCut

LOOK_MS_MIN = 10_000
LOOK_MS_MAX = 600_000
LOOKS_PER_RETENTION = 64
SIZE_STEPS_MIN = 2
"""A partition of the greatest size has at least so many steps, so that not all of it goes."""


@dataclass(frozen=True, slots=True)
class RetainedTopic:
    """A topic, its stream, and the limits of its partitions."""

    stream: StreamRef
    retention_s: int
    partition_size_max_bytes: int
    segment_size_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionNumbers:
    """A partition as its leader reported it. `size_bytes`: the bytes that it keeps, -1 if not
    known; `base` and `leo`: the numbers of the first kept record and of the next one."""

    base: int
    leo: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AgeLook:
    """The next question about the ages of a partition: when it is due, by Unix ms, and how far it
    looks ahead."""

    due_ms: int = 0
    ahead_ms: int = 0


FIRST_LOOK = AgeLook()


def is_age_due(numbers: PartitionNumbers, look: AgeLook, now_ms: int) -> bool:
    """Whether records of the partition may be too old."""
    return numbers.leo > numbers.base and now_ms >= look.due_ms


def is_size_due(topic: RetainedTopic, numbers: PartitionNumbers) -> bool:
    """Whether the partition was too large when its leader reported it."""
    return numbers.size_bytes > topic.partition_size_max_bytes


def look_ms_min(topic: RetainedTopic) -> int:
    """The shortest time between two questions about ages: records may stay longer by as much."""
    share_ms = topic.retention_s * 1000 // LOOKS_PER_RETENTION
    return max(LOOK_MS_MIN, min(share_ms, LOOK_MS_MAX))


def expired_before_ms(topic: RetainedTopic, now_ms: int) -> int:
    """Records that were taken before that Unix time go."""
    return now_ms - topic.retention_s * 1000


def after_expiry(topic: RetainedTopic, now_ms: int) -> AgeLook:
    """The next look after something expired: the next record may be as old in a moment."""
    shortest = look_ms_min(topic)
    return AgeLook(now_ms + shortest, shortest)


def ahead_of(topic: RetainedTopic, look: AgeLook) -> int:
    """How far a look that found nothing expired looks ahead, in ms."""
    return max(look.ahead_ms, look_ms_min(topic))


def after_look(topic: RetainedTopic, look: AgeLook, now_ms: int, *, soon: bool) -> AgeLook:
    """The next look after one that found nothing expired. `soon`: whether something expires within
    `ahead_of`."""
    shortest, ahead = look_ms_min(topic), ahead_of(topic, look)
    if not soon:
        longest = max(shortest, topic.retention_s * 1000 // 2)
        return AgeLook(now_ms + ahead, min(2 * ahead, longest))
    if ahead == shortest:
        return AgeLook(now_ms + shortest, shortest)
    return AgeLook(now_ms, max(shortest, ahead // 2))


def bytes_to_free(topic: RetainedTopic, size_bytes: int) -> int:
    """How many of the oldest bytes of a partition of this size go: whole steps, until no more than
    the maximum is left; 0 if it is not too large."""
    excess = size_bytes - topic.partition_size_max_bytes
    if excess <= 0:
        return 0
    step = max(1, min(topic.segment_size_bytes, topic.partition_size_max_bytes // SIZE_STEPS_MIN))
    return -(-excess // step) * step


def cut_at(
    segments: Sequence[SegmentRange], head: StreamCut, offsets: Mapping[SegmentId, int]
) -> StreamCut:
    """The cut of a topic's stream where these partitions begin at these offsets, and the others
    where they do now; empty if no partition would begin later than now.

    `segments`: the current ones, by key, of which the last is the rest segment.
    """
    begins = {place.segment_id: max(0, place.offset) for place in head}
    places = [SegmentOffset(segments[-1].segment_id, 0)]
    moved = False
    for segment in segments[:-1]:
        now = begins.get(segment.segment_id, 0)
        then = max(now, offsets.get(segment.segment_id, 0))
        moved = moved or then > now
        places.append(SegmentOffset(segment.segment_id, then))
    return tuple(sorted(places)) if moved else ()
