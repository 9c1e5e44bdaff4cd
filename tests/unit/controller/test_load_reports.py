"""The load reports that a controller holds, and whom it believes."""

import json

import pytest

from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.contracts.load import (
    ContainerLoad,
    KeySketch,
    LoadReport,
    MergedLoad,
    SegmentLoad,
)
from anabranch.common.contracts.queries import SegmentRate
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.cluster.rates import Rates
from anabranch.controller.domain.load import Merged, Rate, ServedSegment
from anabranch.controller.projections import load_reports
from anabranch.controller.projections.load_reports import LoadReports
from kit.container_driver import ManualTime
from kit.known_stores import StoresKnown
from kit.loud import loud

NAME = "scope/stream/0.#epoch.0"
SEGMENT = ServedSegment(NAME, container=0, container_epoch=5)
KNOWN = Rate(1.0, 100.0, 10_000)


def report(sequence: int, *, node: str = "n", session: str = "s", count: int = 1) -> LoadReport:
    """With `count` segments, of which the first has had 10 events."""
    names = [NAME, *(f"s/x/{number}" for number in range(1, count))]
    segments = tuple(SegmentLoad(segment=name, events=10, size=1000) for name in names)
    return LoadReport(
        node_id=node,
        session=session,
        sequence=sequence,
        start_ms=0,
        length_ms=10_000,
        containers=(ContainerLoad(container=0, container_epoch=5, segments=segments),),
        others_idle=True,
    )


def test_reports_are_held_per_node_and_late_ones_change_nothing() -> None:
    reports = LoadReports(ManualTime())
    for node, sequences in {"n": (1, 3, 2), "other": (1, 2, 2, 1)}.items():
        for sequence in sequences:
            reports.learn(report(sequence, node=node))
    assert reports.rate("n", SEGMENT) is None
    assert reports.rate("other", SEGMENT) == KNOWN
    assert reports.rate("nobody", SEGMENT) is None


def test_a_new_session_begins_anew() -> None:
    reports = LoadReports(ManualTime())
    for session, sequence in (("a", 8), ("a", 9), ("b", 1)):
        reports.learn(report(sequence, session=session))
    assert reports.rate("n", SEGMENT) is None
    reports.learn(report(2, session="b"))
    assert reports.rate("n", SEGMENT) == KNOWN


@pytest.mark.parametrize(("bound", "value"), [("NODES_MAX", 2), ("SEGMENTS_MAX", 8)])
def test_what_is_held_is_bounded_and_the_oldest_goes_first(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_reports, bound, value)
    time = ManualTime()
    reports = LoadReports(time)
    for node in ("old", "n", "new"):
        for sequence in (1, 2):
            time.advance(1.0)
            reports.learn(report(sequence, node=node, count=2))
    found = {node: reports.rate(node, SEGMENT) for node in ("old", "n", "new")}
    assert found == {"old": None, "n": KNOWN, "new": KNOWN}


def test_of_one_node_only_the_last_periods_are_held() -> None:
    reports = LoadReports(ManualTime())
    for sequence in range(1, 1000):
        reports.learn(report(sequence, count=3))
    assert reports._segment_count == 3 * load_reports.PERIODS_MAX


@pytest.mark.parametrize(("pause_s", "count"), [(10.0, 9), (2.0, 39), (3600.0, 2)])
def test_reports_are_held_as_far_back_as_rates_are_shown(pause_s: float, count: int) -> None:
    """However often a store reports, and two of them always: one alone tells no rate."""
    time = ManualTime()
    reports = LoadReports(time, window_ms=60_000, depth_ms=75_000)
    for sequence in range(1, 100):
        time.advance(pause_s)
        reports.learn(report(sequence))
    held = reports.periods("n")
    assert len(held) == count
    assert [one.sequence for one in held] == list(range(100 - count, 100))


def test_a_short_period_is_late_only_when_the_long_one_that_may_follow_it_is() -> None:
    time = ManualTime()
    reports = LoadReports(time)
    for sequence in (1, 2):
        reports.learn(report(sequence).model_copy(update={"length_ms": 2_000, "due_ms": 10_000}))
    time.advance(30.0)
    assert reports.rate("n", SEGMENT) is not None
    time.advance(0.1)
    assert reports.rate("n", SEGMENT) is None


def test_what_commits_brought_is_kept_apart() -> None:
    reports = LoadReports(ManualTime())
    merged = MergedLoad(events=4, size=400, over_ms=30_000)
    load = SegmentLoad(segment=NAME, events=10, size=1000, merged=merged)
    container = ContainerLoad(container=0, container_epoch=5, segments=(load,))
    reports.learn(report(1).model_copy(update={"containers": (container,)}))
    (period,) = reports.periods("n")
    assert period.containers[0].segments == {NAME: (10, 1000)}
    assert period.containers[0].merged == {NAME: Merged(4, 400, 30_000)}


PLACEMENTS = {
    "its owner": (Placement(0, ("n",), 5, "log", PlacementState.OPEN), True),
    "opened again": (Placement(0, ("n",), 6, "log", PlacementState.OPEN), False),
    "another owner": (Placement(0, ("m",), 5, "log", PlacementState.OPEN), False),
    "not open": (Placement(0, ("n",), 5, "log", PlacementState.FAILED), False),
}


@pytest.mark.parametrize("whose", PLACEMENTS)
async def test_only_the_present_owner_is_believed(whose: str) -> None:
    placement, known = PLACEMENTS[whose]
    store = InMemoryObjectStore()
    await store.create(placement_key(0), placement_to_bytes(placement))
    found = await store.get(placement_key(0))
    assert found is not None
    time = ManualTime()
    placements = Placements(StoresKnown(), store, 1, time, containment=loud(time))
    placements._learn(found)
    reports = LoadReports(time)
    for sequence in (1, 2):
        reports.learn(with_keys(sequence))
    expected = SegmentRate(events_per_s=1.0, bytes_per_s=100.0, over_ms=10_000)
    rates = Rates(placements, reports, 1)
    assert rates.rate(NAME) == (expected if known else None)
    heard = rates.heard(NAME)
    assert (heard.keys if heard else None) == (KEYS if known else None)


KEYS = KeySketch(positions=(2**31,), events=(100,), sizes=(1000,))


def with_keys(sequence: int, *, node: str = "n", name: str = NAME) -> LoadReport:
    load = SegmentLoad(segment=name, events=10, size=1000, keys=KEYS)
    container = ContainerLoad(container=0, container_epoch=5, segments=(load,))
    return report(sequence, node=node).model_copy(update={"containers": (container,)})


def test_where_the_keys_lie_is_known_for_half_a_minute_of_the_store_that_serves_them() -> None:
    time = ManualTime()
    reports = LoadReports(time)
    reports.learn(with_keys(1))
    reports.learn(with_keys(2, name="another"))
    time.advance(load_reports.SKETCH_S_MAX)
    assert reports.keys("n", SEGMENT) == KEYS
    assert reports.keys("other", SEGMENT) is None
    assert reports.keys("n", ServedSegment(NAME, 0, 6)) is None
    time.advance(0.1)
    assert reports.keys("n", SEGMENT) is None


def test_a_report_that_lists_a_segment_without_its_keys_ends_what_was_known_of_them() -> None:
    reports = LoadReports(ManualTime())
    reports.learn(with_keys(1))
    reports.learn(report(2))
    assert reports.keys("n", SEGMENT) is None


def test_sketches_are_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_reports, "SKETCHES_MAX", 2)
    reports = LoadReports(ManualTime())
    for sequence, name in enumerate(("a", "b", "a", "c"), 1):
        reports.learn(with_keys(sequence, name=name))
    held = [reports.keys("n", ServedSegment(name, 0, 5)) for name in "abc"]
    assert held == [KEYS, None, KEYS]


def test_sketches_of_stores_that_fell_silent_are_not_held() -> None:
    time = ManualTime()
    reports = LoadReports(time)
    reports.learn(with_keys(1))
    time.advance(load_reports.SKETCH_S_MAX + 1)
    reports.learn(with_keys(1, node="other", name="another"))
    assert set(reports._sketches) == {"another"}


def test_reports_of_an_older_store_and_to_an_older_controller_are_understood() -> None:
    """A field that is missing, and one that is not known, both mean equal parts."""
    old = json.loads(report(1).model_dump_json(exclude_none=True))
    assert "keys" not in old["containers"][0]["segments"][0]
    assert LoadReport.model_validate(old) == report(1)
    newer = json.loads(with_keys(1).model_dump_json(exclude_none=True))
    newer["containers"][0]["segments"][0]["keys"]["later"] = newer["later"] = 7
    assert LoadReport.model_validate(newer) == with_keys(1)
