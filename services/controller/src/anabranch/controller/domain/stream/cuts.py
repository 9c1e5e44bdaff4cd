"""Stream cuts: whether they are some, how they lie to each other, what lies between. Pure.

A cut names segments that cover every key exactly once, each with an offset: for every key, what
lies before the cut is all of its earlier segments and the bytes below the offset. All offsets are
0 or more, except that a segment nothing of which was read yet may have `FUTURE_OFFSET`.
"""

import itertools
from collections.abc import Sequence

from anabranch.common.errors import CutRefused, InvalidCut
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import FUTURE_OFFSET, StreamCut
from anabranch.controller.domain.stream.history import History, SegmentLife, overlaps


def lives_in(history: History, cut: StreamCut) -> Sequence[SegmentLife]:
    """The cut's segments, sorted by key. Raises InvalidCut unless it is a cut of the stream."""
    found: list[SegmentLife] = []
    for segment, offset in ((place.segment_id, place.offset) for place in cut):
        life = history.lives.get(segment)
        if life is None:
            raise InvalidCut("the stream has no such segment", segment=segment)
        if offset < FUTURE_OFFSET or (life.size is not None and offset > life.size):
            raise InvalidCut("an offset is not within its segment", segment=segment, offset=offset)
        found.append(life)
    found.sort(key=lambda life: life.keys.start)
    if not found or found[0].keys.start != 0.0 or found[-1].keys.end != 1.0:
        raise InvalidCut("a cut must cover all keys")
    for left, right in itertools.pairwise(found):
        if left.keys.end != right.keys.start:
            raise InvalidCut(
                "a cut's segments must cover every key exactly once", segment=right.segment_id
            )
    return found


def truncated(history: History, head: StreamCut, cut: StreamCut) -> tuple[int, ...]:
    """The segments that a truncation from `head` to `cut` deletes, sorted by id.

    Raises InvalidCut, CutRefused (it lies, for some key, before the head).
    """
    found = lives_in(history, cut)
    offsets = {place.segment_id: place.offset for place in cut}
    heads = {place.segment_id: place.offset for place in head}
    for life in found:
        if offsets[life.segment_id] < max(0, heads.get(life.segment_id, 0)):
            raise CutRefused("the cut lies before the head", segment=life.segment_id)
    for start in lives_in(history, head):
        if any(_is_before(life, start) for life in found):
            raise CutRefused("the cut lies before the head", segment=start.segment_id)
    from_head = [history.lives[segment] for segment in heads]
    return tuple(
        sorted(
            life.segment_id
            for life in history.lives.values()
            if any(life == start or _is_before(start, life) for start in from_head)
            and any(_is_before(life, end) for end in found)
        )
    )


def from_head(history: History, head: StreamCut) -> tuple[SegmentId, ...]:
    """The segments that no truncation has deleted, sorted by id."""
    starts = lives_in(history, head)
    return tuple(
        sorted(
            life.segment_id
            for life in history.lives.values()
            if not any(_is_before(life, start) for start in starts)
        )
    )


def _is_before(one: SegmentLife, other: SegmentLife) -> bool:
    """Whether `one` held keys of `other` in epochs that ended before that one began."""
    ends = one.sealed_epoch
    return ends is not None and ends <= other.created_epoch and overlaps(one.keys, other.keys)


def names(cut: StreamCut) -> tuple[SegmentId, ...]:
    """The cut's segments."""
    return tuple(place.segment_id for place in cut)
