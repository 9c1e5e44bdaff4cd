"""Processes of a simulation pause, wake and die as real ones do, and their ways lose messages."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from anabranch.common.errors import OutcomeUnknown, RevisionConflict, Unavailable
from kit.process_objects import Bucket, ProcessObjects
from kit.processes import Process, Processes
from kit.rng import seeded
from kit.ways import Way, WayFaults

T = TypeVar("T")


def way_of(processes: Processes, process: Process) -> Way:
    return Way(processes, process, seeded(1), Counter())


def bucket() -> Bucket:
    return Bucket(lambda: 0, seeded(1))


class Program:
    """A process that counts the seconds of its own clock."""

    def __init__(self, processes: Processes, rate: float = 1.0) -> None:
        self.process = processes.new("counting", rate)
        self.ticks: list[float] = []
        self.process.start(self._run(processes))

    async def _run(self, processes: Processes) -> None:
        while True:
            await self.process.clock.sleep(1)
            self.ticks.append(processes.now_s)


def test_processes_run_side_by_side_in_virtual_time() -> None:
    processes = Processes()
    first, second = Program(processes), Program(processes)
    processes.run_for(3.5)
    assert first.ticks == second.ticks == pytest.approx([1, 2, 3])
    processes.end()


def test_a_paused_process_does_nothing_and_its_timers_are_due_when_it_wakes() -> None:
    processes = Processes()
    program = Program(processes)
    processes.later(1.5, program.process.pause)
    processes.later(7.0, program.process.wake)
    processes.run_for(8.5)
    assert program.ticks == pytest.approx([1, 7, 8])
    processes.end()


def test_a_process_can_pause_amid_what_one_event_began() -> None:
    processes = Processes()
    process = processes.new("paused")
    seen: dict[str, float] = {}

    async def run() -> None:
        await process.clock.sleep(1)
        seen["before"] = processes.now_s
        for _ in range(3):
            await asyncio.sleep(0)
        seen["after"] = processes.now_s

    process.start(run())
    processes.later(0.5, lambda: process.pause_in(2, 4.0))
    processes.run_for(9)
    assert seen == pytest.approx({"before": 1, "after": 5})
    processes.end()


def test_a_dead_process_never_runs_again() -> None:
    processes = Processes()
    program = Program(processes)
    deaths: list[float] = []
    program.process.at_death.append(lambda: deaths.append(processes.now_s))
    processes.later(1.5, program.process.kill)
    processes.later(1.6, program.process.kill)
    processes.run_for(5)
    assert program.ticks == pytest.approx([1])
    assert deaths == pytest.approx([1.5])
    processes.end()


def test_clocks_run_at_different_speeds() -> None:
    processes = Processes()
    fast, slow = Program(processes, 1.1), Program(processes, 0.9)
    began = fast.process.clock.monotonic()
    processes.run_for(9.5)
    assert (len(fast.ticks), len(slow.ticks)) == (10, 8)
    assert fast.process.clock.monotonic() - began == pytest.approx(1.1 * 9.5)
    processes.end()


def test_an_error_that_no_process_expected_ends_the_run() -> None:
    processes = Processes()
    process = processes.new("failing")

    async def fail() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(raising())

    async def raising() -> None:
        raise AssertionError("a promise is broken")

    process.start(fail())
    with pytest.raises(AssertionError, match="a promise is broken"):
        processes.run_for(1)
    processes.end()


def run(processes: Processes, process: Process, work: Coroutine[None, None, T]) -> T:
    """Let the process do the work to its end."""
    done: list[asyncio.Task[T]] = []

    def begin() -> None:
        done.append(process.loop.create_task(work))

    process.deliver(begin)
    assert processes.run(lambda: bool(done) and done[0].done(), 60)
    return done[0].result()


def test_a_request_is_performed_although_its_answer_is_lost() -> None:
    processes = Processes()
    process, kept = processes.new("asking"), bucket()
    way = way_of(processes, process)
    objects = ProcessObjects(kept, way, way_of(processes, process))
    kept.on_change = lambda _: way.break_off()
    with pytest.raises(OutcomeUnknown):
        run(processes, process, objects.create("key", b"value"))
    found = kept.get("key")
    assert found is not None
    assert found.value == b"value"
    processes.end()


def test_reads_over_a_cut_way_end_with_unavailable_and_succeed_when_it_is_mended() -> None:
    processes = Processes()
    process, kept = processes.new("asking"), bucket()
    kept.put("key", b"value")
    way = way_of(processes, process)
    objects = ProcessObjects(kept, way, way_of(processes, process))
    way.break_off()
    with pytest.raises(Unavailable):
        run(processes, process, objects.get("key"))
    way.mend()
    found = run(processes, process, objects.get("key"))
    assert found is not None
    assert found.value == b"value"
    processes.end()


def test_writes_are_refused_at_another_revision() -> None:
    processes = Processes()
    process, kept = processes.new("asking"), bucket()
    way = way_of(processes, process)
    objects = ProcessObjects(kept, way, way_of(processes, process))
    revision = run(processes, process, objects.create("key", b"1"))
    run(processes, process, objects.update("key", b"2", revision))
    with pytest.raises(RevisionConflict):
        run(processes, process, objects.update("key", b"3", revision))
    processes.end()


@pytest.mark.parametrize("slow_s", [0.0, 2.0])
def test_a_watch_brings_every_change_in_order_also_over_a_slow_way_that_was_cut(
    slow_s: float,
) -> None:
    processes = Processes()
    process, kept = processes.new("watching"), bucket()
    watches = way_of(processes, process)
    watches.faults = WayFaults(slow_s_max=slow_s, lost=0.5, late=0.5)
    objects = ProcessObjects(kept, way_of(processes, process), watches)
    seen: list[bytes] = []

    async def watch() -> None:
        while True:
            try:
                async for found in objects.watch():
                    if found is not None and found.value not in seen:
                        seen.append(found.value)
            except Unavailable:
                continue

    process.start(watch())
    for number in range(20):
        processes.later(1 + number, lambda number=number: kept.put("key", b"%d" % number))  # type: ignore[misc]
    processes.later(5.5, watches.break_off)
    processes.later(9.5, watches.mend)
    processes.run_for(40)
    assert seen == sorted(seen, key=int)
    assert seen[-1] == b"19"
    processes.end()


def test_messages_of_a_way_keep_their_order_but_for_late_ones() -> None:
    processes = Processes()
    process = processes.new("sending")
    way = way_of(processes, process)
    way.faults = WayFaults(slow_s_max=1.0)
    arrived: list[int] = []
    for number in range(10):
        way.send(lambda number=number: arrived.append(number))  # type: ignore[misc]
    processes.run_for(5)
    assert arrived == list(range(10))
    way.faults = WayFaults(late=1.0)
    way.send(lambda: arrived.append(10))
    processes.run_for(0.001)
    assert arrived[-1] == 9
    processes.run_for(10)
    assert arrived[-1] == 10
    processes.end()
