"""Read and audit in Spark, with Spark's answers given by hand, and the files of comparison."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.case import QUICK, Case, Supply, case_of
from bench.rounds import Conditions, Results, run_case
from bench.spark_child import READY_SUFFIX
from bench.systems.arrow import PARQUET, ArrowStream
from bench.systems.port import NOT_KEPT, Label, SparkSource
from bench.workloads import w13_audit
from bench.workloads.w13_audit import SparkAudit
from bench.workloads.w13_spark import SparkRead
from kit.bench_fake import FakeStopwatch

CASE = case_of(32)
EFFORT = replace(QUICK, rounds=2, bytes_max=2 * CASE.pool_bytes)


class FakeSystem:
    """Keeps what is written, for the answers."""

    label = Label("arrow", "by hand", NOT_KEPT)

    def __init__(self) -> None:
        self.events: list[bytes] = []

    def pids(self) -> list[int]:
        return []

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator["FakeSystem"]:
        self.events = []
        yield self

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        for batch in batches:
            self.events += batch

    async def spark_source(self, source: str) -> SparkSource:
        return SparkSource("by-hand", {"tier2": source, "stream": "by/hand"})


class AnsweredByHand:
    """In place of `SparkProcess`; `lost` events are not seen."""

    def __init__(self, system: FakeSystem, lost: int = 0) -> None:
        self._system = system
        self._lost = lost

    async def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        json.dumps(request)  # it goes through a pipe as this
        seen = self._system.events[self._lost :]
        if "audit" in request:
            return {"seconds": 0.5, "events": len(seen), "healthy": True}
        if request["check"]:
            return {"events": len(seen), "sum": sum(map(crc32, seen))}
        return {"seconds": 0.5, "events": len(seen), "bytes": sum(map(len, seen))}


async def row_of_read(lost: int = 0) -> dict[str, object]:
    system, workload = FakeSystem(), SparkRead("W13", "tier2", frozenset())
    workload._spark = AnsweredByHand(system, lost)  # type: ignore[assignment]
    clock = FakeStopwatch()
    results, conditions = Results(), Conditions(EFFORT, clock, tell=lambda _: None)
    await run_case(workload, CASE, [system], conditions=conditions, results=results)
    [row] = results.rows
    return row


async def test_a_read_reports_what_spark_took_for_all_events() -> None:
    row = await row_of_read()
    assert row["verified"] is True
    assert row["events_per_s"] == pytest.approx(2 * len(CASE.events) / 0.5)
    assert row["cpu_us_per_event"] is None


async def test_a_read_that_misses_an_event_is_reported() -> None:
    assert (await row_of_read(lost=1))["verified"] is False


@pytest.mark.parametrize("lost", [0, 1])
async def test_an_audit_has_a_least_size_and_must_count_every_event(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(w13_audit, "BYTES_MIN", 5 * CASE.pool_bytes)
    system, workload = FakeSystem(), SparkAudit(frozenset())
    workload._spark = AnsweredByHand(system, lost)  # type: ignore[assignment]
    sample = await workload.measure(system, CASE, EFFORT, FakeStopwatch(), warm_up=False)
    assert (sample.events, sample.seconds) == (5 * len(CASE.events), 0.5)
    assert sample.verified is (lost == 0)


def test_ready_batches_hold_every_event_once(tmp_path: Path) -> None:
    supply = Supply(CASE, FakeStopwatch(), 1.0, 3 * CASE.pool_bytes)
    asyncio.run(ArrowStream(tmp_path).write_all(supply))
    found: list[bytes] = []
    for path in sorted(tmp_path.glob(f"*{READY_SUFFIX}")):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                found += batch.column("event").to_pylist()
    assert sorted(found) == sorted(CASE.events * 3)


def test_the_parquet_files_hold_every_event_once(tmp_path: Path) -> None:
    supply = Supply(CASE, FakeStopwatch(), 1.0, 3 * CASE.pool_bytes)
    asyncio.run(ArrowStream(tmp_path, PARQUET).write_all(supply))
    tables = [pq.read_table(path) for path in sorted(tmp_path.glob("*.parquet"))]
    found = [event for table in tables for event in table.column("event").to_pylist()]
    assert sorted(found) == sorted(CASE.events * 3)
