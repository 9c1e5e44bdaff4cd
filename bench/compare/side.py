"""Measures workloads of one checkout: a program that `bench.compare` starts for each side.

    python -P side.py --workload W3 --effort quick --data DIR --result FILE

It belongs to the checkout that compares, but all it imports is the code of the checkout that it
measures: the workloads, the client and, through the inherited `PYTHONPATH`, the servers. It
therefore uses only those names of `bench` that do not change: the protocol `Workload`, the
catalogue, the efforts.

Only Anabranch is measured, not the other systems. One line of JSON is added to the result for each
row as soon as it is there, so a side that dies keeps its finished rows. Systems whose rounds start
a cluster of their own have one round and no warm-up, the others as many as the effort says. Rounds
that only time bounds are longer than those of a quick run, which makes their figures steadier.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import uvloop

from bench.case import Case, Effort, Sample, case_of
from bench.catalogue import systems, workloads
from bench.clock import SystemStopwatch
from bench.machine import StealMeter
from bench.rounds import running
from bench.run import EFFORTS
from bench.systems.anabranch import AnabranchApart
from bench.systems.port import System
from bench.workloads.port import Workload

OURS = "anabranch"
WARM_UP_SECONDS_MIN = 0.2
AWAITED_SECONDS_MIN = 0.5
TAIL_SECONDS_MIN = 1.0
Line = dict[str, object]


async def measure(name: str, effort: Effort, directory: Path, add: Callable[[Line], None]) -> None:
    """All rows of a workload, in the catalogue's order."""
    chosen = workloads([name])
    ours = [
        system
        for system in systems(effort)
        if system.label.system == OURS and any(each.suits(system.label) for each in chosen)
    ]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(ours, directory))
        for workload in chosen:
            if isinstance(workload, AbstractAsyncContextManager):
                await stack.enter_async_context(workload)
            for case in map(case_of, workload.event_bytes):
                for system in (each for each in ours if workload.suits(each.label)):
                    add(await line_of(workload, case, system, effort))


async def line_of(workload: Workload, case: Case, system: System, effort: Effort) -> Line:
    """One row: the medians of its rounds, or the error on which it failed."""
    line: Line = {
        "workload": workload.name,
        "event_bytes": case.event_bytes,
        "settings": system.label.settings,
    }
    rounds: list[tuple[Sample, float]] = []
    try:
        await _measure_rounds(workload, case, system, effort, rounds)
        line |= _figures([sample for sample, _ in rounds])
    except Exception as error:  # noqa: BLE001 - the other rows must not be lost
        line |= {"error": f"{type(error).__name__}: {error}"}
    return line | {
        "verified": all(sample.verified for sample, _ in rounds),
        "steal_percent": max((stolen for _, stolen in rounds), default=0.0),
    }


async def _measure_rounds(
    workload: Workload,
    case: Case,
    system: System,
    effort: Effort,
    rounds: list[tuple[Sample, float]],
) -> None:
    """Add each round to `rounds`, with the percentage of its time that the host stole."""
    clock, count = SystemStopwatch(), effort.rounds
    if isinstance(system, AnabranchApart):
        count = 1
    else:
        await workload.measure(system, case, effort, clock, warm_up=True)
    for _ in range(count):
        await asyncio.to_thread(os.sync)
        steal = StealMeter()
        sample = await workload.measure(system, case, effort, clock, warm_up=False)
        rounds.append((sample, steal.percent()))


def _figures(samples: Sequence[Sample]) -> Line:
    return {
        "events_per_s": median(sample.events / sample.seconds for sample in samples),
        "p50_ms": _median([sample.p50_ms for sample in samples]),
        "ack_p50_ms": _median([sample.ack_p50_ms for sample in samples]),
    }


def at_least(effort: Effort) -> Effort:
    """The effort, with rounds long enough for a comparison."""
    return replace(
        effort,
        warm_up_s=max(effort.warm_up_s, WARM_UP_SECONDS_MIN),
        awaited_s=max(effort.awaited_s, AWAITED_SECONDS_MIN),
        tail_s=max(effort.tail_s, TAIL_SECONDS_MIN),
    )


def _median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


def foreign(root: Path) -> Iterator[str]:
    """The packages of the checkout at `root` whose code would be taken from somewhere else."""
    folders = [*root.glob("libs/*/src/anabranch/*/"), *root.glob("services/*/src/anabranch/*/")]
    names = [f"anabranch.{folder.name}" for folder in folders if folder.name.isidentifier()]
    for name in sorted({"bench", *names} - {"anabranch.__pycache__"}):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places or not Path(places[0]).resolve().is_relative_to(root):
            yield f"{name} of {places[0] if places else 'nowhere'}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="side", description="measure this checkout")
    parser.add_argument("--workload", required=True)
    parser.add_argument("--effort", choices=sorted(EFFORTS), required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    if wrong := list(foreign(Path.cwd().resolve())):
        sys.stderr.write(f"error: this would measure another checkout: {', '.join(wrong)}\n")
        return 2

    def add(line: Line) -> None:
        with options.result.open("a") as result:
            result.write(json.dumps(line) + "\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        effort = at_least(EFFORTS[options.effort])
        runner.run(measure(options.workload, effort, options.data, add))
    return 0


if __name__ == "__main__":
    sys.exit(main())
