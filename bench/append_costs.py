"""What one awaited append costs, on the client and on the store, beside nothing else.

    .venv/bin/python -m bench.append_costs [--events 2000] [--rounds 7] [--out DIR]

The workload is W3 of docs/performance.md: one event of 1 KB at a time. The table has

    processor time      of the least of the rounds, because other work on the machine only adds
    by the clock        the same: from one append to the next one
    bare packets        both for two programs on uvloop that exchange packets of the same sizes,
    and a sync          one of which writes each packet synced: the least that there can be
    system calls        by name, and the bytes that they moved; needs strace and the right to trace
    turns of the loop   the waits for the kernel (epoll)
    the rest            handles, futures, tasks, timers, hops from threads, calls of functions

Only the first pass measures time. The other two slow the processes down, and count. The store
writes its journal inline, as it does by itself where syncs are fast.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from bench.append_counts import CountingLoop, Counts
from bench.append_floor import bare_appends
from bench.case import case_of
from bench.systems.anabranch import Anabranch, AnabranchStream
from bench.systems.process import until

WARM_UP_EVENTS = 300
WAIT_SECONDS_MAX = 20.0
_INLINE = {"ANABRANCH_SEGSTORE_JOURNAL_WRITER": "inline"}
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(.*\) += (-?\d+)")
_MOVING = ("read", "write", "recv", "send", "pread", "pwrite")
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sides:
    """The same figures of the client and of the store, for one append."""

    client: Figures
    store: Figures


def calls_of(trace: Iterable[str]) -> Counter[str]:
    """The system calls in the lines of strace, and the bytes that they moved, by name."""
    found: Counter[str] = Counter()
    for line in trace:
        if (call := _CALL.match(line)) is None:
            continue
        name, result = call[1], int(call[2])
        found[f"{name}()"] += 1
        if name.startswith("epoll") and "wait" in name:
            found["turns of the loop"] += 1
        if name.startswith(_MOVING) and result > 0:
            found[f"bytes of {name}()"] += result
    return found


def table(sides: Sides, least: float = 0.05) -> list[str]:
    """One line per figure of at least `least` on one side, as Markdown."""
    lines = ["| per append | client | store |", "|---|---|---|"]
    for name in dict.fromkeys((*sides.client, *sides.store)):
        client, store = sides.client.get(name, 0.0), sides.store.get(name, 0.0)
        if max(client, store) >= least:
            lines.append(f"| {name} | {client:.1f} | {store:.1f} |")
    return lines


def per_append(counts: Mapping[str, int], appends: int) -> Figures:
    """The counts of so many appends, for one, in the order of their names."""
    return {name: count / appends for name, count in sorted(counts.items())}


async def _append(stream: AnabranchStream, events: Iterable[bytes]) -> None:
    """Append one event after the other."""
    for event in events:
        await stream.append(event)


async def _least_times(
    append_all: Callable[[], Awaitable[None]], count: int, store: int, rounds: int, of: str = ""
) -> Sides:
    """The least times of both sides for one of the `count` appends of a round, in µs."""
    client_us, store_us, clock_us = [], [], []
    for _ in range(rounds):
        began_ns = time.monotonic_ns()
        client_ns, store_ns = time.thread_time_ns(), _thread_ns(store)
        await append_all()
        client_us.append((time.thread_time_ns() - client_ns) / count / 1000)
        store_us.append((_thread_ns(store) - store_ns) / count / 1000)
        clock_us.append((time.monotonic_ns() - began_ns) / count / 1000)
    processor, clock = f"µs of the processor{of}", f"µs by the clock{of}"
    return Sides({processor: min(client_us), clock: min(clock_us)}, {processor: min(store_us)})


async def _floor(directory: Path, count: int, rounds: int) -> Sides:
    await asyncio.to_thread(directory.mkdir)
    async with bare_appends(directory) as (append, server):

        async def append_all() -> None:
            for _ in range(count):
                await append()

        await append_all()
        return await _least_times(append_all, count, server, rounds, ", bare packets and a sync")


def _thread_ns(pid: int) -> int:
    """The processor time of a process's main thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


async def _system_calls(
    stream: AnabranchStream, pid: int, events: Sequence[bytes], directory: Path
) -> Figures:
    """Empty without strace, or without the right to trace."""
    trace = directory / f"{pid}.strace"
    if (program := shutil.which("strace")) is None:
        return {}
    command = (program, "-f", "-qq", "-s", "0", "-o", str(trace), "-p", str(pid))
    tracer = await asyncio.create_subprocess_exec(*command)

    async def is_tracing() -> bool:
        await stream.append(events[0])  # this process shows calls only while it makes some
        return tracer.returncode is not None or _is_filled(trace)

    await until(is_tracing, WAIT_SECONDS_MAX)
    size = await asyncio.to_thread(lambda: trace.stat().st_size)
    await _append(stream, events)
    if tracer.returncode is not None:
        return {}
    tracer.send_signal(signal.SIGINT)
    await tracer.wait()
    text = await asyncio.to_thread(trace.read_text)
    return per_append(calls_of(text[size:].splitlines()), len(events))


def _is_filled(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


async def _counted(
    stream: AnabranchStream, store: int, events: Sequence[bytes], counts: Counts, file: Path
) -> Sides:
    async def is_told() -> bool:
        await stream.append(events[0])  # Python handles a signal when its loop turns
        return _is_filled(file)

    os.kill(store, signal.SIGUSR1)
    counts.start()
    await _append(stream, events)
    client = counts.stop()
    os.kill(store, signal.SIGUSR1)
    await until(is_told, WAIT_SECONDS_MAX)
    found = await asyncio.to_thread(lambda: json.loads(file.read_text()))
    return Sides(per_append(client, len(events)), per_append(found, len(events)))


def _counting(file: Path) -> Callable[[ClusterPlan], Sequence[PartSpec]]:
    """The parts of a cluster whose store counts, and leaves the counts in the file."""
    command = (sys.executable, "-m", "bench.append_counts", str(file))

    def parts(plan: ClusterPlan) -> Sequence[PartSpec]:
        return [
            replace(part, command=command) if part.name.startswith("segstore") else part
            for part in cluster_parts(plan)
        ]

    return parts


@asynccontextmanager
async def _stream(
    directory: Path, parts: Callable[[ClusterPlan], Sequence[PartSpec]]
) -> AsyncIterator[tuple[AnabranchStream, int]]:
    """A stream of a fresh cluster, warm, and the process id of its store."""
    system, case = Anabranch("append costs", _INLINE, parts=parts), case_of(1_024)
    await asyncio.to_thread(directory.mkdir)
    async with system.run(directory), system.stream(case) as stream:
        await _append(stream, islice(cycle(case.events), WARM_UP_EVENTS))
        yield stream, system.pids_of("segstore")[0]


async def measure(directory: Path, event_count: int, rounds: int, counts: Counts) -> Sides:
    """All figures of one append. The running loop is a `CountingLoop` of these `counts`."""
    events = list(islice(cycle(case_of(1_024).events), event_count))
    counts_file = directory / "counts.json"
    async with _stream(directory / "timed", cluster_parts) as (stream, store):
        times = await _least_times(lambda: _append(stream, events), len(events), store, rounds)
        client_calls = await _system_calls(stream, os.getpid(), events, directory)
        store_calls = await _system_calls(stream, store, events, directory)
    async with _stream(directory / "counted", _counting(counts_file)) as (stream, store):
        counted = await _counted(stream, store, events, counts, counts_file)
    floor = await _floor(directory / "floor", event_count, rounds)
    return Sides(
        {**times.client, **floor.client, **client_calls, **counted.client},
        {**times.store, **floor.store, **store_calls, **counted.store},
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.append_costs", description=__doc__)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="the disk to use")
    chosen = parser.parse_args()
    counts = Counts()
    with (
        TemporaryDirectory(dir=chosen.out) as directory,
        asyncio.Runner(loop_factory=lambda: CountingLoop(counts)) as runner,
    ):
        sides = runner.run(measure(Path(directory), chosen.events, chosen.rounds, counts))
    sys.stdout.write("\n".join(table(sides)) + "\n")


if __name__ == "__main__":
    main()
