"""Stream cuts: validity, order, and the runs between them. Pure.

Every key has its own chain of segments, one after the other through the epochs. A cut gives a place
in the chain of every key; everything before it is *read*. It names segments with offsets:

* A segment with an offset of 0 or more is the cut's place for all of its keys.
* A segment with `FUTURE_OFFSET` is not begun. If no other segment of the cut comes before it, the
  cut's place is its start; if one does, it adds nothing. A reader that has finished one of two
  merged segments has such a cut: {the other one: 10, their successor: future}.

The *frontier* of a cut is its places for all keys, sorted: pieces of the key space, each with its
segment and offset. A cut is valid if its frontier covers every key and if no segment is read for
some of its keys and not begun for others. For a valid cut, one key of a segment therefore shows
whether the segment is read.
"""

import bisect
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anabranch.common.errors import CutRefused, InvalidCut
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import FUTURE_OFFSET, SegmentOffset, StreamCut
from anabranch.controller.domain.stream.history import History, SegmentLife

Order = Literal["before", "equal", "after", "overlaps"]


class Piece(NamedTuple):
    """The place of a cut for the keys [start, end): in the segment `life`, at `offset` (≥ 0)."""

    start: float
    end: float
    life: SegmentLife
    offset: int

    @property
    def place(self) -> tuple[int, int]:
        """A sort key that follows the chain of any of its keys."""
        return self.life.created_epoch, self.offset


class Run(NamedTuple):
    """A part of a segment; `end_offset` None: to its end."""

    segment_id: SegmentId
    start_offset: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class Frontier:
    """A valid cut, as pieces sorted by key; `offsets` are those of the cut, by segment."""

    pieces: Sequence[Piece]
    offsets: Mapping[SegmentId, int]

    def is_past(self, life: SegmentLife) -> bool:
        """Whether all of the segment lies before the cut."""
        at = bisect.bisect_right(self.pieces, life.keys.start, key=_start_of) - 1
        return self.pieces[at].life.created_epoch > life.created_epoch

    def offset_in(self, life: SegmentLife) -> int | None:
        """The bytes of the segment before the cut; None: all."""
        return None if self.is_past(life) else max(0, self.offsets.get(life.segment_id, 0))

    @property
    def epochs(self) -> range:
        """The range of epochs that created its segments, from the oldest to the newest."""
        created = [piece.life.created_epoch for piece in self.pieces]
        return range(min(created), max(created) + 1)


def check(history: History, cut: StreamCut) -> None:
    """Raises InvalidCut, with the reason, unless it is a cut of the stream."""
    frontier(history, cut)


def frontier(history: History, cut: StreamCut) -> Frontier:
    """The cut's frontier. Raises InvalidCut."""
    offsets: dict[SegmentId, int] = {}
    for segment, offset in ((place.segment_id, place.offset) for place in cut):
        life = history.lives.get(segment)
        if life is None:
            raise InvalidCut("the stream does not have this segment", segment=segment)
        if segment in offsets:
            raise InvalidCut("a cut names a segment twice", segment=segment)
        if offset < FUTURE_OFFSET or (life.size is not None and offset > life.size):
            raise InvalidCut("an offset is not within its segment", segment=segment, offset=offset)
        offsets[segment] = offset
    lives = sorted((history.lives[segment] for segment in offsets), key=_start_of_life)
    _refuse_overlaps([life for life in lives if offsets[life.segment_id] != FUTURE_OFFSET])
    pieces = list(_pieces(lives, offsets))
    _require_agreement(history, pieces)
    return Frontier(pieces, offsets)


def compare(history: History, first: StreamCut, second: StreamCut) -> Order:
    """The order of `first` relative to `second`; "overlaps" if it differs between keys.

    The end of a segment comes before the start of its successor. Raises InvalidCut.
    """
    pairs = side_by_side(frontier(history, first), frontier(history, second))
    places = [(one.place, other.place) for one, other in pairs]
    is_before = any(one < other for one, other in places)
    is_after = any(one > other for one, other in places)
    if is_before and is_after:
        return "overlaps"
    return "before" if is_before else "after" if is_after else "equal"


def truncated(history: History, head: StreamCut, cut: StreamCut) -> tuple[SegmentId, ...]:
    """The segments that a truncation from `head` to `cut` deletes, sorted by id.

    Raises InvalidCut, CutRefused (it lies before the head for some key).
    """
    begin, end = frontier(history, head), frontier(history, cut)
    for was, now in side_by_side(begin, end):
        if now.place < was.place:
            raise CutRefused("the cut lies before the head", segment=now.life.segment_id)
    created = history.created_in(range(begin.epochs.start, end.epochs.stop))
    gone = (life for life in created if end.is_past(life) and not begin.is_past(life))
    return tuple(sorted(life.segment_id for life in gone))


def from_head(history: History, head: StreamCut) -> tuple[SegmentId, ...]:
    """The segments that no truncation has deleted, sorted by id."""
    begin = frontier(history, head)
    created = history.created_in(range(begin.epochs.start, len(history.records)))
    return tuple(sorted(life.segment_id for life in created if not begin.is_past(life)))


def between(history: History, start: StreamCut, end: StreamCut = ()) -> tuple[Run, ...]:
    """The runs between two cuts, sorted by segment, without those known to be empty.

    `end` empty: everything through the current segments. Raises InvalidCut, also if `start` lies
    after `end` for some key.
    """
    begin = frontier(history, start)
    stop = frontier(history, end) if end else None
    if stop is not None:
        _refuse_reversed(begin, stop)
    last = stop.epochs.stop if stop is not None else len(history.records)
    runs: list[Run] = []
    for life in history.created_in(range(begin.epochs.start, last)):
        start_offset = begin.offset_in(life)
        end_offset = stop.offset_in(life) if stop is not None else None
        known_end = life.size if end_offset is None else end_offset
        if start_offset is None or (known_end is not None and known_end <= start_offset):
            continue
        runs.append(Run(life.segment_id, start_offset, end_offset))
    return tuple(sorted(runs))


def size_between(history: History, start: StreamCut, end: StreamCut) -> int:
    """The bytes between two cuts. Raises InvalidCut, as `between`."""
    assert end, "how long the current segments are is not for a history to know"
    total = 0
    for run in between(history, start, end):
        size = history.lives[run.segment_id].size if run.end_offset is None else run.end_offset
        assert size is not None, "what lies wholly before a cut is sealed"
        total += size - run.start_offset
    return total


def earlier_of(history: History, first: StreamCut, second: StreamCut) -> StreamCut:
    """The cut that lies, for every key, where the earlier of the two does. Raises InvalidCut."""
    return _of_both(history, first, second, min)


def later_of(history: History, first: StreamCut, second: StreamCut) -> StreamCut:
    """The cut that lies, for every key, where the later of the two does. Raises InvalidCut."""
    return _of_both(history, first, second, max)


def _of_both(
    history: History,
    first: StreamCut,
    second: StreamCut,
    choose: Callable[..., Piece],
) -> StreamCut:
    """Either cut passes a segment for all of its keys or for none, so the result does too.

    A piece that has only some of its segment's keys lies at the start of the segment, because
    the cut has yet to reach the segment for the others.
    """
    offsets: dict[SegmentId, int] = {}
    covered: dict[SegmentId, KeyRange] = {}
    for one, other in side_by_side(frontier(history, first), frontier(history, second)):
        found = choose(one, other, key=_place_of)
        segment = found.life.segment_id
        start, end = max(one.start, other.start), min(one.end, other.end)
        before = covered.get(segment)
        if before is not None and before.end == start:
            start = before.start
        covered[segment] = KeyRange(start, end)
        offsets[segment] = found.offset
    for segment, keys in covered.items():
        if keys != history.lives[segment].keys:
            assert offsets[segment] == 0, "a segment is begun for all of its keys"
            offsets[segment] = FUTURE_OFFSET
    return tuple(sorted(SegmentOffset(segment, at) for segment, at in offsets.items()))


def side_by_side(one: Frontier, other: Frontier) -> Iterator[tuple[Piece, Piece]]:
    """The pieces of both that share keys, from the first key to the last."""
    left, right = 0, 0
    while left < len(one.pieces) and right < len(other.pieces):
        first, second = one.pieces[left], other.pieces[right]
        yield first, second
        left += first.end <= second.end
        right += second.end <= first.end


def _pieces(lives: Sequence[SegmentLife], offsets: Mapping[SegmentId, int]) -> Iterator[Piece]:
    """The frontier's pieces; `lives`: the cut's segments, sorted by key. Raises InvalidCut.

    Between two bounds, the oldest of the segments with these keys is the cut's place.
    """
    bounds = sorted({0.0, 1.0, *(b for s in lives for b in (s.keys.start, s.keys.end))})
    coming = iter(lives)
    upcoming = next(coming, None)
    here: list[tuple[SegmentId, SegmentLife]] = []
    begun: SegmentLife | None = None
    for start, end in itertools.pairwise(bounds):
        while upcoming is not None and upcoming.keys.start == start:
            heapq.heappush(here, (upcoming.segment_id, upcoming))
            if offsets[upcoming.segment_id] != FUTURE_OFFSET:
                begun = upcoming
            upcoming = next(coming, None)
        while here and here[0][1].keys.end <= start:
            heapq.heappop(here)
        if not here:
            raise InvalidCut("a cut must cover all keys", start=start, end=end)
        first = here[0][1]
        if begun is not None and start < begun.keys.end and first != begun:
            raise InvalidCut(
                "a cut lies in a segment although it marks an earlier one as future",
                segment=begun.segment_id,
                future=first.segment_id,
            )
        yield Piece(start, end, first, max(0, offsets[first.segment_id]))


def _refuse_overlaps(begun: Sequence[SegmentLife]) -> None:
    for left, right in itertools.pairwise(begun):
        if right.keys.start < left.keys.end:
            raise InvalidCut(
                "two of a cut's segments have keys in common", segment=right.segment_id
            )


def _require_agreement(history: History, pieces: Sequence[Piece]) -> None:
    """Raises InvalidCut if a segment is read for some of its keys and not for others.

    Such a segment was created after the segment of one piece was sealed, and before that of another
    piece was created.
    """
    sealed = [p.life.sealed_epoch for p in pieces if p.life.sealed_epoch is not None]
    newest = max(piece.life.created_epoch for piece in pieces)
    for life in history.created_in(range(min(sealed, default=newest), newest)):
        over = [piece.life.created_epoch for piece in _over(pieces, life.keys)]
        if min(over) <= life.created_epoch < max(over):
            raise InvalidCut(
                "a cut lies before a segment for some of its keys and behind it for others",
                segment=life.segment_id,
            )


def _over(pieces: Sequence[Piece], keys: KeyRange) -> Iterator[Piece]:
    at = bisect.bisect_right(pieces, keys.start, key=_start_of) - 1
    while at < len(pieces) and pieces[at].start < keys.end:
        yield pieces[at]
        at += 1


def _refuse_reversed(begin: Frontier, stop: Frontier) -> None:
    for first, second in side_by_side(begin, stop):
        if second.place < first.place:
            raise InvalidCut("the first cut lies behind the second", segment=first.life.segment_id)


def _place_of(piece: Piece) -> tuple[int, int]:
    return piece.place


def _start_of(piece: Piece) -> float:
    return piece.start


def _start_of_life(life: SegmentLife) -> float:
    return life.keys.start
