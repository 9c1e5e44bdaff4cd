"""The memory of auto-scaling about a stream, between two looks at it. Pure.

    segment appears ──▶ watched from now on ──▶ looked at, again and again ──▶ replaced
                          │ inherits, if it is a part of a segment that was split

All of it lives in the memory of the controller that owns the stream's bucket. A new owner begins
with nothing, so every rate is unknown until its windows are filled again.

A part of a split segment remembers its *family*, the keys that were split, and by how many halvings
its ancestors became narrower while all of their load stayed together. That is how one hot key is
recognized: splitting changes nothing about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.policies.gauge import Gauge, new_gauge
from anabranch.controller.domain.stream.history import overlaps


@dataclass(frozen=True, slots=True)
class SegmentWatch:
    """One segment. Times by the controller's monotonic clock.

    keys           the keys that it takes
    begun_s        since when it is watched
    gauge          how fast it is written
    muted_until_s  it is left alone until then, because a decision named it
    hot_since_s    since when it is hot; None: it is not
    cold_since_s   since when it is cold; None: it is not, or it is not known
    family         the keys of the segment that was split into it and others; None: of none
    inherited      halvings that changed nothing, up to the family
    halvings       the same with its own, once its share of the family is known; it is kept until
                   the segment cools down
    """

    keys: KeyRange
    begun_s: float
    gauge: Gauge
    muted_until_s: float = 0.0
    hot_since_s: float | None = None
    cold_since_s: float | None = None
    family: KeyRange | None = None
    inherited: float = 0.0
    halvings: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamWatch:
    """The segments of one epoch of one life of a stream."""

    incarnation: int
    stream_epoch: int
    segments: Mapping[SegmentId, SegmentWatch] = field(default_factory=dict)

    def muted(self, segments: Iterable[SegmentId], until_s: float) -> "StreamWatch":
        """The same with these segments left alone until then."""
        named = frozenset(segments)
        return replace(
            self,
            segments={
                name: replace(one, muted_until_s=until_s) if name in named else one
                for name, one in self.segments.items()
            },
        )


def followed(
    before: StreamWatch | None,
    incarnation: int,
    stream_epoch: int,
    segments: Sequence[SegmentRange],
    *,
    windows_s: Sequence[float],
    now_s: float,
) -> StreamWatch:
    """The watch at this epoch of the stream; the same one if nothing changed."""
    if before is not None and before.incarnation != incarnation:
        before = None
    if before is not None and before.stream_epoch == stream_epoch:
        return before
    known: Mapping[SegmentId, SegmentWatch] = {} if before is None else before.segments
    current = {segment.segment_id for segment in segments}
    replaced = [one for name, one in known.items() if name not in current]
    return StreamWatch(
        incarnation,
        stream_epoch,
        {
            segment.segment_id: known.get(segment.segment_id)
            or _begun(segment.keys, replaced, windows_s, now_s)
            for segment in segments
        },
    )


def _begun(
    keys: KeyRange, replaced: Sequence[SegmentWatch], windows_s: Sequence[float], now_s: float
) -> SegmentWatch:
    new = SegmentWatch(keys, now_s, new_gauge(windows_s, now_s))
    parents = [one for one in replaced if overlaps(one.keys, keys)]
    if len(parents) != 1:
        return new
    (parent,) = parents
    if parent.keys == keys:  # a roll: the same segment under another id
        return replace(
            new, family=parent.family, inherited=parent.inherited, halvings=parent.halvings
        )
    return replace(new, family=parent.keys, inherited=max(parent.inherited, parent.halvings))
