"""The configuration of a reader group. Pure.

A *reader group cut* gives the place of reading for every stream of the group: per segment the byte
offset of a block and the index of an event in it. A configuration is checked when it is built: an
invalid one raises InvalidRequest.
"""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import ScopeName, SegmentId, StreamName, StreamRef, stream_ref
from anabranch.common.model.stream import CUT_LENGTH_MAX, FUTURE_OFFSET
from anabranch.common.model.topics import readable_stream

GROUP_STREAMS_MAX = 64
READERS_MAX = 200
"""Of one group: every reader reads the heartbeats of all others."""
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 600_000
CHECKPOINTS_MAX = 100
STATE_STREAM_PREFIX = "_RG"


class GroupState(StrEnum):
    """The state of a reader group. Legal moves: controller/domain/reader_group."""

    CREATING = "creating"
    ACTIVE = "active"
    RESETTING = "resetting"
    DELETING = "deleting"
    DELETED = "deleted"


class GroupRetention(StrEnum):
    """Whether the group is a *subscriber* of its streams, so that unreleased events are kept.

    NONE: it is not. MANUAL: it releases the cuts that the application names. AUTOMATIC: it releases
    everything before its last complete checkpoint.
    """

    NONE = "none"
    MANUAL = "manual"
    AUTOMATIC = "automatic"


@dataclass(frozen=True, slots=True, order=True)
class SegmentPosition:
    """Event number `event_index` (from 0) of the block at byte `offset` of a segment.

    The offset `FUTURE_OFFSET` means that the segment follows another one that has a position.
    """

    segment_id: SegmentId
    offset: int
    event_index: int = 0

    def __post_init__(self) -> None:
        if self.offset < FUTURE_OFFSET or self.event_index < 0:
            raise InvalidRequest("a position lies before a segment's start", offset=self.offset)


PositionCut = tuple[SegmentPosition, ...]
"""A position per segment, sorted by segment id, covering all keys of a stream once."""


@dataclass(frozen=True, slots=True)
class GroupStream:
    """A stream of a group, ``scope/stream``, which may back a topic, read from `start` to `end`.

    Both are cuts; an empty `start` is the stream's head when the group is created or reset, an
    empty `end` means no end.
    """

    stream: str
    start: PositionCut = ()
    end: PositionCut = ()

    def __post_init__(self) -> None:
        readable_stream(self.stream)
        for cut in (self.start, self.end):
            if len(cut) > CUT_LENGTH_MAX or len({at.segment_id for at in cut}) < len(cut):
                raise InvalidRequest(
                    "a cut names a segment twice, or too many segments",
                    stream=self.stream,
                    count=len(cut),
                )

    @property
    def ref(self) -> StreamRef:
        return readable_stream(self.stream)


@dataclass(frozen=True, slots=True)
class ReaderGroupConfig:
    """A reader group's configuration.

    Invariants, or InvalidRequest: it names each stream once; the lease, the checkpoint interval and
    the number of checkpoints are in range; 0 disables automatic checkpoints.
    """

    streams: tuple[GroupStream, ...]
    """The streams to read, with the start and the end of each."""
    lease_ms: int = 10_000
    """A reader that is silent for this many milliseconds loses its segments."""
    automatic_checkpoint_ms: int = 0
    """The interval of automatic checkpoints in milliseconds; 0: none."""
    checkpoints_max: int = 3
    """The most checkpoints of the application that may be pending at once."""
    retention: GroupRetention = GroupRetention.NONE
    """Whether the group holds back the truncation of its streams."""
    release_after_checkpoint: bool = False
    """Whether readers release segments to others only right after a checkpoint, as in Pravega,
    instead of at once."""

    def __post_init__(self) -> None:
        names = [each.stream for each in self.streams]
        if not 1 <= len(names) <= GROUP_STREAMS_MAX or len(set(names)) < len(names):
            raise InvalidRequest(
                "a reader group needs at least one stream, and each stream once",
                remedy=f"name 1 to {GROUP_STREAMS_MAX} different streams",
                count=len(names),
            )
        if not LEASE_MS_MIN <= self.lease_ms <= LEASE_MS_MAX:
            raise InvalidRequest(
                "a reader group's lease is out of range",
                remedy=f"use {LEASE_MS_MIN} to {LEASE_MS_MAX} ms", lease_ms=self.lease_ms,
            )  # fmt: skip
        if self.automatic_checkpoint_ms and self.automatic_checkpoint_ms < LEASE_MS_MIN:
            raise InvalidRequest(
                "automatic checkpoints are too frequent",
                remedy=f"use at least {LEASE_MS_MIN} ms, or 0 for none",
                automatic_checkpoint_ms=self.automatic_checkpoint_ms,
            )
        if not 1 <= self.checkpoints_max <= CHECKPOINTS_MAX:
            raise InvalidRequest(
                "the maximum of pending checkpoints is out of range",
                remedy=f"allow 1 to {CHECKPOINTS_MAX}", checkpoints_max=self.checkpoints_max,
            )  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class GroupRef:
    """A reader group by name."""

    scope: ScopeName
    group: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.group}"

    @property
    def state_stream(self) -> StreamRef:
        """The internal stream of one segment that holds the group's shared state."""
        return StreamRef(self.scope, StreamName(f"{STATE_STREAM_PREFIX}{self.group}"))


def group_ref(text: str) -> GroupRef:
    """Parse ``scope/group``; the rules for stream names apply to groups. Raises InvalidName."""
    ref = stream_ref(text)
    return GroupRef(ref.scope, ref.stream)
