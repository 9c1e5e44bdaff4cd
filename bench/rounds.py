"""Interleaved rounds: every system does one round, then every system the next, in rotated order.

So what disturbs the machine for a while disturbs all of them. Before each round what the kernel
still holds of other systems' writes is put on disk, or a later round would pay for it. The rows
hold the median of the rounds with the least and the greatest.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.case import Case, Effort, Sample, case_of
from bench.clock import Stopwatch
from bench.stats import rotated, spread
from bench.systems.port import System
from bench.workloads.port import Workload

Row = dict[str, object]
Tell = Callable[[str], None]


@asynccontextmanager
async def running(systems: Sequence[System], directory: Path) -> AsyncIterator[None]:
    """All the systems' servers up, each with a fresh directory of its own."""
    async with AsyncExitStack() as stack:
        for number, system in enumerate(systems):
            own = directory / f"{number}-{system.label.system}"
            own.mkdir(parents=True)
            await stack.enter_async_context(system.run(own))
        yield


async def run_case(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    effort: Effort,
    clock: Stopwatch,
    tell: Tell,
) -> list[Row]:
    """All rounds of one workload with one size of event, on systems that run → a row each."""
    chosen = [system for system in systems if workload.suits(system.label)]
    samples: dict[int, list[Sample]] = {index: [] for index in range(len(chosen))}
    for system in chosen:
        tell(f"{workload.name} {case.event_bytes} B: warm-up of {_name(system)}")
        await workload.measure(system, case, effort, clock, warm_up=True)
    for number in range(effort.rounds):
        for index in rotated(range(len(chosen)), number):
            system = chosen[index]
            tell(f"{workload.name} {case.event_bytes} B: round {number + 1} of {_name(system)}")
            await asyncio.to_thread(os.sync)
            samples[index].append(
                await workload.measure(system, case, effort, clock, warm_up=False)
            )
    return [
        row_of(workload.name, case.event_bytes, system, samples[index])
        for index, system in enumerate(chosen)
    ]


async def run_workload(
    workload: Workload,
    systems: Sequence[System],
    *,
    effort: Effort,
    clock: Stopwatch,
    tell: Tell,
    fresh_in: Path | None,
) -> list[Row]:
    """All sizes of a workload; `fresh_in`: start the systems there for each size, and stop them."""
    rows: list[Row] = []
    for event_bytes in workload.event_bytes:
        case = case_of(event_bytes)
        if fresh_in is None:
            rows += await run_case(workload, case, systems, effort=effort, clock=clock, tell=tell)
            continue
        chosen = [system for system in systems if workload.suits(system.label)]
        async with running(chosen, fresh_in / f"{workload.name}-{event_bytes}"):
            rows += await run_case(workload, case, chosen, effort=effort, clock=clock, tell=tell)
    return rows


def row_of(workload: str, event_bytes: int, system: System, samples: Sequence[Sample]) -> Row:
    """The medians of the rounds; one round that is not verified spoils the row."""
    rates = [sample.events / sample.seconds for sample in samples]
    figures = {
        "events_per_s": rates,
        "mb_per_s": [rate * event_bytes / 1e6 for rate in rates],
    }
    row: Row = {
        "workload": workload,
        "system": system.label.system,
        "settings": system.label.settings,
        "durability": system.label.durability,
        "event_bytes": event_bytes,
        "rounds": len(samples),
        "verified": all(sample.verified for sample in samples),
        "range": {},
    }
    for name in ("p50_ms", "p99_ms", "ack_p50_ms", "ack_p99_ms"):
        values = [getattr(sample, name) for sample in samples]
        if None in values:
            row[name] = None
        else:
            figures[name] = values
    cpu_us = [_us_per_event(sample) for sample in samples]
    if None in cpu_us:
        row["cpu_us_per_event"] = None
    else:
        figures["cpu_us_per_event"] = [value for value in cpu_us if value is not None]
    ranges: dict[str, list[float]] = {}
    for name, values in figures.items():
        seen = spread(values)
        row[name] = round(seen.median, 3)
        ranges[name] = [round(seen.min, 3), round(seen.max, 3)]
    row["range"] = ranges
    row["notes"] = {
        name: round(spread([sample.notes[name] for sample in samples]).median, 3)
        for name in samples[0].notes
    }
    return row


def _us_per_event(sample: Sample) -> float | None:
    return None if sample.cpu_seconds is None else sample.cpu_seconds / sample.events * 1e6


def _name(system: System) -> str:
    return f"{system.label.system} ({system.label.settings})"
