"""A stream's epochs, and all segments that it ever had. Pure.

An epoch is stored as its difference from the one before: the created and the sealed segments. A
segment belongs to the epochs from its creation up to, not including, the one that followed its
sealing; its id contains the epoch of its creation.
"""

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated

from pydantic import PlainSerializer, TypeAdapter

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, epoch_of
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.stream.causes import EpochCause, cause_before_causes
from anabranch.controller.domain.stream.rows import SegmentRanges, reading

_UNKNOWN = EpochCause("")


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A sealed segment and its final length in bytes."""

    segment_id: SegmentId
    size: int


def _sealed_rows(segments: tuple[SealedSegment, ...]) -> list[tuple[SegmentId, int]]:
    return [(s.segment_id, s.size) for s in segments]


SealedSegments = Annotated[
    tuple[SealedSegment, ...],
    reading(TypeAdapter(list[tuple[SegmentId, int]]), lambda row: SealedSegment(*row)),
    PlainSerializer(_sealed_rows),
]
"""Rows of segment and size."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The difference between a stream epoch and the one before it.

    `created`: new segments, sorted by key; for epoch 0, all. `sealed`: the segments of the epoch
    before that they replace. `reference_epoch`: the epoch whose segments these duplicate, else its
    own. `cause`: why it began; filled in for a record that was stored before there were causes.
    """

    stream_epoch: int
    reference_epoch: int
    created_ms: int
    created: SegmentRanges
    sealed: SealedSegments = ()
    cause: EpochCause = _UNKNOWN

    def __post_init__(self) -> None:
        if self.cause == _UNKNOWN:
            known = cause_before_causes(self.stream_epoch, self.reference_epoch)
            object.__setattr__(self, "cause", known)


@dataclass(frozen=True, slots=True)
class SegmentLife:
    """A segment through the epochs. `sealed_epoch` and `size` are None while it is active."""

    segment_id: SegmentId
    keys: KeyRange
    sealed_epoch: int | None = None
    size: int | None = None

    @property
    def created_epoch(self) -> int:
        return epoch_of(self.segment_id)

    def is_in(self, stream_epoch: int) -> bool:
        """Whether it is one of that epoch's segments."""
        ends = self.sealed_epoch
        return self.created_epoch <= stream_epoch and (ends is None or stream_epoch < ends)


_LANDMARK_MIN = 32


class History:
    """All epochs from the first to the present one, and the segments' lives. Immutable.

    Every query uses only the few records that it needs. The segments of an epoch are computed from
    the nearest *landmark* before it, an epoch whose segments are kept. Landmarks are so far apart
    that all of them together take about as much memory as the records.
    """

    def __init__(
        self,
        records: Iterable[EpochRecord],
        *,
        after: "_Epochs | None" = None,
        is_ended: bool = False,
    ) -> None:
        self._epochs = _Epochs() if after is None else after
        for record in records:
            self._epochs.add(record)
        self.records: Sequence[EpochRecord] = self._epochs.records
        """By number: `records[n]` is epoch n's."""
        self.lives: Mapping[SegmentId, SegmentLife] = self._epochs.lives
        self.is_ended = is_ended
        """Whether the stream is sealed, so that the current segments' sizes are final too."""
        assert self.records, "a stream has at least its first epoch"

    @property
    def current(self) -> EpochRecord:
        return self.records[-1]

    def extended(self, *records: EpochRecord) -> "History":
        """This history with the epochs that follow it; this one stays unchanged."""
        assert not self.is_ended, "a sealed stream has no further epochs"
        return History(records, after=self._epochs.copied())

    def ended(self, sealed: Iterable[SealedSegment]) -> "History":
        """This history after the stream was sealed, with its last segments' lengths."""
        final = self._epochs.copied()
        for segment in sealed:
            keys = final.lives[segment.segment_id].keys
            final.lives[segment.segment_id] = SegmentLife(
                segment.segment_id, keys, size=segment.size
            )
        return History((), after=final, is_ended=True)

    def segments_of(self, stream_epoch: int) -> tuple[SegmentRange, ...]:
        """The segments of an epoch from 0 to the current one, sorted by key."""
        assert 0 <= stream_epoch <= self.current.stream_epoch
        landmarks = self._epochs.landmarks
        nearest = bisect.bisect_right(landmarks, stream_epoch, key=itemgetter(0)) - 1
        landmark, segments = landmarks[nearest]
        if landmark == stream_epoch:
            return segments
        found = _Segments(segments)
        for record in self.records[landmark + 1 : stream_epoch + 1]:
            found.change(record, self.lives)
        return tuple(found.segments)

    def created_in(self, epochs: range) -> Iterator[SegmentLife]:
        """The segments that were created in these epochs, oldest first."""
        for epoch in epochs:
            for segment in self.records[epoch].created:
                yield self.lives[segment.segment_id]

    def successors(self, segment: SegmentId) -> tuple[SegmentLife, ...]:
        """The segments that take the keys of a sealed segment after it, sorted by key.

        An active segment has none.
        """
        life = self.lives[segment]
        if life.sealed_epoch is None:
            return ()
        created = self.records[life.sealed_epoch].created  # cover its keys exactly
        first = bisect.bisect_right(created, life.keys.start, key=_start_of) - 1
        last = bisect.bisect_left(created, life.keys.end, key=_start_of)
        return tuple(self.lives[found.segment_id] for found in created[first:last])

    def predecessors(self, segment: SegmentId) -> tuple[SegmentLife, ...]:
        """The segments whose keys it took over, sorted by key; none in epoch 0."""
        life = self.lives[segment]
        replaced = (self.lives[s.segment_id] for s in self.records[life.created_epoch].sealed)
        found = [before for before in replaced if overlaps(before.keys, life.keys)]
        return tuple(sorted(found, key=_start_of))


class _Segments:
    """The segments of one epoch, sorted by key, on the way to those of later epochs."""

    def __init__(self, segments: Iterable[SegmentRange] = ()) -> None:
        self.segments = list(segments)

    def change(self, record: EpochRecord, lives: Mapping[SegmentId, SegmentLife]) -> None:
        """Advance to the epoch of `record`; `lives` has the segments that it seals."""
        for sealed in record.sealed:
            start = lives[sealed.segment_id].keys.start
            del self.segments[bisect.bisect_left(self.segments, start, key=_start_of)]
        for created in record.created:
            at = bisect.bisect_left(self.segments, created.keys.start, key=_start_of)
            self.segments.insert(at, created)


@dataclass(slots=True)
class _Epochs:
    """The parts of a history under construction."""

    records: list[EpochRecord] = field(default_factory=list)
    lives: dict[SegmentId, SegmentLife] = field(default_factory=dict)
    landmarks: list[tuple[int, tuple[SegmentRange, ...]]] = field(default_factory=list)
    present: _Segments = field(default_factory=_Segments)
    changed_count: int = 0
    """Segments that were created or sealed since the last landmark."""

    def add(self, record: EpochRecord) -> None:
        assert record.stream_epoch == len(self.records), "epochs follow each other from 0"
        self.records.append(record)
        self.present.change(record, self.lives)
        for sealed in record.sealed:
            keys = self.lives[sealed.segment_id].keys
            self.lives[sealed.segment_id] = SegmentLife(
                sealed.segment_id, keys, record.stream_epoch, sealed.size
            )
        for created in record.created:
            self.lives[created.segment_id] = SegmentLife(created.segment_id, created.keys)
        self.changed_count += len(record.created) + len(record.sealed)
        segments = self.present.segments
        if not self.landmarks or self.changed_count >= _LANDMARK_MIN + len(segments) // 4:
            self.landmarks.append((record.stream_epoch, tuple(segments)))
            self.changed_count = 0

    def copied(self) -> "_Epochs":
        """A copy that grows independently; it shares records and lives, which never change."""
        return _Epochs(
            self.records.copy(),
            self.lives.copy(),
            self.landmarks.copy(),
            _Segments(self.present.segments),
            self.changed_count,
        )


def overlaps(one: KeyRange, other: KeyRange) -> bool:
    """Whether they share a key."""
    return one.start < other.end and other.start < one.end


def as_ranges(lives: Iterable[SegmentLife]) -> tuple[SegmentRange, ...]:
    """The segments without their ends."""
    return tuple(SegmentRange(life.segment_id, life.keys) for life in lives)


def _start_of(segment: SegmentRange | SegmentLife) -> float:
    return segment.keys.start
