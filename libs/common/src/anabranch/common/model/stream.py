"""The configuration of a stream, and places in it.

A configuration is checked when it is built: an invalid policy raises InvalidRequest.
"""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId

SEGMENT_COUNT_MAX = 1000
CUT_LENGTH_MAX = SEGMENT_COUNT_MAX + 1
"""The most segments that a cut names: a topic's stream has one more than the topic has
partitions."""
TAG_COUNT_MAX = 128
TAG_LENGTH_MAX = 256
FUTURE_OFFSET = -1
"""The offset of a segment that a cut names before anything in it was read."""
_INT63 = 1 << 63


class StreamState(StrEnum):
    """The state of a stream. Legal moves: controller/domain/stream/state.py."""

    CREATING = "creating"
    ACTIVE = "active"
    SCALING = "scaling"
    TRUNCATING = "truncating"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"
    DELETED = "deleted"


class ScalingType(StrEnum):
    """The measure that decides the number of segments. The gateway maps Pravega's names to
    these."""

    FIXED = "fixed"
    EVENT_RATE = "event_rate"
    BYTE_RATE = "byte_rate"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """`target_rate`: per segment, events per second or KiB per second; 0 if FIXED.

    `scale_factor`: the most parts into which a segment is split at once. `min_segments`: the fewest
    segments; the exact number if FIXED.
    """

    type: ScalingType = ScalingType.FIXED
    target_rate: int = 0
    scale_factor: int = 0
    min_segments: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.min_segments <= SEGMENT_COUNT_MAX:
            raise InvalidRequest(
                "the number of segments is out of range",
                remedy=f"ask for 1 to {SEGMENT_COUNT_MAX} segments",
                segment_count=self.min_segments,
            )
        if self.type is ScalingType.FIXED:
            return
        if not 1 <= self.target_rate < _INT63:
            raise InvalidRequest(
                "scaling by rate needs a target rate of at least 1", target_rate=self.target_rate
            )
        if not 2 <= self.scale_factor <= SEGMENT_COUNT_MAX:
            raise InvalidRequest(
                "scaling by rate needs a scale factor of at least 2",
                scale_factor=self.scale_factor,
            )


class RetentionType(StrEnum):
    """The measure that bounds the kept data."""

    TIME_MS = "time_ms"
    SIZE_BYTES = "size_bytes"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Keep at least `minimum`, and nothing beyond `maximum` (None: without a limit)."""

    type: RetentionType
    minimum: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.minimum < _INT63:
            raise InvalidRequest("a retention policy keeps more than nothing", minimum=self.minimum)
        if self.maximum is not None and not self.minimum <= self.maximum < _INT63:
            raise InvalidRequest(
                "a retention policy's maximum is below its minimum",
                minimum=self.minimum,
                maximum=self.maximum,
            )


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """A stream's configuration. `tags` are a set; duplicates are dropped, the first place is kept.

    `scaling` decides the number of segments, `retention` how much is kept (None: everything).
    `timestamp_aggregation_timeout_ms`: how long a silent writer holds the watermark back.
    `rollover_size_bytes`: 0, the store decides how large its objects are. `together`: all segments
    lie in one container, so that one store serves them and short transactions may span them; it is
    decided when the stream is created.
    """

    scaling: ScalingPolicy = ScalingPolicy()
    retention: RetentionPolicy | None = None
    tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout_ms: int = 0
    rollover_size_bytes: int = 0
    together: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(dict.fromkeys(self.tags)))
        if len(self.tags) > TAG_COUNT_MAX:
            raise InvalidRequest(
                "too many tags", remedy=f"use at most {TAG_COUNT_MAX}", count=len(self.tags)
            )
        for tag in self.tags:
            if not 1 <= len(tag) <= TAG_LENGTH_MAX:
                raise InvalidRequest(
                    "a tag's length is out of range",
                    remedy=f"use 1 to {TAG_LENGTH_MAX} characters",
                    length=len(tag),
                )
        for name in ("timestamp_aggregation_timeout_ms", "rollover_size_bytes"):
            if not 0 <= getattr(self, name) < _INT63:
                raise InvalidRequest(f"{name} is out of range", value=getattr(self, name))


def fixed(segment_count: int) -> StreamConfig:
    """A stream with this many segments until a client scales it. Raises InvalidRequest."""
    return StreamConfig(ScalingPolicy(min_segments=segment_count))


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment and its keys."""

    segment_id: SegmentId
    keys: KeyRange


@dataclass(frozen=True, slots=True, order=True)
class SegmentOffset:
    """A segment and a byte offset in it; `FUTURE_OFFSET`: it follows another segment of the cut."""

    segment_id: SegmentId
    offset: int


StreamCut = tuple[SegmentOffset, ...]
"""A place in a stream: an offset per segment, sorted by segment id, covering all keys once."""
