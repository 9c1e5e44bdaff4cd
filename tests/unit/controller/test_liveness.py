"""Who counts as alive: property tests over a small world of processes, outages and pauses."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.eventsourcing.beats import BEAT_S
from anabranch.controller.domain.cluster.liveness import (
    Hold,
    Kind,
    Liveness,
    Member,
    Moment,
    Sighting,
    Timing,
    Verdict,
)
from anabranch.controller.settings import Settings
from anabranch.controller.wiring.cluster import UNSEEN_S_MAX, membership_health
from kit.thorough import one_in

TIMING = Timing()
TICK_S = 0.25
ME = Member(Kind.CONTROLLER, "me")
NOTICED_S_MAX = 3.5


def store(number: int) -> Member:
    return Member(Kind.STORE, f"store-{number}")


@dataclass
class Process:
    """Beats every 0.75 s, out of step with the others, while it is alive and NATS is there."""

    member: Member
    next_beat_s: float
    killed_s: float | None = None
    revision: int = 0
    lease_s: float = 0.0


@dataclass
class Cluster:
    """Processes, their records, and one observer. Time goes in ticks; nothing sleeps."""

    processes: Sequence[Process]
    outages: Sequence[tuple[float, float]] = ()
    pauses: Sequence[tuple[float, float]] = ()
    """In which the observer's process stands still."""
    now_s: float = 100.0
    dead_at: dict[Member, float] = field(default_factory=dict)
    sequence: int = 0
    timing: Timing = TIMING

    def __post_init__(self) -> None:
        self.observer = Liveness(ME, "mine", self.timing, self.moment())
        self.unseen: list[tuple[Member, Sighting]] = []

    def moment(self) -> Moment:
        return Moment(self.now_s, int(self.now_s * 1000))

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += TICK_S
            self._beat()
            if self._within(self.pauses):
                continue
            if not self._within(self.outages):
                for member, seen in self.unseen:
                    self.observer.saw(member, seen, self.moment())
                self.unseen.clear()
                self._compare()
            for member, verdict, _ in self.observer.conclude(self.moment()):
                assert verdict is Verdict.DEAD
                self.dead_at.setdefault(member, self.now_s)

    def _beat(self) -> None:
        for process in self.processes:
            if process.killed_s is not None and self.now_s >= process.killed_s:
                continue
            mine_stands = process.member == ME and self._within(self.pauses)
            if self.now_s >= process.next_beat_s and not self._within(self.outages):
                if mine_stands:
                    continue
                self.sequence += 1
                process.revision = self.sequence
                process.next_beat_s = self.now_s + TIMING.beat_s
                session = "mine" if process.member == ME else "theirs"
                seen = Sighting(self.sequence, session, lease_s=process.lease_s)
                self.unseen.append((process.member, seen))

    def _compare(self) -> None:
        for member in self.observer.suspects(self.moment()):
            (process,) = (one for one in self.processes if one.member == member)
            self.observer.compared(member, process.revision, self.moment())

    def _within(self, spans: Sequence[tuple[float, float]]) -> bool:
        return any(begin <= self.now_s - 100.0 < end for begin, end in spans)

    def verdict(self, member: Member) -> Verdict:
        return self.observer.standings[member].verdict

    def hold(self) -> Hold | None:
        return self.observer.hold(self.moment())


Spans = Sequence[tuple[float, float]]


def cluster(
    stores: int, outages: Spans = (), pauses: Spans = (), timing: Timing = TIMING
) -> Cluster:
    members = [ME, *(store(number) for number in range(stores))]
    processes = [
        Process(member, 100.0 + TIMING.beat_s * index / len(members))
        for index, member in enumerate(members)
    ]
    return Cluster(processes, outages, pauses, timing=timing)


def kill(found: Cluster, *members: Member) -> None:
    for process in found.processes:
        if process.member in members:
            process.killed_s = found.now_s


SPANS = st.lists(
    st.tuples(st.floats(0, 40), st.floats(0.1, 15)).map(lambda span: (span[0], span[0] + span[1])),
    max_size=3,
)


@settings(max_examples=60 // one_in(4))
@given(stores=st.integers(1, 5), outages=SPANS, pauses=SPANS)
def test_nobody_who_lives_is_ever_taken_for_dead(
    stores: int, outages: list[tuple[float, float]], pauses: list[tuple[float, float]]
) -> None:
    found = cluster(stores, outages=outages, pauses=pauses)
    found.run(70)
    assert not found.dead_at
    assert found.hold() is None
    assert all(found.verdict(p.member) is Verdict.LIVE for p in found.processes)


@settings(max_examples=40 // one_in(4))
@given(stores=st.integers(3, 6), at=st.floats(3, 20), victim=st.integers(0, 2))
def test_a_failure_is_noticed_within_three_seconds_and_a_half(
    stores: int, at: float, victim: int
) -> None:
    found = cluster(stores)
    found.run(at)
    kill(found, store(victim))
    killed_s = found.now_s
    found.run(NOTICED_S_MAX)
    assert set(found.dead_at) == {store(victim)}
    assert found.dead_at[store(victim)] - killed_s <= NOTICED_S_MAX
    assert found.hold() is None


def test_a_failure_during_an_outage_is_noticed_a_full_period_after_it() -> None:
    found = cluster(3, outages=[(4.0, 30.0)])
    found.run(5)
    kill(found, store(1))
    found.run(25)
    back_s = found.now_s
    assert not found.dead_at
    found.run(NOTICED_S_MAX + TIMING.beat_s)
    assert set(found.dead_at) == {store(1)}
    assert found.dead_at[store(1)] - back_s >= TIMING.silent_s_max - TICK_S


def test_a_blind_observer_says_so() -> None:
    found = cluster(2, outages=[(4.0, 30.0)])
    found.run(4)
    assert found.hold() is None
    found.run(3)
    hold = found.hold()
    assert hold is not None
    assert hold.blind


@settings(max_examples=60 // one_in(4))
@given(stores=st.integers(2, 7), data=st.data())
def test_most_of_a_kind_going_at_once_is_held_until_it_is_confirmed(
    stores: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(max(2, stores // 2 + 1), stores))
    found = cluster(stores)
    found.run(data.draw(st.floats(3, 6)))
    victims = {store(number) for number in range(count)}
    kill(found, *victims)
    found.run(60)

    assert not found.dead_at, "not even the first one"
    hold = found.hold()
    assert hold is not None
    assert not hold.blind
    assert hold.missing == victims

    assert set(found.observer.confirm([*victims, store(99)])) == victims
    found.run(TICK_S)
    assert set(found.dead_at) == victims
    assert found.hold() is None


def test_a_hold_ends_when_enough_are_back_and_the_rest_is_dead_then() -> None:
    found = cluster(3)
    found.run(5)
    kill(found, store(0), store(1))
    found.run(20)
    assert found.hold() is not None
    found.processes[1].killed_s = None  # store 0
    found.run(3)
    assert found.hold() is None
    assert set(found.dead_at) == {store(1)}


def test_one_after_the_other_within_a_period_is_held_until_they_are_back() -> None:
    found = cluster(3)
    found.run(5)
    kill(found, store(0))
    found.run(2)
    kill(found, store(1))
    for _ in range(10):
        found.run(NOTICED_S_MAX + 1)
        hold = found.hold()
        assert hold is not None, "a hold does not end by waiting"
        assert store(1) in hold.missing
        assert set(found.dead_at) <= {store(0)}


def test_half_of_them_is_not_too_many() -> None:
    found = cluster(4)
    found.run(5)
    kill(found, store(0), store(1))
    found.run(6)
    assert set(found.dead_at) == {store(0), store(1)}


def test_a_dead_one_that_comes_back_is_alive_in_a_new_session() -> None:
    found = cluster(3)
    found.run(5)
    kill(found, store(0))
    found.run(6)
    since_ms = found.observer.standings[store(0)].since_ms
    found.observer.saw(store(0), Sighting(10_000, "another"), found.moment())
    standing = found.observer.standings[store(0)]
    assert (standing.verdict, standing.seen.session) == (Verdict.LIVE, "another")
    assert standing.since_ms > since_ms


def test_a_record_that_says_stopped_is_dead_at_once_and_no_loss() -> None:
    found = cluster(3)
    found.run(5)
    for number in range(2):
        kill(found, store(number))
        seen = Sighting(1000 + number, "theirs", stopped=True)
        found.observer.saw(store(number), seen, found.moment())
        assert found.verdict(store(number)) is Verdict.DEAD
    found.run(30)
    assert found.hold() is None
    assert not found.dead_at, "it was no news"


def test_a_watch_that_lags_behind_makes_nobody_dead() -> None:
    found = cluster(1)
    found.run(5)
    observer, lagging = found.observer, store(0)
    for _ in range(40):  # its own beats come, the store's do not, and a read shows newer ones
        found.now_s += TICK_S
        found.sequence += 1
        observer.saw(ME, Sighting(found.sequence, "mine"), found.moment())
        for suspect in observer.suspects(found.moment()):
            observer.compared(suspect, found.sequence, found.moment())
        assert observer.conclude(found.moment()) == []
    assert observer.standings[lagging].verdict is Verdict.LIVE


def test_nobody_is_dead_before_the_record_was_read() -> None:
    found = cluster(1)
    found.run(5)
    kill(found, store(0))
    observer = found.observer
    for _ in range(40):
        found.now_s += TICK_S
        found.sequence += 1
        observer.saw(ME, Sighting(found.sequence, "mine"), found.moment())
        assert observer.conclude(found.moment()) == [], "the read failed"
    assert observer.suspects(found.moment()) == [store(0)]


@pytest.mark.parametrize(
    ("now_s", "ready"),
    [(2.0, True), (3.0, True), (UNSEEN_S_MAX, True), (UNSEEN_S_MAX + 0.1, False)],
)
def test_a_controller_whose_beats_are_not_stored_for_long_is_not_ready(
    now_s: float, *, ready: bool
) -> None:
    observer = Liveness(ME, "mine", TIMING, Moment(0, 0))
    observer.saw(ME, Sighting(1, "mine"), Moment(0, 0))
    now = Moment(now_s, int(now_s * 1000))

    health = membership_health(observer.hold(now), observer.unseen_s(now))

    assert health.ready == ready
    assert bool(health.reason) == observer.blind(now)


def test_a_controller_that_never_beat_is_not_called_silent() -> None:
    assert Liveness(ME, "mine", TIMING, Moment(0, 0)).unseen_s(Moment(99, 99_000)) == 0.0


def test_another_process_under_my_id_is_not_my_beat() -> None:
    observer = Liveness(ME, "mine", TIMING, Moment(0, 0))
    observer.saw(ME, Sighting(1, "another"), Moment(0, 0))
    assert observer.blind(Moment(0, 0))
    observer.saw(ME, Sighting(2, "mine"), Moment(0, 0))
    assert not observer.blind(Moment(0, 0))


def test_a_record_seen_first_is_on_trial_until_it_changes_or_its_time_is_over() -> None:
    found = cluster(1)
    observer = found.observer
    observer.saw(store(7), Sighting(1, "old"), found.moment())
    assert observer.standings[store(7)].verdict is Verdict.TRIAL
    assert observer.standings[store(7)].live
    observer.saw(store(7), Sighting(1, "old"), found.moment())
    assert observer.standings[store(7)].verdict is Verdict.TRIAL, "the same list again"
    observer.saw(store(7), Sighting(2, "old"), found.moment())
    assert observer.standings[store(7)].verdict is Verdict.LIVE


@pytest.mark.parametrize("revision", [None, 5])
def test_a_silent_one_whose_record_is_gone_is_forgotten(revision: int | None) -> None:
    observer = Liveness(ME, "mine", TIMING, Moment(0, 0))
    observer.saw(store(0), Sighting(5, "s"), Moment(0, 0))
    observer.compared(store(0), revision, Moment(1, 1000))
    assert (store(0) in observer.standings) == (revision is not None)


def test_the_defaults_are_those_of_the_beats() -> None:
    assert TIMING.beat_s == BEAT_S
    assert Timing.of(3.0) == TIMING
    assert Settings().member_dead_s == TIMING.silent_s_max


@given(dead_s=st.floats(1.5, 60))
def test_an_observer_is_blind_before_it_judges_and_sees_between_two_beats(dead_s: float) -> None:
    timing = Timing.of(dead_s)
    assert timing.beat_s < timing.blind_s < timing.silent_s_max
    assert dead_s < 2.75 or timing.blind_s + timing.beat_s <= timing.silent_s_max


@settings(max_examples=60 // one_in(4))
@given(
    dead_s=st.floats(1.5, 5),
    lease_s=st.floats(0.5, 12),
    at=st.floats(3, 8),
    stores=st.integers(3, 5),
)
def test_no_store_is_dead_before_its_own_lease_has_expired(
    dead_s: float, lease_s: float, at: float, stores: int
) -> None:
    found = cluster(stores, timing=Timing.of(dead_s))
    for process in found.processes[1:]:
        process.lease_s = lease_s
    found.run(at)
    kill(found, store(0))
    changed_s = found.observer.standings[store(0)].changed_s
    bound_s = max(dead_s, 1.25 * lease_s + 0.1)
    assert found.observer.dead_after_s(store(0)) == bound_s
    found.run(bound_s + 2 * TICK_S)
    assert set(found.dead_at) == {store(0)}
    assert found.dead_at[store(0)] - changed_s > bound_s


def test_a_record_that_is_over_is_dead_until_another_session_appears() -> None:
    found = cluster(3)
    found.run(5)
    member, observer = store(0), found.observer
    kill(found, member)
    found.run(4)
    since_ms = observer.standings[member].since_ms
    observer.saw(member, Sighting(9000, "theirs", over=True), found.moment())
    assert found.verdict(member) is Verdict.DEAD
    assert observer.standings[member].since_ms == since_ms, "it is no news"
    assert observer.session_over(member, found.moment())
    assert observer.suspects(found.moment()) == []
    observer.saw(member, Sighting(9001, "another"), found.moment())
    assert found.verdict(member) is Verdict.LIVE
    assert not observer.session_over(member, found.moment())


def test_a_live_store_whose_record_is_over_is_dead_at_once_and_no_loss() -> None:
    found = cluster(3)
    found.run(5)
    for number in range(2):
        kill(found, store(number))
        seen = Sighting(9000 + number, "theirs", over=True)
        found.observer.saw(store(number), seen, found.moment())
        assert found.verdict(store(number)) is Verdict.DEAD
    found.run(20)
    assert found.hold() is None


@given(lease_s=st.floats(0, 10), dead_s=st.floats(1.5, 5))
def test_the_session_of_a_stopped_store_is_over_when_a_silent_one_would_be_dead(
    lease_s: float, dead_s: float
) -> None:
    observer = Liveness(ME, "mine", Timing.of(dead_s), Moment(0, 0))
    observer.saw(store(0), Sighting(5, "s", stopped=True, lease_s=lease_s), Moment(0, 0))
    bound_s = max(dead_s, 1.25 * lease_s + 0.1 if lease_s else 0)
    assert not observer.session_over(store(0), Moment(bound_s, 0))
    assert observer.session_over(store(0), Moment(bound_s + 0.01, 0))


def test_the_session_of_a_silent_store_is_not_over_however_long_it_is_dead() -> None:
    found = cluster(3)
    found.run(5)
    kill(found, store(0))
    found.run(100)
    assert found.verdict(store(0)) is Verdict.DEAD
    assert not found.observer.session_over(store(0), found.moment())
    assert not found.observer.session_over(store(99), found.moment()), "an unknown store"


def test_a_store_with_a_long_lease_that_fell_silent_much_later_is_counted_alone() -> None:
    found = cluster(3)
    for process in found.processes[1:]:
        process.lease_s = 12.0
    found.run(5)
    kill(found, store(0))
    found.run(8)
    kill(found, store(1))
    found.run(8)
    assert set(found.dead_at) == {store(0)}
