"""What a retention policy gives up, against a model that looks at every byte by itself."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import RetentionPolicy, RetentionType, SegmentOffset, StreamCut
from anabranch.controller.domain.policies.retention import (
    Facts,
    Holder,
    Outlook,
    Plan,
    Rule,
    Subscriber,
    holders,
    may_release,
    outlook,
    plan,
)
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.retention_set import RecordedCut
from kit.stream_model import CELLS, Cut, StreamModel, as_cut, read_positions, streams
from kit.thorough import one_in

BY_TIME, BY_SIZE = RetentionType.TIME_MS, RetentionType.SIZE_BYTES
Bytes = set[tuple[SegmentId, int]]
S0, S1 = segment_id(0, 0), segment_id(0, 1)


# --- one by one, on a stream of two segments ----------------------------------------------------


def two_segments() -> History:
    stream = StreamModel()
    stream.epoch([], [range(4), range(4, 8)], lambda: 0)
    return History(stream.records)


def at(first: int, second: int) -> StreamCut:
    return (SegmentOffset(S0, first), SegmentOffset(S1, second))


TAIL = (
    RecordedCut(1_000, 20, at(10, 10)),
    RecordedCut(2_000, 40, at(20, 20)),
    RecordedCut(3_000, 60, at(30, 30)),
    RecordedCut(4_000, 80, at(40, 40)),
)
"""Twenty bytes a second."""


@dataclass(frozen=True)
class Case:
    """Now it is 4,000. `goes`: the cut and the rule, or the rule by which nothing does."""

    type: RetentionType
    minimum: int
    maximum: int | None
    subscribers: Sequence[StreamCut]
    rule: Rule
    cut: StreamCut = ()
    recorded: Sequence[RecordedCut] = field(default=TAIL)

    def plan(self, head: StreamCut) -> Plan:
        found = [Subscriber(f"demo/{n}", cut) for n, cut in enumerate(self.subscribers)]
        facts = Facts(two_segments(), head, self.recorded, found, 4_000)
        return plan(RetentionPolicy(self.type, self.minimum, self.maximum), facts)


CASES = {
    "nothing recorded": Case(BY_TIME, 1, None, (), Rule.WITHIN_MINIMUM, recorded=()),
    "all young": Case(BY_TIME, 3_001, None, (), Rule.WITHIN_MINIMUM),
    "just old enough": Case(BY_TIME, 3_000, None, (), Rule.MINIMUM, at(10, 10)),
    "the latest that is old enough": Case(BY_TIME, 1_500, None, (), Rule.MINIMUM, at(20, 20)),
    "all small": Case(BY_SIZE, 61, None, (), Rule.WITHIN_MINIMUM),
    "just large enough": Case(BY_SIZE, 60, None, (), Rule.MINIMUM, at(10, 10)),
    "the latest that is large enough": Case(BY_SIZE, 30, None, (), Rule.MINIMUM, at(20, 20)),
    "caught up, by time": Case(BY_TIME, 1_500, 2_500, [at(40, 40)], Rule.MINIMUM, at(20, 20)),
    "caught up, by size": Case(BY_SIZE, 30, 50, [at(40, 40)], Rule.MINIMUM, at(20, 20)),
    "behind, by time": Case(BY_TIME, 1_500, 3_500, [at(12, 15)], Rule.CONSUMPTION, at(12, 15)),
    "behind, by size": Case(BY_SIZE, 30, 70, [at(12, 15)], Rule.CONSUMPTION, at(12, 15)),
    "the last of two": Case(
        BY_TIME, 1_500, None, [at(40, 3), at(4, 40)], Rule.CONSUMPTION, at(4, 3)
    ),
    "held for ever": Case(BY_TIME, 1_500, None, [at(0, 0)], Rule.HELD),
    "held, by size": Case(BY_SIZE, 30, None, [at(0, 0)], Rule.HELD),
    "behind for one segment": Case(
        BY_TIME, 1_500, None, [at(40, 3)], Rule.CONSUMPTION, at(20, 3)
    ),
    "by size, the bound alone keeps the minimum": Case(
        BY_SIZE, 30, None, [at(40, 3)], Rule.CONSUMPTION, at(40, 3)
    ),
    "by size, the bound alone keeps too little": Case(
        BY_SIZE, 50, None, [at(40, 8)], Rule.CONSUMPTION, at(10, 8)
    ),
    "too old": Case(BY_TIME, 1_500, 2_500, [at(2, 2)], Rule.MAXIMUM, at(10, 10)),
    "too old, behind a silence": Case(
        BY_TIME, 500, 2_500, [at(2, 2)], Rule.MAXIMUM, at(10, 10), (TAIL[0], TAIL[3])
    ),
    "beyond the maximum for one segment": Case(
        BY_TIME, 1_000, 2_500, [at(25, 2)], Rule.MAXIMUM, at(25, 10)
    ),
    "beyond the maximum, by size": Case(BY_SIZE, 30, 50, [at(2, 2)], Rule.MAXIMUM, at(20, 20)),
    "at the maximum": Case(BY_TIME, 1_000, 3_000, [at(10, 10)], Rule.CONSUMPTION, at(10, 10)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_rule_has_its_cut(case: Case) -> None:
    found = case.plan(at(0, 0))

    assert (found.rule, found.cut) == (case.rule, case.cut)
    gone = sum(place.offset for place in case.cut)
    assert found.freed_bytes == gone
    assert found.kept_bytes == (80 - gone if case.recorded else 0)


def test_what_a_caller_truncated_is_not_counted_as_kept() -> None:
    """The head lies behind the recorded cuts for one segment: 40 bytes are left, not 60."""
    case = Case(BY_SIZE, 50, None, (), Rule.WITHIN_MINIMUM)

    assert case.plan(at(0, 40)).rule is Rule.WITHIN_MINIMUM
    assert case.plan(at(0, 20)).cut == at(10, 20)


def facts_of(head: StreamCut, *standing: StreamCut) -> Facts:
    found = [Subscriber(f"demo/{n}", cut) for n, cut in enumerate(standing)]
    return Facts(two_segments(), head, TAIL, found, 4_000)


def test_those_who_hold_something_are_named_with_what_they_hold() -> None:
    policy = RetentionPolicy(BY_TIME, 1_500)

    found = holders(policy, facts_of(at(0, 0), at(20, 3), at(40, 40), at(0, 0), at(20, 20)))

    assert found == [Holder("demo/2", 40), Holder("demo/0", 17)]


@pytest.mark.parametrize(
    ("policy", "head", "standing", "wanted"),
    [
        (RetentionPolicy(BY_TIME, 3_500), at(0, 0), (), Outlook(at_ms=4_500)),
        (RetentionPolicy(BY_TIME, 3_500), at(10, 10), (), Outlook(at_ms=5_500)),
        (RetentionPolicy(BY_TIME, 1_500, 6_000), at(0, 0), (at(0, 0),), Outlook(at_ms=7_000)),
        (RetentionPolicy(BY_TIME, 1_500), at(0, 0), (at(0, 0),), Outlook()),
        (RetentionPolicy(BY_TIME, 1_500), at(0, 0), (), Outlook()),
        (RetentionPolicy(BY_SIZE, 75), at(0, 0), (), Outlook(after_bytes=15)),
        (RetentionPolicy(BY_SIZE, 75), at(40, 40), (), Outlook(after_bytes=75)),
        (RetentionPolicy(BY_SIZE, 30, 90), at(0, 0), (at(0, 0),), Outlook(after_bytes=30)),
    ],
)
def test_what_goes_next_is_foreseen(
    policy: RetentionPolicy, head: StreamCut, standing: Sequence[StreamCut], wanted: Outlook
) -> None:
    facts = facts_of(head, *standing)

    assert outlook(policy, facts, plan(policy, facts)) == wanted


# --- properties, on streams that scale ----------------------------------------------------------


@dataclass(frozen=True)
class World:
    stream: StreamModel
    policy: RetentionPolicy
    facts: Facts
    head: Cut
    tails: Sequence[Cut]
    standing: Sequence[Cut]

    @property
    def planned(self) -> Plan:
        return plan(self.policy, self.facts)

    def begin(self) -> Cut:
        """Where the stream begins when the plan is done."""
        cut = self.planned.cut
        return {place.segment_id: place.offset for place in cut} if cut else self.head

    def gone(self) -> Bytes:
        return self.before(self.begin()) - self.before(self.head)

    def before(self, cut: Cut) -> Bytes:
        return self.stream.bytes_before(cut)

    def kept_by(self, recorded: RecordedCut) -> int:
        if self.policy.type is BY_TIME:
            return self.facts.now_ms - recorded.at_ms
        return self.facts.recorded[-1].size_bytes - recorded.size_bytes

    def kept_bytes(self, cut: Cut) -> int:
        return len(self.before(self.tails[-1]) - self.before(cut))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    stream = draw(streams(epochs_max=4))
    history = History(stream.records)

    def later(one: Cut, other: Cut) -> Cut:
        joined = cuts.later_of(history, as_cut(one), as_cut(other))
        return {place.segment_id: place.offset for place in joined}

    position = read_positions(stream)
    tails = list(itertools.accumulate(draw(st.lists(position, max_size=4)), later))
    times = sorted(draw(st.sets(st.integers(0, 30), min_size=len(tails), max_size=len(tails))))
    recorded = [
        RecordedCut(at_ms, len(stream.bytes_before(tail)), as_cut(tail))
        for at_ms, tail in zip(times, tails, strict=True)
    ]
    head, standing = draw(position), draw(st.lists(position, max_size=2))
    minimum = draw(st.integers(1, 20))
    maximum = draw(st.none() | st.integers(minimum, 30))
    policy = RetentionPolicy(draw(st.sampled_from(RetentionType)), minimum, maximum)
    facts = Facts(
        history,
        as_cut(head),
        recorded,
        [Subscriber(f"demo/{n}", as_cut(cut)) for n, cut in enumerate(standing)],
        now_ms=draw(st.integers(times[-1] if times else 0, 40)),
    )
    return World(stream, policy, facts, head, tails, standing)


many = settings(max_examples=60 // one_in(4))


@given(worlds())
@many
def test_where_the_stream_would_begin_is_a_cut_and_never_before_the_head(world: World) -> None:
    begin = world.begin()

    assert world.stream.is_valid(begin)
    for cell in range(CELLS):
        assert world.stream.place(begin, cell) >= world.stream.place(world.head, cell)


@given(worlds())
@many
def test_what_is_told_is_what_goes_and_what_is_kept(world: World) -> None:
    planned = world.planned

    assert planned.freed_bytes == len(world.gone())
    assert bool(planned.cut) == planned.rule.releases
    if world.tails:
        assert planned.kept_bytes == world.kept_bytes(world.begin())


@given(worlds())
@many
def test_nothing_goes_that_lies_within_the_minimum(world: World) -> None:
    gone = world.gone()
    if world.policy.type is BY_TIME:
        old = [tail for tail, c in zip(world.tails, world.facts.recorded, strict=True)
               if world.kept_by(c) >= world.policy.minimum]  # fmt: skip
        assert gone <= (world.before(old[-1]) if old else set())
    elif world.planned.cut:
        assert world.kept_bytes(world.begin()) >= world.policy.minimum


@given(worlds())
@many
def test_nothing_goes_that_a_subscriber_wants_and_the_maximum_does_not(world: World) -> None:
    if world.planned.rule is not Rule.MAXIMUM:
        for standing in world.standing:
            assert world.gone() <= world.before(standing)
    else:
        assert world.policy.maximum is not None
        if world.policy.type is BY_TIME:
            overdue = [tail for tail, c in zip(world.tails, world.facts.recorded, strict=True)
                       if world.kept_by(c) >= world.policy.maximum]  # fmt: skip
            for standing in world.standing:
                assert world.gone() <= world.before(standing) | world.before(overdue[-1])
        orders = [order_of(world.stream, world.begin(), one) for one in world.standing]
        assert any(order in ("after", "overlaps") for order in orders)


@given(worlds())
@many
def test_no_subscriber_holds_anything_beyond_the_maximum(world: World) -> None:
    recorded, most = world.facts.recorded, world.policy.maximum
    if most is None:
        return
    begin = world.begin()
    if world.policy.type is BY_TIME:
        overdue = [tail for tail, c in zip(world.tails, recorded, strict=True)
                   if world.kept_by(c) >= most]  # fmt: skip
        assert not overdue or world.before(overdue[-1]) <= world.before(begin)
    elif world.tails and (kept := world.kept_bytes(begin)) > most:
        # Then nothing recorded keeps the minimum and less than that.
        for tail in world.tails:
            left = world.before(world.tails[-1]) - world.before(tail) - world.before(world.head)
            assert len(left) < world.policy.minimum or len(left) >= kept


@given(worlds())
@many
def test_a_subscriber_that_has_caught_up_changes_nothing(world: World) -> None:
    if not world.tails:
        return
    caught_up = replace(
        world.facts, subscribers=[Subscriber("demo/0", world.facts.recorded[-1].cut)]
    )
    alone = replace(world.facts, subscribers=[])

    assert plan(world.policy, caught_up) == plan(world.policy, alone)


@given(worlds())
@many
def test_a_plan_that_was_done_leaves_nothing_to_do(world: World) -> None:
    done = replace(world.facts, head=world.planned.cut or world.facts.head)

    assert not plan(world.policy, done).cut


@given(worlds())
@many
def test_looking_at_the_numbers_alone_never_misses_anything(world: World) -> None:
    if world.planned.cut:
        recorded, now_ms = world.facts.recorded, world.facts.now_ms
        assert may_release(world.policy, recorded, now_ms, has_subscribers=bool(world.standing))


@given(worlds())
@many
def test_whoever_is_named_holds_what_would_go_without_him(world: World) -> None:
    alone = plan(replace(world.policy, maximum=None), replace(world.facts, subscribers=[]))
    found = {one.name: one.bytes for one in holders(world.policy, world.facts)}

    if world.planned.rule is Rule.HELD:
        assert found
    if world.policy.type is BY_TIME and alone.cut:
        goes = {place.segment_id: place.offset for place in alone.cut}
        wanted = world.before(goes) - world.before(world.head)
        for subscriber, standing in zip(world.facts.subscribers, world.standing, strict=True):
            assert found.get(subscriber.name, 0) == len(wanted - world.before(standing))


# --- Pravega's table, where it is one -----------------------------------------------------------


def pravega(world: World) -> Cut | None:
    """The table of its controller, word by word but for one line, for bounds that overlap no
    recorded cut."""
    recorded, policy = world.facts.recorded, world.policy
    most = policy.maximum if policy.maximum is not None else 1 << 60
    kept = [world.kept_by(c) for c in recorded]
    enough = [n for n, amount in enumerate(kept) if amount >= policy.minimum]
    within = [n for n in enough if kept[n] <= most]
    min_cut = world.tails[enough[-1]] if enough else None
    max_cut = world.tails[within[0]] if within else min_cut
    if not world.standing:
        return min_cut
    bound = dict(world.standing[0])
    order = [order_of(world.stream, bound, tail) for tail in world.tails]
    if policy.type is BY_SIZE:
        amount = len(world.before(world.tails[-1])) - len(world.before(bound))
        if amount < policy.minimum:
            return min_cut if enough and order[enough[-1]] == "after" else None
        if amount < most:
            return bound
        if max_cut is None:
            return bound
        left = len(world.before(world.tails[-1]) - world.before(max_cut))
        return max_cut if left < amount else bound
    if min_cut is None:
        return None
    if order[enough[-1]] == "after":
        return min_cut
    old = [n for n in enough if kept[n] >= most]
    if not old or order[old[-1]] in ("after", "equal"):
        return bound
    return world.tails[old[-1]]  # Pravega: the next later one


def order_of(stream: StreamModel, one: Cut, other: Cut) -> str:
    pairs = [(stream.place(one, cell), stream.place(other, cell)) for cell in range(CELLS)]
    is_before, is_after = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
    if is_before and is_after:
        return "overlaps"
    return "before" if is_before else "after" if is_after else "equal"


@given(worlds(), st.data())
@settings(max_examples=100 // one_in(4))
def test_bounds_that_overlap_nothing_are_treated_as_pravega_treats_them(
    world: World, data: st.DataObject
) -> None:
    start = {s.segment_id: 0 for s in world.stream.records[0].created}
    standing = [data.draw(st.sampled_from([start, *world.tails, *world.standing]))][
        : data.draw(st.integers(0, 1))
    ]
    world = replace(
        world, head=start, standing=standing,
        facts=replace(
            world.facts, head=as_cut(start),
            subscribers=[Subscriber("demo/0", as_cut(cut)) for cut in standing],
        ),
    )  # fmt: skip
    if not world.tails:
        return
    if any(order_of(world.stream, s, tail) == "overlaps" for s in standing for tail in world.tails):
        return

    wanted = pravega(world)

    begin = start if wanted is None else wanted
    assert order_of(world.stream, world.begin(), begin) == "equal"
