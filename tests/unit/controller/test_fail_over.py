"""Ending sessions, failing over and draining, as pure decisions: what is due, and what never is."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.cluster import JETSTREAM, Placement, PlacementState, VoidLogs
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import (
    Create,
    EndSession,
    FailOver,
    Move,
    Retarget,
    StoreView,
)
from anabranch.controller.domain.cluster.placement_changes import failed_over, placed_elsewhere
from kit.thorough import one_in

NAMES = ("a", "b", "c", "d", "e")
COUNT = 8
OTHER = "elsewhere"
LIVE = StoreView(True, log_home=JETSTREAM)
SILENT = StoreView(False, log_home=JETSTREAM)
OVER = StoreView(False, over=True, log_home=JETSTREAM)
STOPPED = StoreView(False, stopped=True, log_home=JETSTREAM)
DRAINING = replace(LIVE, draining=True)
JOURNAL = StoreView(True, log_home="0" * 32)


def shared(container: int, store: str, **changes: object) -> Placement:
    found = Placement(
        container, (store,), 3, f"log-{container}", PlacementState.OPEN, log_home=JETSTREAM
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def journaled(container: int, store: str, **changes: object) -> Placement:
    return replace(shared(container, store, **changes), log_home="")


@st.composite
def views(draw: st.DrawFn) -> StoreView:
    live = draw(st.booleans())
    ended = draw(st.sampled_from(["no", "stopped", "over", "both"])) if not live else "no"
    return StoreView(
        live=live,
        over=ended in ("over", "both"),
        stopped=ended in ("stopped", "both"),
        log_home=draw(st.sampled_from([JETSTREAM, OTHER, "journal"])),
        rack=draw(st.sampled_from(["", "r1", "r2"])),
        draining=draw(st.booleans()),
    )


@st.composite
def placed(draw: st.DrawFn, container: int) -> Placement | None:
    owner = draw(st.sampled_from([None, *NAMES]))
    if owner is None:
        return None
    log_id = draw(st.sampled_from(["", "log"]))
    return Placement(
        container,
        (owner,),
        3,
        log_id,
        draw(st.sampled_from(list(PlacementState))),
        restarts=draw(st.integers(0, 5)),
        target=draw(st.sampled_from(["", *NAMES])) if log_id else "",
        pinned=draw(st.booleans()),
        log_home=draw(st.sampled_from(["", JETSTREAM, OTHER])) if log_id else "",
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, StoreView], dict[int, Placement]]:
    stores = draw(st.dictionaries(st.sampled_from(NAMES), views(), max_size=5))
    found = {container: draw(placed(container)) for container in range(COUNT)}
    return stores, {container: one for container, one in found.items() if one is not None}


Worlds = tuple[dict[str, StoreView], dict[int, Placement]]


@settings(max_examples=400 // one_in(4))
@given(world=worlds(), settled=st.booleans())
def test_no_decision_breaks_a_rule(world: Worlds, *, settled: bool) -> None:
    stores, placements = world
    for action in assign(range(COUNT), placements, stores, settled=settled):
        if isinstance(action, EndSession):
            view = stores[action.store]
            assert not view.live
            assert not view.over
            assert not view.stopped
            assert any(p.owner == action.store and p.log_home for p in placements.values())
            continue
        assert isinstance(action, Create | Retarget | Move | FailOver), "no log is replicated"
        found = placements.get(action.container)
        to_itself = found is not None and action.store == found.owner
        assert to_itself or stores[action.store].live
        assert to_itself or not stores[action.store].draining
        match action:
            case Create():
                assert found is None
            case Retarget():
                assert found is not None
                assert not found.log_id
            case Move():
                assert found is not None
                assert stores[found.owner].live, "nothing moves off a dead store"
                assert not found.pinned or stores[found.owner].draining
            case FailOver():
                assert found is not None
                owner = stores[found.owner]
                assert action.store != found.owner
                assert found.log_home, "a log in a journal is only at its store"
                assert stores[action.store].log_home == found.log_home
                assert owner.over or (owner.live and found.state is PlacementState.FAILED)
                assert found.state not in (PlacementState.DISABLED, PlacementState.OFFLINE)


@given(world=worlds(), settled=st.booleans())
def test_a_hold_moves_nothing_and_ends_nothing(world: Worlds, *, settled: bool) -> None:
    stores, placements = world
    actions = assign(range(COUNT), placements, stores, settled=settled, held=True)
    assert all(isinstance(action, Create) for action in actions)


@given(world=worlds(), data=st.data())
def test_equal_inputs_give_equal_decisions(world: Worlds, data: st.DataObject) -> None:
    stores, placements = world
    order = data.draw(st.permutations(sorted(stores)))
    shuffled = {name: stores[name] for name in order}
    backwards = dict(reversed(placements.items()))
    assert assign(range(COUNT), backwards, shuffled) == assign(range(COUNT), placements, stores)


@given(
    owners=st.lists(st.sampled_from(NAMES), min_size=COUNT, max_size=COUNT),
    dead=st.sets(st.sampled_from(NAMES), max_size=4),
)
def test_every_shared_container_is_on_a_live_store_after_one_plan(
    owners: list[str], dead: set[str]
) -> None:
    stores = {name: OVER if name in dead else LIVE for name in NAMES}
    placements = {c: shared(c, owner) for c, owner in enumerate(owners)}
    after = performed(placements, stores)
    assert {p.owner for p in after.values()} <= set(NAMES) - dead
    assert all(after[c] == found for c, found in placements.items() if found.owner not in dead)


def performed(
    placements: Mapping[int, Placement], stores: Mapping[str, StoreView]
) -> dict[int, Placement]:
    """The placements after the urgent actions."""
    after = dict(placements)
    for action in assign(range(COUNT), placements, stores, settled=False):
        if isinstance(action, FailOver):
            after[action.container] = failed_over(placements[action.container], action.store)
    return after


def test_a_session_is_ended_before_anything_is_given_away() -> None:
    placements = {0: shared(0, "a"), 1: journaled(1, "a")}
    assert assign([0, 1], placements, {"a": SILENT, "b": LIVE}) == [EndSession("a")]
    assert assign([0, 1], placements, {"a": OVER, "b": LIVE}) == [FailOver(0, "b")]


def test_the_session_of_a_store_with_logs_in_its_journal_is_not_ended() -> None:
    assert assign([0], {0: journaled(0, "a")}, {"a": SILENT, "b": LIVE}) == []


def test_a_store_that_stopped_by_itself_is_waited_for_and_not_ended() -> None:
    placements = {0: shared(0, "a")}
    assert assign([0], placements, {"a": STOPPED, "b": LIVE}) == []
    over = replace(STOPPED, over=True)
    assert assign([0], placements, {"a": over, "b": LIVE}) == [FailOver(0, "b")]


def test_a_container_stays_while_no_live_store_shares_its_log() -> None:
    placements = {0: shared(0, "a")}
    for other in (JOURNAL, DRAINING, SILENT, replace(LIVE, log_home=OTHER)):
        assert assign([0], placements, {"a": OVER, "b": other}) == []


def test_what_waits_for_an_operator_does_not_fail_over() -> None:
    for state in (PlacementState.DISABLED, PlacementState.OFFLINE):
        placements = {0: shared(0, "a", state=state, restarts=4)}
        for view in (OVER, SILENT):
            assert assign([0], placements, {"a": view, "b": LIVE}) == []


def test_containers_of_a_dead_store_are_spread_over_racks_and_then_over_stores() -> None:
    stores = {
        "a": replace(OVER, rack="r1"),
        "b": replace(LIVE, rack="r1"),
        "c": replace(LIVE, rack="r1"),
        "d": replace(LIVE, rack="r2"),
        "e": replace(LIVE, rack="r2"),
    }
    placements = {c: shared(c, "a") for c in range(4)}
    chosen = Counter(found.owner for found in performed(placements, stores).values())
    assert chosen == {"b": 1, "c": 1, "d": 1, "e": 1}
    placements |= {c: shared(c, "b") for c in range(4, 8)}
    chosen = Counter(found.owner for found in performed(placements, stores).values())
    assert chosen == {"b": 4, "d": 2, "e": 2}, "the rack of b is fuller, although c is empty"


def test_a_container_that_was_moving_fails_over_to_its_target() -> None:
    stores = {"a": OVER, "b": LIVE, "c": LIVE}
    moving = shared(0, "a", target="c", pinned=True)
    assert assign([0], {0: moving}, stores) == [FailOver(0, "c")]
    assert failed_over(moving, "c").pinned
    assert not failed_over(moving, "b").pinned
    assert assign([0], {0: moving}, stores | {"c": JOURNAL}) == [FailOver(0, "b")]


def test_a_fail_over_keeps_the_log_and_the_count_of_failures() -> None:
    void = VoidLogs(1, 2)
    found = shared(0, "a", restarts=3, reason="tier 2", void=void, previous_log="old", target="x")
    after = failed_over(found, "b")
    assert after == replace(found, replicas=("b",), target="", state=PlacementState.ASSIGNED)


def test_a_failed_container_is_offered_to_another_store_after_every_second_failure() -> None:
    stores = {"a": LIVE, "b": LIVE}
    offered = {
        restarts: assign(
            [0], {0: shared(0, "a", state=PlacementState.FAILED, restarts=restarts)}, stores
        )
        for restarts in range(6)
    }
    assert {n for n, actions in offered.items() if actions} == {2, 4}
    assert offered[2] == [FailOver(0, "b")]
    alone = {0: shared(0, "a", state=PlacementState.FAILED, restarts=2)}
    assert assign([0], alone, {"a": LIVE, "b": JOURNAL}) == []
    bound = {0: journaled(0, "a", state=PlacementState.FAILED, restarts=2)}
    assert assign([0], bound, stores) == []


def test_a_drained_store_gives_its_containers_away_one_at_a_time() -> None:
    stores = {"a": DRAINING, "b": LIVE, "c": LIVE}
    placements = {0: shared(0, "a", pinned=True), 1: journaled(1, "a"), 2: shared(2, "b")}
    assert assign(range(3), placements, stores, settled=False) == [Move(0, "c")]
    placements[0] = shared(0, "a", target="c", pinned=True)
    assert assign(range(3), placements, stores, settled=False) == []
    placements[0] = shared(0, "c", pinned=True)
    assert assign(range(3), placements, stores, settled=False) == [Move(1, "b")]
    placements[1] = shared(1, "b")
    assert assign(range(3), placements, stores) == []


def test_a_drained_store_receives_nothing() -> None:
    stores = {"a": DRAINING, "b": LIVE}
    placements = {c: shared(c, "b") for c in range(4)}
    assert assign(range(4), placements, stores) == []
    assert assign(range(5), placements, stores) == [Create(4, "b")]
    assert assign(range(1), {}, {"a": DRAINING}) == [], "no store may have it"
    moving = {0: shared(0, "b", target="a")}
    assert assign(range(1), moving, stores) == [Move(0, "b")], "the move is withdrawn"
    fresh = Placement(0, ("gone",), 2)
    assert assign([0], {0: fresh}, stores) == [Retarget(0, "b")]
    assert placed_elsewhere(fresh, "b").log_home == ""


def test_an_undrained_store_is_balanced_again() -> None:
    placements = {c: shared(c, "b") for c in range(4)}
    assert assign(range(4), placements, {"a": LIVE, "b": LIVE}) == [Move(0, "a")]
