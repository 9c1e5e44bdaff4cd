"""Replica lists: the first ones, the ways to others, and what a plan makes of replicated logs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from anabranch.common.model.cluster import (
    JETSTREAM,
    REPLICATED,
    LogCopy,
    Placement,
    PlacementState,
)
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import (
    Action,
    Create,
    Elect,
    EndSession,
    Move,
    Reassign,
    Replication,
    Retarget,
    SetReplicas,
    StoreView,
)
from anabranch.controller.domain.cluster.placement_changes import placed_elsewhere
from anabranch.controller.domain.cluster.replica_lists import choose_followers, in_sync, next_step

LIVE = StoreView(True, log_home=REPLICATED)
DEAD = StoreView(False, log_home=REPLICATED)
OVER = StoreView(False, over=True, log_home=REPLICATED)
DRAINED = replace(LIVE, draining=True)
JOURNAL = StoreView(True, log_home="0" * 32)
THREE = Replication(3)
Views = Mapping[str, StoreView]


def stores(names: str, view: StoreView = LIVE, **others: StoreView) -> dict[str, StoreView]:
    return {**dict.fromkeys(names, view), **others}


def led(replicas: str, isr: str | None = None, container: int = 0, **changes: object) -> Placement:
    members = replicas if isr is None else isr
    found = Placement(
        container, tuple(replicas), 3, f"log-{container}", PlacementState.OPEN,
        log_home=REPLICATED, isr=tuple(LogCopy(name, f"{name}-1") for name in members),
        isr_min=2,
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


def plan(
    found: Placement | Mapping[int, Placement],
    views: Views,
    replication: Replication = THREE,
    *,
    settled: bool = True,
    held: bool = False,
) -> list[Action]:
    placements = {found.container: found} if isinstance(found, Placement) else found
    return assign(
        sorted(placements), placements, views, settled=settled, held=held, replication=replication
    )


# --- first lists ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "count", "replicas", "expected"),
    [
        ("0123", 4, 2, ["01", "10", "23", "32"]),
        ("abc", 3, 3, ["abc", "bac", "cab"]),
        ("ab", 2, 1, ["a", "b"]),
        ("abc", 6, 2, ["ab", "ba", "ca", "ac", "bc", "cb"]),
    ],
)
def test_first_lists_are_least_loaded(
    names: str, count: int, replicas: int, expected: list[str]
) -> None:
    actions = assign(range(count), {}, stores(names), replication=Replication(replicas))
    lists = ["".join((one.store, *one.followers)) for one in actions if isinstance(one, Create)]
    assert lists == expected


def test_first_lists_are_spread_over_racks() -> None:
    views = {
        name: replace(LIVE, rack=rack)
        for name, rack in {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3"}.items()
    }
    actions = assign(range(10), {}, views, replication=THREE)
    led_by: Counter[str] = Counter()
    followed: Counter[str] = Counter()
    for one in actions:
        assert isinstance(one, Create)
        racks = [views[name].rack for name in (one.store, *one.followers)]
        assert len(set(racks)) == 3
        led_by[one.store] += 1
        followed.update(one.followers)
    assert set(led_by.values()) == {2}
    assert followed["a"] + followed["b"] == followed["c"] + followed["d"]


def test_with_fewer_racks_than_replicas_no_rack_has_two_more_than_another() -> None:
    views = {n: replace(LIVE, rack="r1" if n in "abc" else "r2") for n in "abcd"}
    followers = choose_followers("a", 2, views, {"d": 9})
    assert followers == ("d", "b")


def test_a_container_is_created_only_when_enough_stores_are_live() -> None:
    for views in (
        stores("ab"),
        stores("ab", c=DEAD),
        stores("ab", c=DRAINED),
        stores("ab", c=JOURNAL),
    ):
        created = assign([0], {}, views, replication=THREE)
        assert [one.store for one in created if isinstance(one, Create)] == [
            name for name, view in views.items() if view is JOURNAL
        ]
    (create,) = assign([0], {}, stores("abc"), replication=THREE)
    assert create == Create(0, "a", ("b", "c"), isr_min=2)


@pytest.mark.parametrize(
    ("replication", "isr_min"),
    [(Replication(3), 2), (Replication(2), 2), (Replication(1), 1), (Replication(5, 2), 2),
     (Replication(3, 1), 1), (Replication(5), 3)],
)  # fmt: skip
def test_the_fewest_in_sync_copies_are_a_majority_unless_they_are_set(
    replication: Replication, isr_min: int
) -> None:
    (create,) = assign([0], {}, stores("abcde"), replication=replication)
    assert isinstance(create, Create)
    assert create.isr_min == isr_min


def test_stores_with_logs_of_another_kind_get_no_followers() -> None:
    views = stores("ab", StoreView(True, log_home=JETSTREAM))
    assert assign([0], {}, views, replication=THREE) == [Create(0, "a")]


def test_a_container_that_never_served_goes_to_another_of_its_replicas() -> None:
    fresh = Placement(0, ("a", "b", "c"), 2, isr=(LogCopy("a", "a-1"),), isr_min=2)
    (retarget,) = plan(fresh, stores("bc", a=DEAD))
    assert retarget == Retarget(0, "b", ("a", "c"), isr_min=2)
    after = placed_elsewhere(fresh, "b", ("a", "c"), 2)
    assert (after.replicas, after.isr, after.isr_min) == (("b", "a", "c"), (), 2)
    # none of them is live: a fresh list, once there are enough stores
    views = stores("de", a=DEAD, b=DEAD, c=DEAD)
    assert plan(fresh, views) == []
    assert plan(fresh, {**views, "f": LIVE}) == [Retarget(0, "d", ("e", "f"), isr_min=2)]


def test_a_container_that_came_from_another_kind_of_store_gets_followers() -> None:
    for came in (led("a", isr_min=0), Placement(0, ("a",), 2)):
        assert plan(came, stores("abc")) == [SetReplicas(0, ("a", "b", "c"), 2, done=True)]
        assert plan(came, stores("ab")) == []
    assert plan(led("abc"), stores("abc")) == []
    in_journal = Placement(0, ("a",), 2, "log", PlacementState.OPEN)
    assert plan(in_journal, stores("abc")) == []


# --- elections --------------------------------------------------------------------------------


def test_the_session_of_a_dead_leader_ends_before_another_replica_is_elected() -> None:
    assert plan(led("abc"), stores("bc", a=DEAD)) == [EndSession("a")]
    assert plan(led("abc"), stores("bc", a=OVER)) == [Elect(0)]
    stopped = StoreView(False, stopped=True, log_home=REPLICATED)
    assert plan(led("abc"), stores("bc", a=stopped)) == []


def test_the_session_of_a_dead_follower_ends_too() -> None:
    assert plan(led("abc"), stores("ab", c=DEAD)) == [EndSession("c")]
    assert plan(led("abc", isr="ab"), stores("ab", c=DEAD)) == []


def test_an_election_that_began_goes_on_whoever_lives() -> None:
    electing = led("abc", state=PlacementState.ELECTING)
    for views in (stores("abc"), stores("bc", a=OVER), stores("", a=OVER, b=OVER, c=OVER)):
        assert plan(electing, views) == [Elect(0)]
    assert plan(electing, stores("abc"), held=True) == []


def test_a_container_that_failed_often_enough_gets_another_leader_if_there_is_one() -> None:
    failed = led("abc", isr="ab", state=PlacementState.FAILED, restarts=2)
    assert plan(failed, stores("abc")) == [Elect(0)]
    assert plan(replace(failed, restarts=1), stores("abc")) == []
    assert plan(failed, stores("ac", b=OVER)) == [], "c is not in sync"


@pytest.mark.parametrize("state", [PlacementState.DISABLED, PlacementState.OFFLINE])
def test_what_waits_for_an_operator_is_not_elected(state: PlacementState) -> None:
    assert plan(led("abc", state=state, restarts=2), stores("bc", a=OVER)) == []


def test_an_election_without_an_answer_holds_up_no_other_container() -> None:
    placements = {
        0: led("ab", state=PlacementState.ELECTING),
        **{number: led("cd", container=number) for number in (1, 2, 3)},
    }
    views = stores("cd", a=OVER, b=OVER)
    assert plan(placements, views) == [Elect(0), Move(1, "d")]


# --- hand-overs -------------------------------------------------------------------------------


def test_containers_are_balanced_over_in_sync_replicas_only() -> None:
    placements = {number: led("abc", "ac", container=number) for number in range(3)}
    assert plan(placements, stores("abcd")) == [Move(0, "c")]
    alone = {number: led("abc", "a", container=number) for number in range(3)}
    assert plan(alone, stores("abcd")) == []
    assert plan(placements, stores("abcd"), settled=False) == []


def test_containers_that_are_pinned_or_change_their_replicas_are_not_balanced() -> None:
    placements = {number: led("abc", container=number, pinned=True) for number in range(3)}
    assert plan(placements, stores("abc")) == []
    changing = {number: led("abc", container=number, wanted=("a", "b", "x")) for number in range(3)}
    assert not [one for one in plan(changing, stores("abc", x=DEAD)) if isinstance(one, Move)]


def test_a_drained_store_hands_leadership_over_first_and_then_its_copies() -> None:
    views = stores("bcd", a=DRAINED)
    placements = {0: led("bac"), 1: led("abc", container=1)}
    assert plan(placements, views) == [Move(1, "c")]
    placements[1] = led("cab", container=1)
    assert plan(placements, views) == [Reassign(0, ("b", "c", "d"))]
    placements[0] = led("bac", wanted=("b", "c", "d"))
    assert plan(placements, views) == [SetReplicas(0, ("b", "a", "c", "d"), 2, done=False)]
    placements[0] = led("bacd", isr="bac", wanted=("b", "c", "d"))
    assert plan(placements, views) == [], "one at a time"
    placements[0] = led("bcd")
    assert plan(placements, views) == [Reassign(1, ("c", "b", "d"))]


def test_a_drained_store_keeps_copies_that_no_other_store_can_take() -> None:
    assert plan(led("bac"), stores("bc", a=DRAINED)) == []
    assert plan(led("bac"), stores("bc", a=DRAINED, d=DRAINED, e=JOURNAL)) == []


def test_a_drained_leader_without_in_sync_followers_waits_or_gets_others() -> None:
    views = stores("bcd", a=DRAINED)
    assert plan(led("abc", isr="a"), views) == [Reassign(0, ("b", "c", "d"))]
    assert plan(led("a", isr_min=1), views, Replication(1)) == [Reassign(0, ("b",))]
    assert plan(led("abc", isr="a"), stores("bc", a=DRAINED)) == []


def test_replicas_that_never_come_do_not_hold_up_a_drain() -> None:
    views = stores("bcd", a=DRAINED, x=DEAD)
    placements = {0: led("bcdx", isr="bcd", wanted=("b", "c", "x")), 1: led("bac", container=1)}
    assert plan(placements, views) == [Reassign(1, ("b", "c", "d"))]


def test_a_store_that_is_lost_and_drained_before_it_has_a_copy_is_replaced_in_turn() -> None:
    waiting = led("acbd", isr="ab", wanted=("d", "a", "b"))
    views = stores("abe", c=replace(DEAD, draining=True), d=DEAD)
    assert plan(waiting, views) == [], "it may come back"
    views["d"] = replace(DEAD, draining=True)
    assert plan(waiting, views) == [Reassign(0, ("a", "b", "e"))]
    changing = led("abde", container=1, isr="ab", wanted=("a", "b", "e"))
    assert plan({0: waiting, 1: changing}, views) == [Reassign(0, ("a", "b", "e"))]


# --- from one list to another -----------------------------------------------------------------


def test_the_way_to_other_replicas_goes_through_the_isr() -> None:
    wanted = led("abc", wanted=("d", "e", "b"))
    grown = next_step(wanted, THREE)
    assert grown == SetReplicas(0, ("a", "b", "c", "d", "e"), 2, done=False)
    waits = replace(wanted, replicas=grown.replicas)
    assert next_step(waits, THREE) is None
    assert next_step(replace(waits, isr=led("abcd").isr), THREE) is None, "e lacks something"
    ready = replace(waits, isr=led("abcde").isr)
    assert next_step(ready, THREE) == Move(0, "d")
    assert next_step(replace(ready, target="d"), THREE) is None
    handed = replace(ready, replicas=("d", "a", "b", "c", "e"))
    assert next_step(handed, THREE) == SetReplicas(0, ("d", "e", "b"), 2, done=True)


def test_a_leader_that_is_wanted_stays() -> None:
    done = next_step(led("abc", wanted=("c", "a")), THREE)
    assert done == SetReplicas(0, ("a", "c"), 2, done=True)


@pytest.mark.parametrize(
    ("wanted", "replication", "isr_min"),
    [("a", Replication(3), 1), ("abcde", Replication(3), 3), ("abcde", Replication(3, 2), 2),
     ("a", Replication(3, 2), 1)],
)  # fmt: skip
def test_the_fewest_in_sync_copies_follow_the_number_of_replicas(
    wanted: str, replication: Replication, isr_min: int
) -> None:
    done = next_step(led("abcde", wanted=tuple(wanted)), replication)
    assert done == SetReplicas(0, tuple(wanted), isr_min, done=True)


@pytest.mark.parametrize(
    "state", [PlacementState.FAILED, PlacementState.ASSIGNED, PlacementState.OFFLINE]
)
def test_replicas_change_only_while_the_container_serves(state: PlacementState) -> None:
    assert next_step(led("abc", wanted=("a", "b"), state=state), THREE) is None


def test_in_sync_stores_are_told_in_the_order_of_the_replicas() -> None:
    assert in_sync(led("cab", isr="abcz")) == ("c", "a", "b", "z")
