"""How a stream in memory came to be what it is, and the answers to questions about that. Pure.

Segments have ids by the real rules; every one of them is `LENGTH` bytes long.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from anabranch.common.contracts import queries as q
from anabranch.common.contracts import stream_queries as sq
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import (
    InvalidCut,
    InvalidRequest,
    SegmentNotFound,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    SegmentId,
    StreamRef,
    any_stream_name,
    epoch_of,
    scope_name,
    segment_name,
)
from anabranch.common.model.stream import (
    FUTURE_OFFSET,
    SegmentOffset,
    SegmentRange,
    StreamConfig,
    StreamState,
)
from kit.fake_streams import FakeStream

BEGAN_MS = 1_700_000_000_000
EPOCH_MS = 1_000
LENGTH = 100
"""Of every segment, in bytes."""


@dataclass
class Course:
    """How a stream came to be what it is. Segments of an epoch are sorted by their keys."""

    of: FakeStream
    config: StreamConfig
    epochs: list[tuple[SegmentRange, ...]]
    head: tuple[SegmentOffset, ...]
    begun_ms: list[int] = field(default_factory=lambda: [BEGAN_MS])

    @property
    def current(self) -> tuple[SegmentRange, ...]:
        return self.epochs[-1]

    def find(self, segment: int) -> SegmentRange:
        for known in itertools.chain(*self.epochs):
            if known.segment_id == segment:
                return known
        raise SegmentNotFound("the stream does not have this segment", segment=segment)

    def sealed_epoch(self, segment: int) -> int | None:
        """The epoch that followed the segment; None while it is current."""
        last = max(n for n, of in enumerate(self.epochs) if segment in {s.segment_id for s in of})
        return last + 1 if last + 1 < len(self.epochs) else None


def about_cuts(name: str, course: Course, query: Contract) -> Contract:
    match query:
        case sq.CheckCut():
            reason = reason_against(course, query.cut)
            return sq.CutChecked(valid=not reason, reason=reason)
        case sq.CompareCuts():
            for cut in (query.first, query.second):
                if reason := reason_against(course, cut):
                    raise InvalidCut(reason)
            return sq.CutsCompared(order=order(course, query.first, query.second))  # type: ignore[arg-type]
        case sq.SegmentsBetween():
            return between(name, course, query)
    raise AssertionError(query)


def between(name: str, course: Course, query: sq.SegmentsBetween) -> sq.SegmentRunList:
    """Roughly: every segment from the start's oldest to the end's newest."""
    start, end = query.start or course.head, query.end or at(course.current, LENGTH)
    for cut in (start, end):
        if reason := reason_against(course, cut):
            raise InvalidCut(reason)
    offsets = {o.segment_id: o.offset for o in start}
    ends = {o.segment_id: o.offset for o in end} if query.end else {}
    known = sorted({s.segment_id: s for s in itertools.chain(*course.epochs)}.items())
    return sq.SegmentRunList(
        segments=tuple(
            sq.SegmentRun(
                **in_stream(name, s).model_dump(),
                start_offset=max(offsets.get(number, 0), 0),
                end_offset=ends.get(number),
                size=None if course.sealed_epoch(number) is None else LENGTH,
            )
            for number, s in known
            if min(offsets) <= number <= max(o.segment_id for o in end)
        )
    )


def successors(name: str, course: Course, segment: int) -> sq.SuccessorsFound:
    keys = course.find(segment).keys
    epoch = course.sealed_epoch(segment)
    if epoch is None:
        sealed = course.of.state is StreamState.SEALED
        return sq.SuccessorsFound(incarnation=1, status="stream_sealed" if sealed else "open")
    before = course.epochs[epoch - 1]
    return sq.SuccessorsFound(
        incarnation=1,
        status="followed",
        successors=tuple(
            sq.Successor(
                **in_stream(name, s).model_dump(),
                predecessors=tuple(p.segment_id for p in before if overlap(p.keys, s.keys)),
            )
            for s in course.epochs[epoch]
            if overlap(s.keys, keys)
        ),
    )


def described(name: str, course: Course, segment: int) -> sq.SegmentDescription:
    found = course.find(segment)
    sealed = course.sealed_epoch(segment)
    return sq.SegmentDescription(
        **in_stream(name, found).model_dump(),
        state="active" if sealed is None else "sealed",
        stream_epoch=epoch_of(found.segment_id),
        sealed_epoch=sealed,
        size=None if sealed is None else LENGTH,
        node_id="fake",
    )


def epochs(course: Course) -> list[sq.EpochDescription]:
    """Oldest first."""
    told = []
    for number, segments in enumerate(course.epochs):
        before = course.epochs[number - 1] if number else segments
        told.append(
            sq.EpochDescription(
                stream_epoch=number,
                reference_epoch=number,
                created_ms=course.begun_ms[number],
                segment_count=len(segments),
                splits=divided(before, segments),
                merges=divided(segments, before),
                cause="manual" if number else "create",
            )
        )
    return told


def divided(these: Sequence[SegmentRange], those: Sequence[SegmentRange]) -> int:
    """How many of these overlap more than one of those."""
    return sum(sum(overlap(s.keys, t.keys) for t in those) > 1 for s in these)


def is_after(epoch: sq.EpochDescription, token: str) -> bool:
    return not token or epoch.stream_epoch < int(token)


def require_epoch(course: Course, epoch: int) -> None:
    if epoch >= len(course.epochs):
        raise InvalidRequest("the stream was never at this epoch", stream_epoch=epoch)


def reason_against(course: Course, cut: Sequence[SegmentOffset]) -> str:
    """Why it is no cut of the stream; empty if it is one."""
    try:
        ranges = [course.find(entry.segment_id).keys for entry in cut]
    except SegmentNotFound as error:
        return str(error)
    if any(entry.offset < FUTURE_OFFSET for entry in cut):
        return "an offset is negative"
    return "" if joined(ranges) == [KeyRange(0.0, 1.0)] else "it does not cover all keys once"


def order(course: Course, first: Sequence[SegmentOffset], second: Sequence[SegmentOffset]) -> str:
    """Compared key by key, at each key where a segment begins."""

    def at(cut: Sequence[SegmentOffset], key: float) -> SegmentOffset:
        return next(o for o in cut if key in course.find(o.segment_id).keys)

    starts = {course.find(o.segment_id).keys.start for o in (*first, *second)}
    pairs = [(at(first, key), at(second, key)) for key in starts]
    before, after = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
    if before and after:
        return "overlaps"
    return "before" if before else "after" if after else "equal"


def joined(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Adjacent ranges as one; overlaps stay apart."""
    joined: list[KeyRange] = []
    for keys in sorted(ranges):
        if joined and joined[-1].end == keys.start:
            joined[-1] = replace(joined[-1], end=keys.end)
        else:
            joined.append(keys)
    return joined


def overlap(a: KeyRange, b: KeyRange) -> bool:
    return a.start < b.end and b.start < a.end


def at(segments: Sequence[SegmentRange], offset: int) -> tuple[SegmentOffset, ...]:
    return tuple(SegmentOffset(SegmentId(s.segment_id), offset) for s in segments)


def cut(name: str, course: Course, cut: Sequence[SegmentOffset]) -> sq.CutFound:
    placed = sorted((course.find(o.segment_id).keys, o) for o in cut)
    return sq.CutFound(
        incarnation=1,
        stream_epoch=max(epoch_of(o.segment_id) for o in cut),
        segments=tuple(
            sq.SegmentAt(**in_stream(name, course.find(o.segment_id)).model_dump(), offset=o.offset)
            for _, o in placed
        ),
    )


def _ref(name: str) -> StreamRef:
    """Of a stream that is there, internal ones included."""
    scope, _, stream = name.partition("/")
    return StreamRef(scope_name(scope), any_stream_name(stream))


def in_stream(name: str, segment: SegmentRange) -> q.SegmentInStream:
    return q.SegmentInStream(
        segment_id=segment.segment_id,
        name=segment_name(_ref(name), segment.segment_id),
        key_start=segment.keys.start,
        key_end=segment.keys.end,
    )
