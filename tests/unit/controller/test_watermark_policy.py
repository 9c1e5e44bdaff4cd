"""Watermarks advance as far as all active writers agree, and their cuts cover the key space."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.common.model.watermark import MarkedSegment
from anabranch.controller.domain.policies.watermark import (
    NEVER_MS,
    Bounds,
    Held,
    Judgement,
    Watch,
    advanced,
    are_known,
    is_before,
    judge,
    upper_cut,
)
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.writer_times import Mark
from kit.stream_model import (
    CELLS,
    Cut,
    StreamModel,
    any_offsets,
    as_cut,
    keys_of,
    read_positions,
    streams,
)
from kit.thorough import one_in

A, B = segment_id(0, 0), segment_id(0, 1)
C = segment_id(1, 2)
D, E = segment_id(2, 3), segment_id(2, 4)
TIMEOUT_S = 10.0


def at(**offsets: int) -> StreamCut:
    by_name = {"a": A, "b": B, "c": C, "d": D, "e": E}
    return tuple(sorted(SegmentOffset(by_name[name], where) for name, where in offsets.items()))


def merged_then_split() -> History:
    """A and B, of 10 bytes each, merged into C, split into D and E, which have no end."""
    stream = StreamModel()
    stream.epoch([], [range(4), range(4, 8)], lambda: 10)
    stream.epoch([A, B], [range(8)], lambda: 10)
    stream.epoch([C], [range(4), range(4, 8)], lambda: 10)
    return History(stream.records)


def places(cut: tuple[MarkedSegment, ...]) -> dict[SegmentId, int]:
    return {marked.segment_id: marked.offset for marked in cut}


# --- when it advances ---------------------------------------------------------------------------


def mark(writer: str, timestamp_ms: int, *, is_closed: bool = False) -> Mark:
    return Mark(writer, timestamp_ms, (), 0, is_closed)


def judged(
    *marks: Mark, last_ms: int = NEVER_MS, watch: Watch | None = None, now_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
) -> Judgement:  # fmt: skip
    return judge(marks, watch or Watch(), last_ms, timeout_s=timeout_s, now_s=now_s)


def test_the_lowest_and_the_highest_time_of_all_writers_are_its_bounds() -> None:
    assert judged(mark("a", 7), mark("b", 5), mark("c", 9)).bounds == Bounds(5, 9)


def test_without_marks_nothing_happens() -> None:
    found = judged()

    assert (found.bounds, found.held, found.again_s) == (None, Held.NO_WRITERS, None)


def test_an_idle_writer_holds_it_back_until_its_time_is_over() -> None:
    marks = mark("a", 5), mark("b", 8)
    early = judged(*marks, last_ms=5, now_s=100.0)
    assert (early.bounds, early.held, early.holder) == (None, Held.IDLE_WRITER, "a")
    assert early.again_s == 110.0

    later = judged(*marks, last_ms=5, watch=early.watch, now_s=109.9)
    assert (later.held, later.again_s) == (Held.IDLE_WRITER, 110.0)

    last = judged(*marks, last_ms=5, watch=later.watch, now_s=110.0)
    assert last.bounds == Bounds(8, 8)
    assert last.dropped == [mark("a", 5)]


def test_of_several_idle_writers_the_one_that_is_idle_for_longest_is_named() -> None:
    watch = Watch(idle_since_s={"b": 91.0, "c": 90.0})

    found = judged(mark("a", 9), mark("b", 5), mark("c", 4), last_ms=5, watch=watch, now_s=95.0)

    assert found.holder == "c"


def test_a_writer_that_goes_on_is_not_idle_any_more() -> None:
    watch = Watch(idle_since_s={"a": 0.0})

    found = judged(mark("a", 6), last_ms=5, watch=watch, now_s=9.0)

    assert (found.bounds, found.watch.idle_since_s) == (Bounds(6, 6), {})


def test_without_a_time_out_an_idle_writer_is_dropped_at_once() -> None:
    found = judged(mark("a", 5), mark("b", 6), last_ms=5, timeout_s=0.0, now_s=3.0)

    assert found.bounds == Bounds(6, 6)
    assert found.dropped == [mark("a", 5)]


def test_the_last_mark_of_a_closed_writer_counts_until_the_watermark_has_reached_it() -> None:
    closed = mark("a", 8, is_closed=True)
    assert judged(closed, mark("b", 9), last_ms=7).bounds == Bounds(8, 9)

    found = judged(closed, mark("b", 9), last_ms=8)

    assert found.bounds == Bounds(9, 9)
    assert found.dropped == [closed]


def test_writers_are_idle_from_when_the_watermark_has_reached_them() -> None:
    found = judged(mark("a", 5), mark("b", 8), now_s=20.0)

    after = advanced(found, timeout_s=TIMEOUT_S, now_s=21.0)

    assert after.watch.idle_since_s == {"a": 21.0}
    assert after.again_s == 31.0


def test_a_closed_writer_that_is_reached_is_dropped_at_the_next_look() -> None:
    found = judged(mark("a", 5, is_closed=True), mark("b", 8), now_s=20.0)

    assert advanced(found, timeout_s=TIMEOUT_S, now_s=21.0).again_s == 21.0


def test_a_mark_that_is_gone_without_a_reason_holds_it_for_a_time_out() -> None:
    before = judged(mark("a", 5), mark("b", 6), now_s=20.0)

    lost = judged(mark("a", 7), last_ms=5, watch=before.watch, now_s=30.0)
    assert (lost.bounds, lost.held, lost.again_s) == (None, Held.SETTLING, 40.0)
    still = judged(mark("a", 9), last_ms=5, watch=lost.watch, now_s=39.9)
    assert still.held is Held.SETTLING

    assert judged(mark("a", 9), last_ms=5, watch=still.watch, now_s=40.0).bounds == Bounds(9, 9)


def test_when_all_marks_are_gone_it_looks_again_after_the_time_out() -> None:
    before = judged(mark("a", 5), now_s=20.0)

    lost = judged(last_ms=5, watch=before.watch, now_s=30.0)

    assert (lost.held, lost.again_s) == (Held.NO_WRITERS, 40.0)


def test_closed_and_dropped_marks_may_be_gone() -> None:
    marks = mark("a", 5, is_closed=True), mark("b", 5), mark("c", 9)
    found = judged(*marks, last_ms=5, watch=Watch(frozenset("abc"), {"b": 0.0}), now_s=20.0)
    assert found.dropped == [marks[0], marks[1]]

    assert judged(mark("c", 10), last_ms=9, watch=found.watch, now_s=21.0).held is None


def test_a_new_owner_may_hold_it_back() -> None:
    watch = Watch().held_until(30.0)

    assert judged(mark("a", 5), watch=watch, now_s=29.0).held is Held.SETTLING
    assert judged(mark("a", 5), watch=watch.held_until(2.0), now_s=30.0).held is None


# --- the cut ------------------------------------------------------------------------------------


def test_the_cut_is_as_far_as_the_furthest_writer_in_each_segment() -> None:
    found = upper_cut(merged_then_split(), at(a=0, b=2), (at(a=5), at(a=3, b=1)))

    assert places(found) == {A: 5, B: 2}


def test_a_segment_gives_way_to_a_successor_that_a_writer_has_reached() -> None:
    found = upper_cut(merged_then_split(), at(a=0, b=0), (at(a=5), at(c=4)))

    assert places(found) == {C: 4}


def test_beside_a_successor_the_other_keys_begin_at_its_siblings() -> None:
    found = upper_cut(merged_then_split(), at(a=0, b=0), (at(a=5), at(d=4)))

    assert places(found) == {D: 4, E: 0}


def test_a_segment_that_gives_way_in_part_gives_way_to_all_its_successors() -> None:
    stream = StreamModel()
    stream.epoch([], [range(4), range(4, 8)], lambda: 10)
    stream.epoch([A, B], [range(6), range(6, 8)], lambda: 10)
    stream.epoch([segment_id(1, 2)], [range(2), range(2, 6)], lambda: 10)
    furthest = (SegmentOffset(segment_id(2, 4), 7),)

    found = upper_cut(History(stream.records), at(a=3, b=5), (furthest,))

    assert places(found) == {segment_id(1, 3): 0, segment_id(2, 4): 7, segment_id(2, 5): 0}


def test_a_segment_that_is_replaced_was_passed_with_its_successors() -> None:
    """The half of A that is merged with B is replaced by a segment that has no keys of B."""
    stream = StreamModel()
    stream.epoch([], [range(6), range(6, 8)], lambda: 10)
    stream.epoch([A], [range(3), range(3, 6)], lambda: 10)
    stream.epoch([B, segment_id(1, 3)], [range(3, 8)], lambda: 10)
    stream.epoch([C, segment_id(2, 4)], [range(2), range(2, 6), range(6, 8)], lambda: 10)
    first, second, third = (segment_id(3, number) for number in (5, 6, 7))

    found = upper_cut(History(stream.records), at(a=3, b=5), ((SegmentOffset(first, 7),),))

    assert places(found) == {first: 7, second: 0, third: 0}


def test_a_position_behind_the_end_of_its_segment_means_the_end() -> None:
    found = upper_cut(merged_then_split(), at(a=0, b=0), (at(a=999), at(b=-1)))

    assert places(found) == {A: 10, B: 0}


def test_a_position_in_no_segment_of_the_stream_means_nothing() -> None:
    wrong = (SegmentOffset(segment_id(9, 9), 4),)
    history = merged_then_split()

    assert not are_known(history, at(a=1), wrong)
    assert are_known(history, at(a=1))
    assert places(upper_cut(history, at(a=1, b=2), (wrong,))) == {A: 1, B: 2}


def model_cut(stream: StreamModel, candidates: list[Cut]) -> dict[SegmentId, int]:
    """Cell by cell: as far as any candidate, and further until each segment is wholly passed,
    wholly reached, or not begun."""
    chains = [stream.chain(cell) for cell in range(CELLS)]
    place = [(-1, 0)] * CELLS
    for candidate in candidates:
        for segment, offset in candidate.items():
            end = stream.sizes[segment] if segment in stream.sealed else offset
            for cell in stream.cells.get(segment, ()):
                reached = chains[cell].index(segment), max(0, min(offset, end))
                place[cell] = max(place[cell], reached)
    is_stable = False
    while not is_stable:
        is_stable = True
        for cell, (index, offset) in enumerate(place):
            for passed in chains[cell][:index]:
                for other in stream.cells[passed]:
                    if chains[other][place[other][0]] <= passed:  # it is passed there, too
                        place[other] = chains[other].index(passed) + 1, 0
                        is_stable = False
            segment = chains[cell][index]
            for other in stream.cells[segment]:
                if chains[other][place[other][0]] < segment:  # it is reached there, too
                    place[other], is_stable = (chains[other].index(segment), offset), False
    return {chains[cell][index]: offset for cell, (index, offset) in enumerate(place)}


@given(st.data())
@settings(max_examples=200 // one_in(4))
def test_the_cut_is_the_one_that_a_model_finds_cell_by_cell(data: st.DataObject) -> None:
    stream = data.draw(streams())
    base = data.draw(read_positions(stream))
    positions = data.draw(st.lists(any_offsets(stream), max_size=3))
    history = History(stream.records)

    found = upper_cut(history, as_cut(base), [as_cut(one) for one in positions])

    assert places(found) == model_cut(stream, [base, *positions])
    ranges = sorted(marked.key_range for marked in found)
    assert (ranges[0].start, ranges[-1].end) == (0.0, 1.0)
    assert all(one.end == other.start for one, other in itertools.pairwise(ranges))
    assert all(m.key_range == keys_of(stream.cells[m.segment_id]) for m in found)
    again = upper_cut(history, found, [as_cut(one) for one in positions])
    assert again == found
    cut = tuple(SegmentOffset(m.segment_id, m.offset) for m in found)
    assert cuts.compare(history, as_cut(base), cut) in ("before", "equal")


@given(st.data())
def test_a_cut_is_before_the_head_if_its_bytes_are(data: st.DataObject) -> None:
    stream = data.draw(streams())
    history = History(stream.records)
    cut = upper_cut(history, as_cut(data.draw(read_positions(stream))), ())
    head = data.draw(read_positions(stream))

    if is_before(history, cut, as_cut(head)):
        assert stream.bytes_before(places(cut)) <= stream.bytes_before(head)
    newest = {segment: stream.sizes[segment] for segment in stream.present}
    assert is_before(history, cut, as_cut(newest))


# --- the promise --------------------------------------------------------------------------------


@dataclass
class Writer:
    """It writes with ascending times and notes what it has written, and up to which time."""

    now_ms: int = 0
    events: list[tuple[SegmentId, int, int]] = field(default_factory=list)
    positions: dict[SegmentId, int] = field(default_factory=dict)
    noted_ms: int = -1
    noted_s: float = float("-inf")
    is_open: bool = False


@st.composite
def in_order(draw: st.DrawFn, stream: StreamModel) -> list[tuple[SegmentId, int]]:
    """All bytes, each after those of the segments before its own."""
    left = dict.fromkeys(sorted(stream.cells), 0)
    order = []
    while left:
        free = [
            s for s in left
            if not any(other in left for cell in stream.cells[s] for other in stream.chain(cell)
                       if other < s)
        ]  # fmt: skip
        segment = draw(st.sampled_from(free))
        if left[segment] >= stream.sizes[segment]:
            del left[segment]
            continue
        order.append((segment, left[segment]))
        left[segment] += 1
    return order


class Run:
    """Writers of a stream, their marks, and an owner that looks at them now and then."""

    def __init__(self, stream: StreamModel, timeout_s: float) -> None:
        self.stream = stream
        self.history = History(stream.records)
        self.timeout_s = timeout_s
        self.writers = {name: Writer() for name in "abc"}
        self.marks: dict[str, Mark] = {}
        self.is_lost = False
        self.now_s = 0.0
        self.watch = Watch()
        self.last_ms = NEVER_MS
        self.cut = upper_cut(self.history, first_cut(stream), ())
        self.stated: list[tuple[int, dict[SegmentId, int], list[Writer]]] = []
        """Each watermark, with the writers that are active by all means."""

    def write(self, name: str, segment: SegmentId, offset: int, later_ms: int) -> None:
        writer = self.writers[name]
        writer.now_ms += later_ms
        writer.events.append((segment, offset, writer.now_ms))
        writer.positions[segment] = offset + 1

    def do(self, deed: str, name: str) -> None:
        writer = self.writers[name]
        match deed:
            case "note":
                self.marks[name] = Mark(name, writer.now_ms, as_cut(writer.positions), 0)
                if writer.now_ms > writer.noted_ms:
                    writer.noted_ms, writer.noted_s = writer.now_ms, self.now_s
                writer.is_open = True
            case "close" if name in self.marks:
                self.marks[name] = self.marks[name]._replace(is_closed=True)
                writer.is_open = False
            case "lose":
                self.marks.clear()
                self.is_lost = True
            case "evict" if name in self.watch.open_writers:
                self.marks.pop(name, None)
            case "own":
                self.watch = Watch().held_until(self.now_s + self.timeout_s)
            case "wait":
                self.now_s += 2
            case "look":
                self.look()
            case _:
                pass

    def look(self) -> None:
        if self.is_lost:
            self.watch = self.watch.held_until(self.now_s + self.timeout_s)
            self.is_lost = False
        found = judge(
            list(self.marks.values()), self.watch, self.last_ms,
            timeout_s=self.timeout_s, now_s=self.now_s,
        )  # fmt: skip
        self.watch = found.watch
        if found.bounds is not None:
            self.advance(found, found.bounds.lower_ms)
        for one in found.dropped:
            del self.marks[one.writer_id]

    def advance(self, found: Judgement, lower_ms: int) -> None:
        assert lower_ms > self.last_ms
        before, place = places(self.cut), self.stream.place
        self.cut = upper_cut(self.history, self.cut, [one.positions for one in found.active])
        after = places(self.cut)
        assert all(place(before, cell) <= place(after, cell) for cell in range(CELLS))
        self.last_ms = lower_ms
        self.watch = advanced(found, timeout_s=self.timeout_s, now_s=self.now_s).watch
        active = [
            one
            for one in self.writers.values()
            if one.is_open and self.now_s - one.noted_s < self.timeout_s
        ]
        self.stated.append((lower_ms, after, active))


DEEDS = ["note"] * 4 + ["look"] * 3 + ["wait", "close", "lose", "evict", "own"]


@given(st.data())
@settings(max_examples=150 // one_in(4))
def test_no_watermark_is_ahead_of_an_event_of_an_active_writer(data: st.DataObject) -> None:
    stream = data.draw(streams(4))
    run = Run(stream, float(data.draw(st.sampled_from((0, 3, 9)))))

    for segment, offset in data.draw(in_order(stream)):
        name = data.draw(st.sampled_from("abc"))
        run.write(name, segment, offset, data.draw(st.integers(0, 3)))
        for deed in data.draw(st.lists(st.sampled_from(DEEDS), max_size=5)):
            run.do(deed, name)

    for lower_ms, cut, active in run.stated:
        before = stream.bytes_before(cut)
        for writer in active:
            for segment, offset, timestamp_ms in writer.events:
                assert (segment, offset) in before or timestamp_ms >= lower_ms


def first_cut(stream: StreamModel) -> StreamCut:
    return as_cut({stream.chain(cell)[0]: 0 for cell in range(CELLS)})
