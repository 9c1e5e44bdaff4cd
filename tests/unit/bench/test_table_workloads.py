"""The workloads on key-value tables on a table in memory: their figures, and that no fault of a
system goes unnoticed."""

from dataclasses import replace

import pytest

from bench.case import QUICK, Effort, case_of
from bench.rounds import Conditions, Results, run_case
from bench.systems.port import Label
from bench.workloads import w21_table_bulk
from bench.workloads.port import Workload
from bench.workloads.tables import CALLERS
from bench.workloads.w20_conditional_put import DistinctKeys, SharedKeys
from bench.workloads.w21_table_bulk import GetHot, GetMany, PutMany, ScanAll, ScanArrow
from kit.bench_fake import FakeStopwatch
from kit.bench_table_fake import CALL_SECONDS, FakeTableSystem, Fault

CASE = case_of(32)
EFFORT: Effort = replace(QUICK, rounds=2, awaited_s=0.2)
NONE = frozenset[str]()
BLOCKS = 16


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(w21_table_bulk, "BLOCKS", BLOCKS)


async def rows_of(
    workload: Workload, fault: Fault = "none", label: Label | None = None
) -> list[dict[str, object]]:
    clock = FakeStopwatch()
    results, conditions = Results(), Conditions(EFFORT, clock, tell=lambda _: None)
    system = FakeTableSystem(clock, fault, label)
    await run_case(workload, CASE, [system], conditions=conditions, results=results)
    assert results.failures == []
    return results.rows


@pytest.mark.parametrize("workload", [DistinctKeys(NONE), GetHot(NONE)])
async def test_calls_of_one_entry_report_the_time_that_each_caller_waits(
    workload: Workload,
) -> None:
    [row] = await rows_of(workload)

    assert row["verified"] is True
    assert row["events_per_s"] == pytest.approx(1 / CALL_SECONDS)
    assert row["p50_ms"] == pytest.approx(CALLERS * CALL_SECONDS * 1000)


@pytest.mark.parametrize("workload", [PutMany(NONE), GetMany(NONE)])
async def test_calls_of_many_entries_count_the_entries(workload: Workload) -> None:
    [row] = await rows_of(workload)

    assert row["verified"] is True
    assert row["events_per_s"] == pytest.approx(1_000 / CALL_SECONDS)


@pytest.mark.parametrize("workload", [ScanAll(NONE), ScanArrow(NONE)])
async def test_a_scan_counts_the_entries_of_the_table(workload: Workload) -> None:
    [row] = await rows_of(workload)

    assert row["verified"] is True
    assert row["events_per_s"] == pytest.approx(BLOCKS * 1_000 / CALL_SECONDS)


async def test_the_first_read_of_every_entry_has_a_rate_of_its_own() -> None:
    [row] = await rows_of(GetMany(NONE))

    assert row["notes"] == {"first/s": pytest.approx(1_000 / CALL_SECONDS)}


async def test_contended_updates_count_once_each_however_often_they_are_refused() -> None:
    [row] = await rows_of(SharedKeys(NONE))

    assert row["verified"] is True
    assert isinstance(row["notes"], dict)
    assert row["notes"]["conflicts/put"] > 1


@pytest.mark.parametrize(
    ("workload", "fault"),
    [
        (DistinctKeys(NONE), "loses updates"),
        (DistinctKeys(NONE), "refuses"),
        (SharedKeys(NONE), "loses updates"),
        (SharedKeys(NONE), "ignores versions"),
        (PutMany(NONE), "leaves out"),
        (GetHot(NONE), "misreads"),
        (GetMany(NONE), "misreads"),
        (ScanAll(NONE), "leaves out"),
        (ScanAll(NONE), "miscounts"),
        (ScanArrow(NONE), "miscounts"),
    ],
)
async def test_a_table_that_is_wrong_is_reported(workload: Workload, fault: Fault) -> None:
    [row] = await rows_of(workload, fault)

    assert row["verified"] is False


@pytest.mark.parametrize(
    "label",
    [
        Label("redis", "everysec", "D1"),
        Label("disk", "bare", "D2"),
        Label("redis", "left out", "D2"),
    ],
)
async def test_a_system_that_does_not_sync_or_has_no_tables_takes_no_part(label: Label) -> None:
    assert await rows_of(DistinctKeys(frozenset({"left out"})), label=label) == []
    assert await rows_of(ScanArrow(frozenset({"left out"}), frozenset({"redis"}))) == []
