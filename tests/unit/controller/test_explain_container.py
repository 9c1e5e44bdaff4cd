"""Why a container does not serve: the sentences for every situation that stops one."""

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
from anabranch.controller.domain.cluster.explaining import Situation, StoreFacts, explain
from anabranch.controller.domain.cluster.liveness import Hold, Kind, Member
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import Replication, StoreView

SHARED = Placement(3, ("a",), 7, "log", PlacementState.OPEN, log_home=JETSTREAM)
BOUND = replace(SHARED, log_home="")
FAILED = replace(SHARED, state=PlacementState.FAILED, restarts=1, reason="tier 2 is away")
LIVE = StoreView(True, log_home=JETSTREAM)
JOURNAL = StoreView(True, log_home="0" * 32)
SILENT = replace(LIVE, live=False)
OVER = replace(SILENT, over=True)
STOPPED = replace(SILENT, stopped=True)
DRAINED = replace(LIVE, draining=True)
LED = replace(
    SHARED, replicas=("a", "b", "c"), log_home=REPLICATED, isr_min=2,
    isr=tuple(LogCopy(name, f"{name}-1") for name in "abc"),
)  # fmt: skip
ELECTING = replace(LED, state=PlacementState.ELECTING)
OFFLINE = replace(ELECTING, reason="leader-offline: a does not promise (unavailable)")
FOLLOWS = replace(LIVE, log_home=REPLICATED)
DOWN = replace(FOLLOWS, live=False, over=True)
LEAVES = replace(FOLLOWS, draining=True)


def explained(
    found: Placement | None,
    stores: Mapping[str, StoreView],
    *,
    silent_s: float = 0.4,
    **changes: object,
) -> str:
    """The sentences on container 3, with the plan that a leader has; one a line."""
    placements = {} if found is None else {3: found}
    now = Situation(
        {name: StoreFacts(view, silent_s) for name, view in stores.items()},
        plan=assign([3], placements, stores, replication=Replication(3)),
        leased=frozenset(stores),
    )
    return "\n".join(explain(3, found, replace(now, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "stores", "sentences"),
    [
        (None, {"a": LIVE}, ["has no store yet"]),
        (None, {"a": DRAINED}, ["no store is live that may have containers"]),
        (SHARED, {"a": LIVE}, ["a serves the container."]),
        (replace(SHARED, state=PlacementState.ASSIGNED), {"a": LIVE}, ["a is opening"]),
        (FAILED, {"a": LIVE, "b": LIVE}, ["failed once", "tier 2 is away", "fails once more"]),
        (replace(FAILED, restarts=2), {"a": LIVE, "b": LIVE}, ["failed 2 times", "to b now"]),
        (replace(FAILED, restarts=2), {"a": LIVE, "b": JOURNAL}, ["again after a pause; the"]),
        (
            replace(FAILED, state=PlacementState.DISABLED),
            {"a": LIVE},
            ["disabled", "tier 2 is away", "anabranch container enable 3"],
        ),
        (
            replace(FAILED, state=PlacementState.OFFLINE, reason="damaged"),
            {"a": SILENT},
            ["offline at a", "damaged", "anabranch container enable 3"],
        ),
        (replace(SHARED, target="b"), {"a": LIVE, "b": LIVE}, ["moving to b", "to tier 2 first"]),
        (SHARED, {"a": DRAINED, "b": LIVE}, ["a serves", "about to move it to b"]),
        (SHARED, {"a": DRAINED}, ["no other live store may have containers"]),
        (SHARED, {"a": SILENT, "b": LIVE}, ["silent for 0.4 s, so it is dead", "ends its session"]),
        (SHARED, {"a": OVER, "b": LIVE}, ["session of a is over", "have b open"]),
        (SHARED, {"a": STOPPED, "b": LIVE}, ["has shut down", "3.0 s after"]),
        (SHARED, {"a": OVER, "b": JOURNAL}, ["is over", "in jetstream, and no other live store"]),
        (BOUND, {"a": SILENT, "b": LIVE}, ["is down", "journal of a", "abandon-tail 3 --to"]),
        (BOUND, {"a": STOPPED}, ["has shut down", "Start a"]),
        (replace(BOUND, log_id=""), {"a": SILENT, "b": LIVE}, ["No store has served", "on b."]),
        (replace(BOUND, log_id=""), {"a": SILENT}, ["No other live store may"]),
        (BOUND, {"b": LIVE}, ["no readable record", "journal of a"]),
    ],
)  # fmt: skip
def test_every_situation_is_told(
    found: Placement | None, stores: dict[str, StoreView], sentences: list[str]
) -> None:
    told = explained(found, stores)
    for sentence in sentences:
        assert sentence in told


def among(names: str, view: StoreView = FOLLOWS, **others: StoreView) -> dict[str, StoreView]:
    return {**dict.fromkeys(names, view), **others}


@pytest.mark.parametrize(
    ("found", "stores", "sentences"),
    [
        (None, among("ab"), ["when enough of them are live. There are 2."]),
        (None, among("abc"), ["places it within a moment"]),
        (LED, among("abc"), ["a serves the container."]),
        (
            replace(LED, isr=LED.isr[:2]),
            among("abc"),
            ["a serves", "2 of 3 copies of its log are in sync: c catches up."],
        ),
        (
            replace(LED, isr=LED.isr[:1]),
            among("a", b=DOWN),
            ["1 of at least 2", "not acknowledged", "b is down, c has no readable record"],
        ),
        (ELECTING, among("bc", a=DOWN), ["elects the store that leads", "a, b, c"]),
        (
            OFFLINE,
            among("c", a=DOWN, b=DOWN),
            ["no leader", "a does not promise", "Start a or b", "elect 3 --unclean --yes"],
        ),
        (LED, among("bc", a=replace(DOWN, over=False)), ["ends its session", "among", "b, c"]),
        (LED, among("bc", a=DOWN), ["session of a is over", "in-sync copies: b, c."]),
        (LED, among("", a=DOWN, b=DOWN), ["No other store with an in-sync", "a or b or c"]),
        (
            replace(LED, state=PlacementState.FAILED, restarts=2),
            among("abc"),
            ["failed 2 times", "a controller elects another leader now"],
        ),
        (
            replace(LED, state=PlacementState.FAILED, restarts=1),
            among("abc"),
            ["failed once", "fails once more"],
        ),
        (
            replace(LED, state=PlacementState.FAILED, restarts=2, isr=LED.isr[:1]),
            among("abc"),
            ["again after a pause; the"],
        ),
        (replace(LED, target="b"), among("abc"), ["moving to b", "in-sync copy", "hands it over"]),
        (
            replace(LED, wanted=("a", "b", "x")),
            among("abcx"),
            ["Its replicas become a, b, x, once these copies are in sync: x catches up."],
        ),
        (replace(LED, wanted=("a", "b")), among("abc"), ["Its replicas become a, b."]),
        (LED, among("ab", c=LEAVES), ["c is drained", "can take its copy. It may be stopped."]),
        (LED, among("abd", c=LEAVES), ["c is drained: another store takes its copy"]),
        (LED, among("bc", a=LEAVES), ["a serves", "about to move it to b"]),
        (
            replace(LED, isr=LED.isr[:1]),
            among("bc", a=LEAVES),
            ["a is drained, but no other live store that may lead has an in-sync copy."],
        ),
        (
            replace(LED, isr=LED.isr[:1]),
            among("bcd", a=LEAVES),
            ["a is drained: another store copies the log first, and leads it then."],
        ),
    ],
)
def test_every_situation_of_a_replicated_log_is_told(
    found: Placement | None, stores: Mapping[str, StoreView], sentences: list[str]
) -> None:
    told = explained(found, stores)
    for sentence in sentences:
        assert sentence in told
    assert told.count(" is drained") <= 1


def test_a_silent_store_is_told_with_the_time_of_its_death() -> None:
    assert "silent for 2.5 s; it is declared dead after 3.0 s" in explained(
        SHARED, {"a": LIVE}, silent_s=2.5
    )
    assert "silent" not in explained(SHARED, {"a": LIVE})


def test_a_lapsed_lease_is_told_of_containers_that_need_one() -> None:
    assert "lease of a seems to have lapsed" in explained(SHARED, {"a": LIVE}, leased=frozenset())
    assert "lease" not in explained(BOUND, {"a": LIVE}, leased=frozenset())


def test_a_drained_store_says_which_container_moves_first() -> None:
    views = {"a": DRAINED, "b": LIVE}
    first = explained(SHARED, views, plan=(), moving=[1])
    assert "a is drained: container 1 moves first" in first


def test_a_refused_store_is_told() -> None:
    told = explained(SHARED, {}, refused=frozenset({"a"}))
    assert "does not have the join token" in told


def test_an_unregistered_store_is_told_before_the_fail_over() -> None:
    gone = StoreView(live=False, log_home=JETSTREAM)
    first, then, *_ = explained(
        SHARED, {"a": gone, "b": LIVE}, unregistered=frozenset({"a"})
    ).splitlines()
    assert "no SPU with its node id is registered" in first
    assert then == "The leader ends its session; 3.0 s after that it is over."
    over = replace(gone, over=True)
    told = explained(SHARED, {"a": over, "b": LIVE}, unregistered=frozenset({"a"}))
    assert "The session of a is over." in told
    assert "have b open the container" in told


def test_a_hold_is_told_last() -> None:
    missing = frozenset({Member(Kind.STORE, "a"), Member(Kind.STORE, "b")})
    told = explained(SHARED, {"a": LIVE}, hold=Hold(False, 1, missing)).splitlines()
    assert told[0] == "a serves the container."
    assert "hold: a, b fell silent together" in told[-1]
    blind = explained(SHARED, {"a": LIVE}, hold=Hold(True, 1))
    assert "does not see its own beats" in blind.splitlines()[-1]
