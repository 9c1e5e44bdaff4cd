"""The load of writers: every event once and acknowledged, bounded by events, time and memory."""

import asyncio
from dataclasses import replace
from itertools import count, cycle

import pytest

from anabranch.cli.perf.ending import Ending
from anabranch.cli.perf.load.payloads import all_numbered, index_of, pool_of
from anabranch.cli.perf.order import Order
from anabranch.cli.perf.writing import BUFFER_SIZE_BYTES, Plan, WriteLoad
from anabranch.client import StreamSealed
from anabranch.common.runtime.clock import SystemClock
from kit.client_bench import STREAM, Bench, bench, until

POOL = pool_of(16, 10)
PLAN = Plan(lambda _: all_numbered(POOL), event_size_bytes=16, batch_count=4, events_max=50)


def load_of(b: Bench, plan: Plan, seconds: float | None = None) -> tuple[WriteLoad, Ending]:
    clock = SystemClock()
    ending = Ending(clock, seconds)
    return WriteLoad(b.client, STREAM, plan, clock=clock, ending=ending), ending


async def test_it_ends_when_its_events_are_acknowledged() -> None:
    async with bench() as b:
        load, _ = load_of(b, PLAN)
        await load.run()

        assert [index_of(payload) for payload in await b.payloads()] == list(range(50))
    progress = load.progress
    assert (progress.sent, progress.acknowledged, progress.in_flight) == (50, 50, 0)
    assert progress.batches_in_flight == 0
    assert progress.latency.count == 50
    assert progress.seconds > 0


async def test_events_take_the_keys_in_turn() -> None:
    async with bench(segment_count=3) as b:
        load, _ = load_of(b, replace(PLAN, keys=7))
        await load.run()

        order = Order(7)
        for key, payloads in (await b.by_key()).items():
            for payload in payloads:
                order.take(key, index_of(payload))
    assert order.is_right(50)


async def test_writers_share_the_events() -> None:
    async with bench() as b:
        load, _ = load_of(b, replace(PLAN, events=lambda _: cycle(POOL), writers=4))
        await load.run()

        assert len(await b.payloads()) == 50
    assert load.progress.acknowledged == 50


@pytest.mark.parametrize("writers", [1, 3, 64])
def test_the_buffers_of_all_writers_are_as_large_as_one(writers: int) -> None:
    size = replace(PLAN, writers=writers).settings.buffer_size_bytes

    assert BUFFER_SIZE_BYTES - writers < size * writers <= BUFFER_SIZE_BYTES


def test_each_buffer_has_room_for_some_of_the_largest_events() -> None:
    event_bytes = 8 * 1024 * 1024
    plan = Plan(lambda _: cycle(POOL), event_bytes, 1, writers=64)

    assert plan.settings.buffer_size_bytes >= 4 * event_bytes


async def test_at_a_rate_no_event_comes_before_it_is_due() -> None:
    async with bench() as b:
        load, _ = load_of(b, replace(PLAN, rate_per_s=5_000.0))
        await load.run()

    assert load.progress.acknowledged == 50
    assert load.progress.seconds >= 49 / 5_000


@pytest.mark.parametrize("rate_per_s", [None, 2_000.0])
async def test_an_interrupt_ends_it_with_all_that_was_sent_acknowledged(
    rate_per_s: float | None,
) -> None:
    endless = Plan(lambda _: all_numbered(POOL), 16, 4, rate_per_s=rate_per_s)
    async with bench() as b, asyncio.TaskGroup() as tasks:
        load, ending = load_of(b, endless)
        running = tasks.create_task(load.run())
        await until(lambda: load.progress.acknowledged > 10)
        ending.interrupt()
        await running

        assert [index_of(one) for one in await b.payloads()] == list(range(load.progress.sent))
    assert load.progress.acknowledged == load.progress.sent


async def test_the_time_ends_it() -> None:
    async with bench() as b:
        load, _ = load_of(b, Plan(lambda _: cycle(POOL), 16, 4), seconds=0.3)
        await load.run()

    assert load.progress.acknowledged == load.progress.sent > 0


async def test_the_writers_failure_ends_it() -> None:
    async with bench() as b:
        b.seal()
        load, _ = load_of(b, PLAN)
        with pytest.raises(StreamSealed):
            await load.run()

    assert load.progress.acknowledged == 0


async def test_events_that_wait_are_in_flight() -> None:
    async with bench() as b, asyncio.TaskGroup() as tasks:
        numbers = count()
        load, ending = load_of(b, Plan(lambda _: (b"%d" % n for n in numbers), 1, 4))
        running = tasks.create_task(load.run())
        seen = set[int]()

        def has_waited() -> bool:
            seen.add(load.progress.in_flight)
            return max(seen) > 0 and load.progress.acknowledged > 0

        await until(has_waited)
        ending.interrupt()
        await running
    assert load.progress.in_flight == 0
