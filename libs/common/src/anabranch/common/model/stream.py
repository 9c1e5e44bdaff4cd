"""What a stream is configured to be, and what its segments are at one moment."""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId

SEGMENT_COUNT_MAX = 1000


class StreamState(StrEnum):
    """States of a stream. Legal moves: controller/domain/stream."""

    CREATING = "creating"
    ACTIVE = "active"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """A stream's configuration: today a fixed number of segments."""

    segment_count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.segment_count <= SEGMENT_COUNT_MAX:
            raise InvalidRequest(
                "the number of segments is out of range",
                remedy=f"ask for 1 to {SEGMENT_COUNT_MAX} segments",
                segment_count=self.segment_count,
            )


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment and the keys that it takes."""

    segment_id: SegmentId
    keys: KeyRange
