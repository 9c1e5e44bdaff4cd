"""The memory of auto-scaling about a stream, between two looks at it. Pure.

    segment appears ──▶ watched from now on ──▶ looked at, again and again ──▶ replaced
                          │ inherits, if it is a part of a segment that was split

All of it lives in the memory of the controller that owns the stream's bucket. A new owner begins
with nothing, so every rate is unknown until its windows are filled again.

A part of a split segment remembers its *family*, the keys that were split, and by how many halvings
its ancestors became narrower while all of their load stayed together. Where no store tells how the
load is spread, one hot key is recognized by that: splitting changes nothing about it.

A load in bursts would have segments merge in each pause and split in each burst. A stream that
splits soon after a merge therefore becomes *patient*: its segments must be cold for twice as long
before they merge, each time again. With the fast timings, each hour without a split halves this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.spread import HotKey
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.policies.gauge import Gauge, new_gauge
from anabranch.controller.domain.stream.history import overlaps

PATIENCE_MAX = 16
REGRET_WINDOWS = 10
"""A split within so many cold windows after a merge shows that the merge came too early."""
CALM_WINDOWS = 60
"""Without a split for so many cold windows, a stream is half as patient."""


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
    inherited      halvings that changed nothing, up to the family; at least one for each split
    halvings       the same with its own, once its share of the family is known; it is kept until
                   the segment cools down
    merged_s       when it was made of several segments; None: it was not
    hot_key        the routing key that keeps it hot however it is cut, as last measured; None: none
                   was found. It is kept until the segment cools down or is measured again
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
    merged_s: float | None = None
    hot_key: HotKey | None = None


@dataclass(frozen=True, slots=True)
class StreamWatch:
    """The segments of one epoch of one life of a stream. Times by the controller's clock.

    incarnation   which life of the stream it is
    stream_epoch  the current one
    segments      its segments
    patience      for how many cold windows segments must be cold before they merge
    split_s       when it split segments last, or lost patience last; None: never
    """

    incarnation: int
    stream_epoch: int
    segments: Mapping[SegmentId, SegmentWatch] = field(default_factory=dict)
    patience: int = 1
    split_s: float | None = None

    def after_split(
        self, segments: Iterable[SegmentId], now_s: float, cold_s: float
    ) -> "StreamWatch":
        """The same once the policy has split these segments: more patient if one of them was
        merged shortly before, because the load comes in bursts."""
        since_s = now_s - REGRET_WINDOWS * self.patience * cold_s
        merged_s = (self.segments[name].merged_s for name in segments)
        regrets = any(at_s is not None and at_s > since_s for at_s in merged_s)
        patience = min(2 * self.patience, PATIENCE_MAX) if regrets else self.patience
        return replace(self, patience=patience, split_s=now_s)

    def calmed(self, now_s: float, cold_s: float) -> "StreamWatch":
        """The same; half as patient if the last split is long ago."""
        if self.patience == 1 or self.split_s is None:
            return self
        is_calm = now_s - self.split_s > CALM_WINDOWS * cold_s
        return replace(self, patience=self.patience // 2, split_s=now_s) if is_calm else self

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
    watched = {
        segment.segment_id: known.get(segment.segment_id)
        or _begun(segment.keys, replaced, windows_s, now_s)
        for segment in segments
    }
    if before is None:
        return StreamWatch(incarnation, stream_epoch, watched)
    return replace(before, stream_epoch=stream_epoch, segments=watched)


def _begun(
    keys: KeyRange, replaced: Sequence[SegmentWatch], windows_s: Sequence[float], now_s: float
) -> SegmentWatch:
    new = SegmentWatch(keys, now_s, new_gauge(windows_s, now_s))
    parents = [one for one in replaced if overlaps(one.keys, keys)]
    if len(parents) > 1:
        return replace(new, merged_s=now_s)
    if not parents:
        return new
    (parent,) = parents
    if parent.keys == keys:  # a roll: the same segment under another id
        return replace(
            new, family=parent.family, inherited=parent.inherited, halvings=parent.halvings,
            merged_s=parent.merged_s, hot_key=parent.hot_key,
        )  # fmt: skip
    return replace(new, family=parent.keys, inherited=max(parent.inherited, parent.halvings))
