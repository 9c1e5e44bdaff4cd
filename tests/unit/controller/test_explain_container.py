"""Why a container does not serve: the sentences for every situation that stops one."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from anabranch.common.model.cluster import JETSTREAM, Placement, PlacementState
from anabranch.controller.domain.explaining import Situation, StoreFacts, explain
from anabranch.controller.domain.liveness import Hold, Kind, Member
from anabranch.controller.domain.placement import assign
from anabranch.controller.domain.placement_actions import (
    StoreView,
)

SHARED = Placement(3, ("a",), 7, "log", PlacementState.OPEN, log_home=JETSTREAM)
BOUND = replace(SHARED, log_home="")
FAILED = replace(SHARED, state=PlacementState.FAILED, restarts=1, reason="tier 2 is away")
LIVE = StoreView(True, log_home=JETSTREAM)
JOURNAL = StoreView(True, log_home="0" * 32)
SILENT = replace(LIVE, live=False)
OVER = replace(SILENT, over=True)
STOPPED = replace(SILENT, stopped=True)
DRAINED = replace(LIVE, draining=True)


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
        plan=assign([3], placements, stores),
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


def test_a_hold_is_told_last() -> None:
    missing = frozenset({Member(Kind.STORE, "a"), Member(Kind.STORE, "b")})
    told = explained(SHARED, {"a": LIVE}, hold=Hold(False, 1, missing)).splitlines()
    assert told[0] == "a serves the container."
    assert "hold: a, b fell silent together" in told[-1]
    blind = explained(SHARED, {"a": LIVE}, hold=Hold(True, 1))
    assert "does not see its own beats" in blind.splitlines()[-1]
