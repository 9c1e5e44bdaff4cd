"""Interleaved rounds: every system does one round, then every system the next, in rotated order.

So what disturbs the machine for a while disturbs all of them. Before each round what the kernel
still holds of other systems' writes is put on disk, or a later round would pay for it. The rows
hold the median of the rounds with the least and the greatest.

If the host steals more than `steal_percent_max` of the machine's time during a round, the round is
repeated, `REPEATS_MAX` times for a row at most; the attempt with the least stolen time counts. An
attempt that lost events spoils its row even if it does not count.

A system that fails takes no further part in its case. The case's row becomes a failure; the rows of
the other systems and of the other cases stay.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from anabranch.common.errors import AnabranchError
from bench.case import Case, Effort, Sample, case_of
from bench.clock import Stopwatch
from bench.machine import StealMeter
from bench.stats import rotated, spread
from bench.systems.port import System
from bench.workloads.port import Workload

Row = dict[str, object]
Failure = dict[str, object]
Tell = Callable[[str], None]

STEAL_PERCENT_MAX = 5.0
"""In a short round one tick of 10 ms is half a per cent of two processors' time, or more."""
REPEATS_MAX = 3
MEASURE_SECONDS_MAX = 1_800.0
"""A system that has not finished its round by then has failed."""


class Steal(Protocol):
    """Measures, from when it was made, the share of the machine's time that the host stole."""

    def percent(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Conditions:
    """How every case of a run is measured."""

    effort: Effort
    clock: Stopwatch
    tell: Tell
    steal_meter: Callable[[], Steal] = StealMeter
    steal_percent_max: float = STEAL_PERCENT_MAX
    measure_seconds_max: float = MEASURE_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Attempt:
    """One round that was measured, and the host's share of that time."""

    sample: Sample
    steal_percent: float


@dataclass(slots=True)
class Results:
    """The rows and failures of a run so far."""

    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @contextmanager
    def containing(
        self, workload: str, event_bytes: int = 0, system: System | None = None
    ) -> Iterator[None]:
        """Note any error of the block as a failure of the workload, and carry on after the block.

        Without a system the failure is that of all systems, such as a server that does not start.
        `verified` becomes False for a system that lost events before it failed.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the other cases' results must not be lost
            self.failures.append(
                {
                    "workload": workload,
                    "event_bytes": event_bytes,
                    "system": system.label.system if system else "all",
                    "settings": system.label.settings if system else "",
                    "error": error_text(error),
                    "verified": True,
                }
            )


def error_text(error: BaseException) -> str:
    """An error in one line; of a group, the errors that it holds."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(inner) for inner in error.exceptions)
    remedy = f" / try: {error.remedy}" if isinstance(error, AnabranchError) else ""
    text = " ".join(f"{error}".split())
    return f"{type(error).__name__}: {text}{remedy}" if text else type(error).__name__


def is_repeated(steal_percent: float, *, percent_max: float, repeats: int) -> bool:
    """Whether a round is measured again, after so many repeats for the same row."""
    return steal_percent > percent_max and repeats < REPEATS_MAX


def counted(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt at a round that counts; verified only if every attempt was."""
    least = min(attempts, key=lambda attempt: attempt.steal_percent)
    verified = all(attempt.sample.verified for attempt in attempts)
    return replace(least, sample=replace(least.sample, verified=verified))


@asynccontextmanager
async def running(systems: Sequence[System], directory: Path) -> AsyncIterator[None]:
    """All the systems' servers up, each with a fresh directory of its own."""
    async with AsyncExitStack() as stack:
        for number, system in enumerate(systems):
            own = directory / f"{number}-{system.label.system}"
            own.mkdir(parents=True)
            await stack.enter_async_context(system.run(own))
        yield


class _Entrant:
    """One system in one case: its rounds so far."""

    def __init__(
        self, system: System, workload: Workload, case: Case, conditions: Conditions
    ) -> None:
        self._system = system
        self._workload = workload
        self._case = case
        self._conditions = conditions
        self._rounds: list[Attempt] = []
        self._repeats = 0
        self._is_verified = True
        self.takes_part = True

    @contextmanager
    def contained(self, results: Results) -> Iterator[None]:
        """Perform a step; if it fails, the system takes part in no further one."""
        self.takes_part = False
        with results.containing(self._workload.name, self._case.event_bytes, self._system):
            yield
            self.takes_part = True
        if not self.takes_part:
            results.failures[-1]["verified"] = self._is_verified

    async def warm_up(self) -> None:
        self._tell("warm-up")
        await self._measure(warm_up=True)

    async def round(self, number: int) -> None:
        attempts: list[Attempt] = []
        while True:
            self._tell(f"round {number + 1}{' again' if attempts else ''}")
            await asyncio.to_thread(os.sync)
            steal = self._conditions.steal_meter()
            sample = await self._measure(warm_up=False)
            self._is_verified = self._is_verified and sample.verified
            stolen = steal.percent()
            attempts.append(Attempt(sample, stolen))
            percent_max = self._conditions.steal_percent_max
            if not is_repeated(stolen, percent_max=percent_max, repeats=self._repeats):
                break
            self._repeats += 1
        self._rounds.append(counted(attempts))

    def row(self) -> Row:
        samples = [each.sample for each in self._rounds]
        row = row_of(self._workload.name, self._case.event_bytes, self._system, samples)
        steal_percent = max(each.steal_percent for each in self._rounds)
        return {**row, "steal_percent": steal_percent, "repeats": self._repeats}

    async def _measure(self, *, warm_up: bool) -> Sample:
        effort, clock = self._conditions.effort, self._conditions.clock
        async with asyncio.timeout(self._conditions.measure_seconds_max):
            return await self._workload.measure(
                self._system, self._case, effort, clock, warm_up=warm_up
            )

    def _tell(self, step: str) -> None:
        label = self._system.label
        case = f"{self._workload.name} {self._case.event_bytes} B"
        self._conditions.tell(f"{case}: {step} of {label.system} ({label.settings})")


async def run_case(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    conditions: Conditions,
    results: Results,
) -> None:
    """All rounds of one workload with one size of event, on systems that run.

    `results` gets a row for each system, or a failure.
    """
    entrants = [
        _Entrant(system, workload, case, conditions)
        for system in systems
        if workload.suits(system.label)
    ]
    for entrant in entrants:
        with entrant.contained(results):
            await entrant.warm_up()
    for number in range(conditions.effort.rounds):
        for entrant in rotated(entrants, number):
            if entrant.takes_part:
                with entrant.contained(results):
                    await entrant.round(number)
    for entrant in entrants:
        if entrant.takes_part:
            with entrant.contained(results):
                results.rows.append(entrant.row())


async def run_workload(
    workload: Workload,
    systems: Sequence[System],
    *,
    conditions: Conditions,
    results: Results,
    fresh_in: Path | None,
) -> None:
    """All sizes of a workload; `fresh_in`: start the systems there for each size, and stop them."""
    for event_bytes in workload.event_bytes:
        case = case_of(event_bytes)
        if fresh_in is None:
            await run_case(workload, case, systems, conditions=conditions, results=results)
            continue
        chosen = [system for system in systems if workload.suits(system.label)]
        with results.containing(workload.name, event_bytes):
            async with running(chosen, fresh_in / f"{workload.name}-{event_bytes}"):
                await run_case(workload, case, chosen, conditions=conditions, results=results)


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
