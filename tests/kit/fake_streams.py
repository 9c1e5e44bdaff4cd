"""The fake controller's streams: their segments through all epochs, scaled and truncated.

A scale goes in stages, as a real one does: the new segments are made, their predecessors' followers
are told, the old segments are sealed one by one, and only then the new epoch is the current one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from anabranch.common.contracts import queries as q
from anabranch.common.contracts import stream_queries as sq
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.reader_groups import SubscriberDescription
from anabranch.common.contracts.writer_times import WriterMark
from anabranch.common.errors import CutRefused, InvalidRequest, ScaleRefused, SegmentNotFound
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import StreamRef, epoch_of, segment_id, segment_name
from anabranch.common.model.stream import StreamState
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore


@dataclass
class FakeLife:
    """A segment through the epochs; `followers` from when they were told."""

    segment_id: int
    keys: KeyRange
    followers: tuple[int, ...] = ()
    predecessors: tuple[int, ...] = ()
    sealed_epoch: int | None = None
    size: int | None = None


@dataclass
class FakeStream:
    """`segment_count`: of epoch 0. `first_number`: that of its first segment."""

    segment_count: int
    state: StreamState = StreamState.ACTIVE
    epoch: int = 0
    lives: dict[int, FakeLife] = field(default_factory=dict)
    head: dict[int, int] = field(default_factory=dict)
    """The segments where the stream begins → the offsets there."""
    subscribers: dict[str, SubscriberDescription] = field(default_factory=dict)
    marks: dict[str, WriterMark] = field(default_factory=dict)
    """By writer id."""
    begun_ms: dict[int, int] = field(default_factory=dict)
    """Epoch → when it began, as far as a test says so; otherwise it began at 0."""
    first_number: int = 0
    incarnation: int = 1

    def __post_init__(self) -> None:
        for number, keys in enumerate(even_ranges(self.segment_count), self.first_number):
            self._make(segment_id(0, number), keys)
        self.head = dict.fromkeys(self.lives, 0)

    def _make(self, segment: int, keys: KeyRange) -> None:
        self.lives[segment] = FakeLife(segment, keys)

    def of_epoch(self, epoch: int) -> list[FakeLife]:
        """The segments of an epoch that has begun, sorted by key."""
        found = [
            life
            for life in self.lives.values()
            if epoch_of(life.segment_id) <= epoch  # type: ignore[arg-type]
            and (life.sealed_epoch is None or epoch < life.sealed_epoch)
        ]
        return sorted(found, key=lambda life: life.keys.start)

    @property
    def current(self) -> list[FakeLife]:
        return self.of_epoch(self.epoch)

    # --- changes --------------------------------------------------------------------------

    def scale(
        self,
        ref: StreamRef,
        store: FakeSegmentStore | None,
        seal: Sequence[int],
        ranges: Sequence[tuple[float, float]],
    ) -> Iterator[str]:
        """Scale stage by stage: yields the name of each that was just performed."""
        if not set(seal) <= {life.segment_id for life in self.current}:
            raise ScaleRefused("the segment does not belong to the current epoch")
        first = max(segment & 0xFFFFFFFF for segment in self.lives) + 1
        epoch = self.epoch + 1
        made = [segment_id(epoch, number) for number in range(first, first + len(ranges))]
        for new, (start, end) in zip(made, ranges, strict=True):
            self._make(new, KeyRange(start, end))
            if store is not None:
                store.segments[_name(ref, new)] = FakeSegment()
        yield "made"
        self._tell(seal, made)
        yield "told"
        for old in seal:
            if store is not None:
                store.seal(_name(ref, old))
                self.lives[old].size = len(store.segments[_name(ref, old)].data)
            yield "sealed"
        for old in seal:
            self.lives[old].sealed_epoch = epoch
        self.epoch = epoch
        yield "current"

    def _tell(self, seal: Sequence[int], made: Sequence[int]) -> None:
        for old in sorted(seal, key=lambda segment: self.lives[segment].keys):
            for new in sorted(made, key=lambda segment: self.lives[segment].keys):
                if _overlap(self.lives[old].keys, self.lives[new].keys):
                    self.lives[old].followers += (new,)
                    self.lives[new].predecessors += (old,)

    def truncate(
        self, ref: StreamRef, store: FakeSegmentStore | None, cut: Mapping[int, int]
    ) -> None:
        """The stream begins at the cut; segments before it are deleted.

        Raises CutRefused, NotAtBoundary, InvalidRequest.
        """
        for segment, offset in cut.items():
            if offset < self.head.get(segment, offset):
                raise CutRefused("the cut lies before the head", segment=segment)
            if store is not None:
                store.segments[_name(ref, segment)].truncate(max(0, offset))
        self.head = dict(cut)
        before = [old for new in cut for old in self.lives[new].predecessors]
        while before:
            old = before.pop()
            if old in cut:
                continue
            before.extend(self.lives[old].predecessors)
            if store is not None and _name(ref, old) in store.segments:
                store.delete(_name(ref, old))

    # --- queries --------------------------------------------------------------------------

    def answer(self, ref: StreamRef, query: sq.StreamQuery) -> Contract:
        match query:
            case sq.Successors():
                return self._successors(ref, query.segment_id)
            case sq.HeadCut():
                return self._cut(ref, self.head)
            case sq.SegmentsAtTime():
                return self._at_time(ref, query.time_ms)
            case sq.EpochSegments():
                if query.stream_epoch > self.epoch + any(
                    life.sealed_epoch is None and life.followers for life in self.lives.values()
                ):
                    raise InvalidRequest("the stream never had this epoch")
                lives = self.of_epoch(query.stream_epoch)
                return self._cut(ref, {life.segment_id: 0 for life in lives})
            case sq.SegmentsBetween():
                start, end = (
                    {int(at.segment_id): at.offset for at in cut}
                    for cut in (query.start, query.end)
                )
                return self._between(ref, start, end)
            case sq.CompareCuts():
                first, second = (
                    {int(at.segment_id): at.offset for at in cut}
                    for cut in (query.first, query.second)
                )
                return sq.CutsCompared(order=self._order(first, second))
        raise AssertionError(query)

    def tail(self, ref: StreamRef, store: FakeSegmentStore) -> sq.CutFound:
        """The current segments with their lengths."""
        names = {life.segment_id: _name(ref, life.segment_id) for life in self.current}
        return self._cut(
            ref, {each: len(store.segments[name].data) for each, name in names.items()}
        )

    def _order(
        self, first: Mapping[int, int], second: Mapping[int, int]
    ) -> Literal["before", "equal", "after", "overlaps"]:
        edges = sorted({life.keys.start for life in self.lives.values()})
        pairs = [(self._place(first, key), self._place(second, key)) for key in edges]
        before = any(one < other for one, other in pairs)
        after = any(one > other for one, other in pairs)
        if before and after:
            return "overlaps"
        return "before" if before else "after" if after else "equal"

    def _place(self, cut: Mapping[int, int], key: float) -> tuple[int, int]:
        """The cut's (segment, offset) at a key."""
        places = [
            (segment, max(0, offset))
            for segment, offset in sorted(cut.items())
            if self.lives[segment].keys.start <= key < self.lives[segment].keys.end
        ]
        return places[0]

    def _at_time(self, ref: StreamRef, time_ms: int) -> sq.CutFound:
        """The head, unless an epoch after it is known to have begun by then."""
        begun = [epoch for epoch, at_ms in self.begun_ms.items() if at_ms <= time_ms]
        epoch = max(begun, default=0)
        if epoch <= max(epoch_of(segment) for segment in self.head):  # type: ignore[arg-type]
            return self._cut(ref, self.head)
        return self._cut(ref, {life.segment_id: 0 for life in self.of_epoch(epoch)})

    def _successors(self, ref: StreamRef, segment: int) -> sq.SuccessorsFound:
        life = self.lives.get(segment)
        if life is None:
            raise SegmentNotFound("the stream does not have this segment", segment=segment)
        if life.followers:
            followers = [self.lives[number] for number in life.followers]
            return sq.SuccessorsFound(
                incarnation=self.incarnation,
                status="followed",
                successors=tuple(
                    sq.Successor(**_fields(ref, each), predecessors=each.predecessors)
                    for each in sorted(followers, key=lambda each: each.keys.start)
                ),
            )
        sealed = self.state is StreamState.SEALED
        status: Literal["stream_sealed", "open"] = "stream_sealed" if sealed else "open"
        return sq.SuccessorsFound(incarnation=self.incarnation, status=status)

    def _cut(self, ref: StreamRef, offsets: Mapping[int, int]) -> sq.CutFound:
        lives = sorted((self.lives[segment] for segment in offsets), key=lambda each: each.keys)
        return sq.CutFound(
            incarnation=self.incarnation,
            stream_epoch=self.epoch,
            segments=tuple(
                sq.SegmentAt(**_fields(ref, each), offset=offsets[each.segment_id])
                for each in lives
            ),
        )

    def _between(
        self, ref: StreamRef, start: Mapping[int, int], end: Mapping[int, int]
    ) -> sq.SegmentRunList:
        """From `start`, through the followers, to `end` or the current segments."""
        begin = dict(start or self.head)
        after, current = list(begin), {life.segment_id for life in self.current}
        found: set[int] = set()
        while after:
            segment = after.pop()
            if segment in found or end.get(segment, 0) < 0:
                continue
            found.add(segment)
            if segment not in (end or current):
                after.extend(self.lives[segment].followers)
        return sq.SegmentRunList(
            segments=tuple(
                sq.SegmentRun(
                    **_fields(ref, self.lives[segment]),
                    start_offset=max(0, begin.get(segment, 0)),
                    end_offset=end.get(segment),
                    size=None if segment in current else self.lives[segment].size,
                )
                for segment in sorted(found)
            )
        )

    def listed(self, ref: StreamRef) -> tuple[q.SegmentInStream, ...]:
        """The current segments."""
        return self.described(ref, self.current)

    def described(self, ref: StreamRef, lives: Iterable[FakeLife]) -> tuple[q.SegmentInStream, ...]:
        return tuple(_described(ref, life.segment_id, life.keys) for life in lives)


@lru_cache(maxsize=1024)
def _described(ref: StreamRef, segment: int, keys: KeyRange) -> q.SegmentInStream:
    return q.SegmentInStream(
        segment_id=segment, name=_name(ref, segment), key_start=keys.start, key_end=keys.end
    )


def _fields(ref: StreamRef, life: FakeLife) -> dict[str, Any]:
    return {
        "segment_id": life.segment_id,
        "name": _name(ref, life.segment_id),
        "key_start": life.keys.start,
        "key_end": life.keys.end,
    }


def _name(ref: StreamRef, segment: int) -> str:
    return segment_name(ref, segment)  # type: ignore[arg-type]


def _overlap(one: KeyRange, other: KeyRange) -> bool:
    return one.start < other.end and other.start < one.end
