"""The writes of Spark, with Spark's answers given by hand."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.case import QUICK, Case, case_of
from bench.systems.port import NOT_KEPT, Label, SparkSource
from bench.workloads.w13_spark_sink import WRITES_PER_ROUND, SparkWrite
from kit.bench_fake import FakeStopwatch

CASE = case_of(100)
EFFORT = replace(QUICK, bytes_max=300_000)
COUNT = EFFORT.bytes_max // 100 // WRITES_PER_ROUND


class FakeSystem:
    """A stream to which Spark writes."""

    label = Label("anabranch", "by hand", NOT_KEPT)

    def pids(self) -> list[int]:
        return []

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator["FakeSystem"]:
        yield self

    async def write_all(self, batches: object) -> None:
        raise AssertionError("Spark writes")

    async def spark_source(self, source: str) -> SparkSource:
        return SparkSource("by-hand", {"source": source})


class AnsweredByHand:
    """In place of `SparkProcess`; `repeated` events are there twice."""

    def __init__(self, repeated: int = 0) -> None:
        self.events = repeated

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request:
            case {"write": count, "check": False}:
                self.events += count
                return {"seconds": 0.5}
            case {"write": count, "check": True}:
                return {"sum": 7 * count}
        return {"events": self.events, "sum": 7 * self.events}


@pytest.mark.parametrize(("repeated", "verified"), [(0, True), (1, False)])
async def test_a_round_counts_its_writes_and_verifies_that_each_event_is_there_once(
    repeated: int, verified: bool
) -> None:
    workload = SparkWrite(frozenset({"left out"}))
    workload._spark = AnsweredByHand(repeated)  # type: ignore[assignment]
    clock = FakeStopwatch()
    sample = await workload.measure(FakeSystem(), CASE, EFFORT, clock, warm_up=False)
    assert (sample.events, sample.seconds) == (WRITES_PER_ROUND * COUNT, 0.5 * WRITES_PER_ROUND)
    assert sample.verified is verified


def test_only_streams_that_spark_can_write_to_are_measured() -> None:
    workload = SparkWrite(frozenset({"left out"}))
    assert workload.suits(FakeSystem.label)
    assert not workload.suits(Label("anabranch", "left out", NOT_KEPT))
    assert not workload.suits(Label("arrow", "ready", NOT_KEPT))
