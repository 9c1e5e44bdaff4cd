"""Assigning and balancing containers: it converges, evenly, with the fewest moves."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import (
    Create,
    Move,
    Retarget,
    StoreView,
)
from anabranch.controller.domain.cluster.placement_changes import placed_elsewhere

NAMES = ("a", "b", "c", "d", "e")
LIVE, DEAD = StoreView(True), StoreView(False)
COUNT = 12


def served(container: int, store: str, **changes: object) -> Placement:
    found = Placement(container, (store,), 3, f"log-{container}", PlacementState.OPEN)
    return replace(found, **changes)  # type: ignore[arg-type]


def everything(stores: Mapping[str, StoreView], placements: Mapping[int, Placement]) -> int:
    """How many moves it took until nothing was left to do; the stores obey each at once."""
    moves = 0
    found = dict(placements)
    for _ in range(200):
        actions = assign(range(COUNT), found, stores)
        if not actions:
            check_even(stores, found)
            return moves
        for action in actions:
            match action:
                case Create(container, store):
                    assert container not in found
                    found[container] = served(container, store)
                case Retarget(container, store):
                    assert not found[container].log_id
                    assert not stores[found[container].owner].live
                    found[container] = served(container, store)
                case Move(container, store):
                    before = found[container]
                    assert before.log_id
                    assert stores[before.owner].live, "its log is on a dead store"
                    moves += store != before.owner
                    found[container] = served(container, store, pinned=before.pinned)
    raise AssertionError("it never ends")


def check_even(stores: Mapping[str, StoreView], placements: Mapping[int, Placement]) -> None:
    live = [name for name, store in stores.items() if store.live]
    pinned = Counter(p.owner for p in placements.values() if p.pinned)
    load = Counter(p.owner for p in placements.values())
    for giver in live:
        for receiver in live:
            if load[giver] > pinned[giver]:
                assert load[giver] - load[receiver] <= 1


def fewest_moves(stores: Mapping[str, StoreView], placements: Mapping[int, Placement]) -> int:
    """Containers above the even share, the fullest stores keeping the remainder."""
    live = [name for name, store in stores.items() if store.live]
    load = sorted((sum(p.owner == n for p in placements.values()) for n in live), reverse=True)
    share, more = divmod(sum(load), len(live))
    return sum(max(0, count - share - (index < more)) for index, count in enumerate(load))


STORES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([LIVE, DEAD]), min_size=1)


@given(stores=STORES, data=st.data())
def test_whatever_there_is_becomes_even_and_stays_so(
    stores: dict[str, StoreView], data: st.DataObject
) -> None:
    placements: dict[int, Placement] = {}
    for container in range(COUNT):
        store = data.draw(st.sampled_from([None, *stores]))
        if store is None:
            continue
        begun = data.draw(st.booleans())
        moving = begun and data.draw(st.booleans())
        target = data.draw(st.sampled_from(["", *sorted(stores)])) if moving else ""
        pinned = data.draw(st.booleans()) and not target
        placements[container] = served(
            container,
            store,
            log_id="log" if begun else "",
            state=PlacementState.OPEN if begun else PlacementState.ASSIGNED,
            target=target if target != store else "",
            pinned=pinned,
        )
    arrived = {  # what moves between live stores arrives, as the store would have it
        c: served(c, p.target) if p.target and stores[p.target].live and stores[p.owner].live
        else served(c, p.owner, pinned=p.pinned)
        if not p.log_id and stores[p.owner].live
        else p
        for c, p in placements.items()
    }  # fmt: skip
    if any(store.live for store in stores.values()):
        everything(stores, arrived)


@given(
    stores=st.sets(st.sampled_from(NAMES), min_size=1),
    owners=st.lists(st.sampled_from(NAMES), min_size=COUNT, max_size=COUNT),
)
def test_no_more_is_moved_than_must_be(stores: set[str], owners: list[str]) -> None:
    views = {name: LIVE if name in stores else DEAD for name in NAMES}
    placements = {c: served(c, owner) for c, owner in enumerate(owners)}

    assert everything(views, placements) == fewest_moves(views, placements)


def test_what_is_even_is_left_alone() -> None:
    views = dict.fromkeys(NAMES[:3], LIVE)
    placements = {c: served(c, NAMES[c % 3]) for c in range(4)}
    assert assign(range(4), placements, views) == []


def test_four_containers_on_one_of_three_stores_become_two_one_one() -> None:
    views = dict.fromkeys(NAMES[:3], LIVE)
    placements = {c: served(c, "a") for c in range(4)}
    assert assign(range(4), placements, views) == [Move(0, "b")]
    placements[0] = served(0, "b")
    assert assign(range(4), placements, views) == [Move(1, "c")]
    placements[1] = served(1, "c")
    assert assign(range(4), placements, views) == []


def test_one_container_moves_at_a_time() -> None:
    views = dict.fromkeys(NAMES[:3], LIVE)
    placements = {c: served(c, "a") for c in range(4)}
    placements[0] = served(0, "a", target="b")
    assert assign(range(4), placements, views) == []
    placements[0] = served(0, "b", log_id="", state=PlacementState.ASSIGNED, previous_log="log")
    assert assign(range(4), placements, views) == [], "released, and not open yet"


def test_what_moves_counts_where_it_goes_to_if_it_can_go_there() -> None:
    placements = {0: served(0, "a", target="b"), 1: served(1, "a")}
    assert assign([0, 1, 2], placements, {"a": LIVE, "b": LIVE, "c": LIVE}) == [Create(2, "c")]
    assert assign([0, 1, 2], placements, {"a": DEAD, "b": LIVE, "c": LIVE}) == [Create(2, "b")]


def test_nothing_is_balanced_before_the_stores_have_settled() -> None:
    views = dict.fromkeys(NAMES[:2], LIVE)
    placements = {c: served(c, "a") for c in range(4)}
    assert assign(range(4), placements, views, settled=False) == []
    del placements[3]
    assert assign(range(4), placements, views, settled=False) == [Create(3, "b")]


def test_what_an_operator_pinned_is_not_moved_back() -> None:
    views = dict.fromkeys(NAMES[:2], LIVE)
    placements = {c: served(c, "a", pinned=True) for c in range(4)}
    assert assign(range(4), placements, views) == []
    placements[2] = served(2, "a")
    assert assign(range(4), placements, views) == [Move(2, "b")]


def test_a_log_on_a_dead_store_is_never_moved_away() -> None:
    views = {"a": DEAD, "b": LIVE}
    for state in PlacementState:
        assert assign([0], {0: served(0, "a", state=state)}, views) == []


def test_what_nobody_served_leaves_a_dead_store_at_once() -> None:
    views = {"a": DEAD, "b": LIVE}
    fresh = Placement(0, ("a",), 2)
    assert assign([0], {0: fresh}, views, settled=False) == [Retarget(0, "b")]
    assert assign([0], {0: fresh}, {"b": LIVE}) == [Retarget(0, "b")], "a store without a record"
    assert assign([0], {0: fresh}, {"a": LIVE, "b": LIVE}) == []
    assert placed_elsewhere(fresh, "b").replicas == ("b",)
    offline = replace(fresh, state=PlacementState.OFFLINE)
    assert assign([0], {0: offline}, views) == [], "it waits for an operator"


def test_a_container_stays_when_the_store_it_was_to_go_to_dies() -> None:
    views = {"a": LIVE, "b": DEAD, "c": LIVE}
    leaving = served(0, "a", target="b")
    assert assign([0], {0: leaving}, views, settled=False) == [Move(0, "a")]
    pinned = replace(leaving, pinned=True)
    assert assign([0], {0: pinned}, views) == [], "an operator's wish is not undone"


def test_without_a_live_store_nothing_is_done() -> None:
    assert assign(range(4), {}, {}) == []
    assert assign(range(4), {}, {"a": DEAD}) == []


@settings(max_examples=20)
@given(order=st.permutations(NAMES[:4]))
def test_equal_inputs_give_equal_decisions(order: list[str]) -> None:
    views = dict.fromkeys(order, LIVE)
    expected = [Create(c, NAMES[c % 4]) for c in range(6)]
    assert assign(range(6), {}, views) == expected
