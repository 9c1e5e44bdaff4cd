"""A stream's epochs and the segments that it ever had. Pure.

An epoch is stored as its difference from the one before: what was created and what was sealed on
the way. A segment belongs to the epochs from the one that created it up to, not including, the one
that followed its sealing; its id holds the former.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, epoch_of
from anabranch.common.model.stream import SegmentRange


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that takes no more appends, and its final length in bytes."""

    segment_id: SegmentId
    size: int


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """How a stream epoch came from the one before it.

    `created`: new segments, sorted by key; of epoch 0, all. `sealed`: those of the epoch before
    that they replace. `reference_epoch`: the epoch whose segments these duplicate, else its own.
    """

    stream_epoch: int
    reference_epoch: int
    created_ms: int
    created: tuple[SegmentRange, ...]
    sealed: tuple[SealedSegment, ...] = ()


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


class History:
    """All epochs from the first to the present one."""

    def __init__(self, records: Sequence[EpochRecord]) -> None:
        assert records, "a stream has at least its first epoch"
        assert records[0].stream_epoch == 0, "a history begins at epoch 0"
        self.records = records
        self.lives: Mapping[SegmentId, SegmentLife] = _lives(records)

    @property
    def current(self) -> EpochRecord:
        return self.records[-1]

    def segments_of(self, stream_epoch: int) -> tuple[SegmentRange, ...]:
        """The segments of an epoch from 0 to the current one, sorted by key."""
        assert 0 <= stream_epoch <= self.current.stream_epoch
        found = [life for life in self.lives.values() if life.is_in(stream_epoch)]
        return as_ranges(sorted(found, key=lambda life: life.keys.start))

    def successors(self, segment: SegmentId) -> tuple[SegmentLife, ...]:
        """The segments that take the keys of a sealed one after it, sorted by key; of an active
        one, none."""
        life = self.lives[segment]
        if life.sealed_epoch is None:
            return ()
        return self._overlapping(life.keys, life.sealed_epoch)

    def predecessors(self, segment: SegmentId) -> tuple[SegmentLife, ...]:
        """The segments whose keys it took over, sorted by key; none in epoch 0."""
        life = self.lives[segment]
        if life.created_epoch == 0:
            return ()
        return self._overlapping(life.keys, life.created_epoch - 1)

    def _overlapping(self, keys: KeyRange, stream_epoch: int) -> tuple[SegmentLife, ...]:
        found = [
            life
            for life in self.lives.values()
            if life.is_in(stream_epoch) and overlaps(life.keys, keys)
        ]
        return tuple(sorted(found, key=lambda life: life.keys.start))


def overlaps(one: KeyRange, other: KeyRange) -> bool:
    """Whether some key is in both."""
    return one.start < other.end and other.start < one.end


def as_ranges(lives: Iterable[SegmentLife]) -> tuple[SegmentRange, ...]:
    """Without their ends."""
    return tuple(SegmentRange(life.segment_id, life.keys) for life in lives)


def _lives(records: Sequence[EpochRecord]) -> Mapping[SegmentId, SegmentLife]:
    lives: dict[SegmentId, SegmentLife] = {}
    for record in records:
        for sealed in record.sealed:
            keys = lives[sealed.segment_id].keys
            lives[sealed.segment_id] = SegmentLife(
                sealed.segment_id, keys, record.stream_epoch, sealed.size
            )
        for created in record.created:
            lives[created.segment_id] = SegmentLife(created.segment_id, created.keys)
    return lives
