"""Pools of threads: bounded, apart from each other, and no burden at the end."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from anabranch.common.runtime.threads import ThreadPool, run_in_daemon

HANGING = 3


class Gate:
    """Work that hangs until the gate opens."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.count = 0

    def work(self) -> str:
        self.count += 1
        self.entered.release()
        self.opened.wait()
        return threading.current_thread().name


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


async def test_work_runs_in_a_daemon_thread_and_its_error_is_the_callers() -> None:
    def fail() -> None:
        raise PermissionError("not allowed")

    pool = ThreadPool("disk", 1)
    assert await pool.run(lambda: threading.current_thread().daemon)
    with pytest.raises(PermissionError):
        await pool.run(fail)
    assert await run_in_daemon("once", lambda: 7) == 7


async def test_a_pool_that_hangs_holds_up_no_other_one(gate: Gate) -> None:
    tier_two, journal = ThreadPool("tier2", HANGING), ThreadPool("journal", 1)
    async with asyncio.TaskGroup() as group:
        hung = [group.create_task(tier_two.run(gate.work)) for _ in range(10 * HANGING)]
        for _ in range(HANGING):
            await asyncio.to_thread(gate.entered.acquire)
        assert await journal.run(lambda: "read") == "read"
        assert gate.count == HANGING
        gate.opened.set()
    assert len({task.result() for task in hung}) <= HANGING


async def test_a_caller_that_stops_waiting_for_a_thread_leaves_no_work_behind(gate: Gate) -> None:
    pool = ThreadPool("tier2", HANGING)
    async with asyncio.TaskGroup() as group:
        given_up = [group.create_task(pool.run(gate.work)) for _ in range(4 * HANGING)]
        for _ in range(HANGING):
            await asyncio.to_thread(gate.entered.acquire)
        for task in given_up:
            task.cancel()
    # the threads that hung are of use again, and what was given up never begins
    gate.opened.set()
    assert await pool.run(lambda: "works") == "works"
    assert gate.count == HANGING


def test_a_pool_is_of_use_when_an_earlier_loop_closed_over_its_work(gate: Gate) -> None:
    pool = ThreadPool("tier2", 2)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await pool.run(gate.work)

    asyncio.run(give_up())
    gate.opened.set()
    assert asyncio.run(pool.run(lambda: "works")) == "works"
