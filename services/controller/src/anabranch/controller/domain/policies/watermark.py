"""When the watermark of a stream advances, and up to where it says that writers agree. Pure.

                     later than the last watermark
    a writer's mark ────────────────────────────────▶ participates ──────────────┐
           │ not later                                                           ├──▶ active
           ├─ the writer is open, and idle for less than the time-out ───────────┘
           └─ the writer is closed, or idle for longer: its mark is dropped

The watermark advances if all active writers participate: its lower bound is the lowest of their
times, which is later than the last one. One idle writer therefore holds the watermark back until
it notes a later time, or the time-out drops it. The cut is the earliest one that covers the key
space exactly and lies behind no active writer's position and not before the last watermark's cut
(`upper_cut`).

Marks may be lost. A writer whose mark is gone although nobody closed the writer or dropped the mark
reveals a loss. A controller that is new to the stream cannot know. In both cases the watermark is
held for one time-out, in which every active writer notes a time again.
"""

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import FUTURE_OFFSET, SegmentOffset, StreamCut
from anabranch.common.model.watermark import MarkedSegment
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History, SegmentLife
from anabranch.controller.domain.writer_times import Mark

NEVER_MS = -1
"""The lower bound before the first watermark: every mark is later."""


class Held(StrEnum):
    """Why the watermark does not advance."""

    NO_WRITERS = "no_writers"
    """No writer has a mark."""
    IDLE_WRITER = "idle_writer"
    """An active writer has not noted a later time."""
    SETTLING = "settling"
    """Marks may have been lost."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What an owner remembers of a stream between two looks. Times are of its monotonic clock.

    `open_writers`: those that had a mark. `idle_since_s`: when each writer whose mark is not
    later than the last watermark was first seen to be idle. `hold_until_s`: the
    watermark is held until then.
    """

    open_writers: frozenset[str] = frozenset()
    idle_since_s: Mapping[str, float] = field(default_factory=dict)
    hold_until_s: float = float("-inf")

    def held_until(self, until_s: float) -> "Watch":
        """The same, and the watermark is held at least until then."""
        return replace(self, hold_until_s=max(self.hold_until_s, until_s))


class Bounds(NamedTuple):
    """The times of a watermark, in Unix ms."""

    lower_ms: int
    upper_ms: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows from the marks of a stream.

    bounds   the next watermark's times; None: it is held
    held     why it is held
    holder   the active writer that has been idle for longest, if one holds it
    active   the marks that count
    dropped  the marks that count no longer
    watch    what to remember
    again_s  when this changes without a note; None: never
    """

    bounds: Bounds | None
    held: Held | None
    holder: str
    active: Sequence[Mark]
    dropped: Sequence[Mark]
    watch: Watch
    again_s: float | None


class LastLook(NamedTuple):
    """What the owner of a stream's bucket found when it last looked, as of now. Times in seconds.

    `held`, `holder`: as in `Judgement`. `idle_s`: for how long the holder has been idle.
    `settles_s`: for how long the watermark is held because marks may have been lost.
    """

    held: Held | None
    holder: str = ""
    idle_s: float = 0.0
    settles_s: float = 0.0


def judge(
    marks: Sequence[Mark], watch: Watch, last_lower_ms: int, *, timeout_s: float, now_s: float
) -> Judgement:
    """Whether the watermark advances; `last_lower_ms`: the lower bound of the last one."""
    idle_since_s = {
        mark.writer_id: watch.idle_since_s.get(mark.writer_id, now_s)
        for mark in marks
        if not mark.is_closed and mark.timestamp_ms <= last_lower_ms
    }
    overdue = {w for w, since_s in idle_since_s.items() if now_s - since_s >= timeout_s}
    idle = {w: since_s for w, since_s in idle_since_s.items() if w not in overdue}
    active = [m for m in marks if m.timestamp_ms > last_lower_ms or m.writer_id in idle]
    counted = {mark.writer_id for mark in active}
    hold_until_s = watch.hold_until_s
    if watch.open_writers - {mark.writer_id for mark in marks}:
        hold_until_s = now_s + timeout_s
    held = _held(active, idle, now_s < hold_until_s)
    return Judgement(
        bounds=_bounds(active) if held is None else None,
        held=held,
        holder=min(idle, key=lambda w: (idle[w], w)) if held is Held.IDLE_WRITER else "",
        active=active,
        dropped=[mark for mark in marks if mark.writer_id not in counted],
        watch=Watch(
            frozenset(mark.writer_id for mark in active if not mark.is_closed),
            idle_since_s,
            hold_until_s,
        ),
        again_s=_again_s(idle, timeout_s, hold_until_s if now_s < hold_until_s else None),
    )


def advanced(judged: Judgement, *, timeout_s: float, now_s: float) -> Judgement:
    """The same once the watermark is stored: writers whose time it has reached begin to be idle."""
    assert judged.bounds is not None, "the watermark advanced"
    idle = {
        mark.writer_id: now_s
        for mark in judged.active
        if not mark.is_closed and mark.timestamp_ms <= judged.bounds.lower_ms
    }
    spent = any(m.is_closed and m.timestamp_ms <= judged.bounds.lower_ms for m in judged.active)
    return replace(
        judged,
        watch=replace(judged.watch, idle_since_s=idle),
        again_s=now_s if spent else _again_s(idle, timeout_s, None),
    )


def _held(active: Sequence[Mark], idle: Mapping[str, float], is_settling: bool) -> Held | None:
    if not active:
        return Held.NO_WRITERS
    if idle:
        return Held.IDLE_WRITER
    return Held.SETTLING if is_settling else None


def _bounds(active: Sequence[Mark]) -> Bounds:
    times = [mark.timestamp_ms for mark in active]
    return Bounds(min(times), max(times))


def _again_s(
    idle: Mapping[str, float], timeout_s: float, hold_until_s: float | None
) -> float | None:
    due_s = [since_s + timeout_s for since_s in idle.values()]
    if hold_until_s is not None:
        due_s.append(hold_until_s)
    return min(due_s, default=None)


# --- the cut --------------------------------------------------------------------------------------


Places = Iterable[SegmentOffset | MarkedSegment]
"""Segments with offsets."""


def upper_cut(
    history: History,
    base: Places,
    positions: Iterable[StreamCut],
) -> tuple[MarkedSegment, ...]:
    """The earliest cut of whole segments that lies, for every key, at or behind all of these.

    `base` covers all keys: the last watermark's cut, or the stream's head. A segment that the
    history does not have is left out; the others' offsets end with their segments.
    """
    furthest: dict[SegmentId, int] = {}
    for at in itertools.chain(base, *positions):
        life = history.lives.get(at.segment_id)
        if life is not None:
            offset = max(0, at.offset if life.size is None else min(at.offset, life.size))
            furthest[at.segment_id] = max(offset, furthest.get(at.segment_id, 0))
    cover = _Cover(history)
    for segment in sorted(furthest, reverse=True):  # the latest first: few are replaced
        cover.reach(history.lives[segment], furthest[segment])
    return cover.marked()


def are_known(history: History, *places: Places) -> bool:
    """Whether the history has the segments of all these places."""
    return all(at.segment_id in history.lives for at in itertools.chain(*places))


def is_before(history: History, cut: Sequence[MarkedSegment], head: StreamCut) -> bool:
    """Whether all of the cut lies at or before the head. Raises InvalidCut."""
    begin = cuts.frontier(history, head)
    begun = {at.segment_id: at.offset for at in head}

    def is_reached(at: MarkedSegment) -> bool:
        life = history.lives.get(at.segment_id)
        if life is None:
            return False
        return begun.get(at.segment_id, FUTURE_OFFSET) >= at.offset or begin.is_past(life)

    return all(is_reached(at) for at in cut)


class _Cover:
    """Disjoint segments, sorted by key, with an offset each. The place of a key only goes forward.

    A segment is in it for all of its keys or for none. One that is passed for some of its keys is
    passed for all: its successors are reached, or passed in their turn.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._lives: list[SegmentLife] = []
        self._offsets: dict[SegmentId, int] = {}
        self._passed: set[SegmentId] = set()

    def reach(self, life: SegmentLife, offset: int) -> None:
        """Lie at or behind this place for all keys of the segment."""
        waiting = [(life, offset)]
        while waiting:
            one, at = waiting.pop()
            if one.segment_id in self._passed:
                continue
            if one.segment_id in self._offsets:
                self._offsets[one.segment_id] = max(at, self._offsets[one.segment_id])
                continue
            first, last = self._over(one.keys)
            passed = self._lives[first:last]
            if any(other.created_epoch > one.created_epoch for other in passed):
                passed = [one]
            else:
                self._lives[first:last] = [one]
                self._offsets[one.segment_id] = at
            for before in passed:
                self._offsets.pop(before.segment_id, None)
                self._passed.add(before.segment_id)
                waiting += [(after, 0) for after in self._history.successors(before.segment_id)]

    def marked(self) -> tuple[MarkedSegment, ...]:
        """The segments, sorted by id."""
        return tuple(
            sorted(
                MarkedSegment(one.segment_id, one.keys, self._offsets[one.segment_id])
                for one in self._lives
            )
        )

    def _over(self, keys: KeyRange) -> tuple[int, int]:
        """The slice of the segments that share keys with the range."""
        first = bisect.bisect_right(self._lives, keys.start, key=_end_of)
        return first, bisect.bisect_left(self._lives, keys.end, key=_start_of)


def _start_of(life: SegmentLife) -> float:
    return life.keys.start


def _end_of(life: SegmentLife) -> float:
    return life.keys.end
