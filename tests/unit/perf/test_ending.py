"""When a measurement ends: in virtual time, by Ctrl-C, and by a second Ctrl-C."""

import asyncio
import signal

import pytest

from anabranch.cli.perf.ending import Ending, ended_by_ctrl_c
from anabranch.common.runtime.clock import SystemClock
from kit.virtual_time import VirtualClock, run_virtual


def test_it_is_over_when_its_time_is_up_and_not_before() -> None:
    async def story() -> None:
        ending = Ending(VirtualClock(asyncio.get_running_loop()), 5.0)
        await asyncio.sleep(60)
        assert not ending.is_over
        ending.begin()
        await ending.pause(4.9)
        assert not ending.is_over
        await ending.pause(0.2)
        assert ending.is_over
        assert not ending.interrupted

    run_virtual(story())


def test_an_interrupt_ends_a_pause_at_once() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        ending = Ending(VirtualClock(loop), None)
        ending.begin()
        loop.call_later(3, ending.interrupt)
        await ending.pause(1000)
        assert ending.is_over
        return loop.time()

    assert run_virtual(story()) == pytest.approx(3)


@pytest.mark.parametrize(("seconds", "interrupt_s", "ends_s"), [(5.0, 9.0, 5.0), (None, 2.0, 2.0)])
def test_a_block_is_cut_off_without_an_error(
    seconds: float | None, interrupt_s: float, ends_s: float
) -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        ending = Ending(VirtualClock(loop), seconds)
        loop.call_later(interrupt_s, ending.interrupt)
        async with ending.cutting_off():
            await asyncio.sleep(1000)
            raise AssertionError("the block goes on")
        return loop.time()

    assert run_virtual(story()) == pytest.approx(ends_s)


def test_a_block_that_begins_after_the_interrupt_does_not_wait() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        ending = Ending(VirtualClock(loop), None)
        ending.interrupt()
        async with ending.cutting_off():
            await asyncio.sleep(1000)
        return loop.time()

    assert run_virtual(story()) == 0


def test_a_time_out_inside_the_block_is_the_blocks_own() -> None:
    async def story() -> None:
        ending = Ending(VirtualClock(asyncio.get_running_loop()), 5.0)
        with pytest.raises(TimeoutError):
            async with ending.cutting_off():
                raise TimeoutError

    run_virtual(story())


async def test_the_first_ctrl_c_ends_it_and_the_second_one_cancels() -> None:
    ending = Ending(SystemClock(), None)

    async def pressed_twice() -> None:
        with ended_by_ctrl_c(ending):
            signal.raise_signal(signal.SIGINT)
            await ending.pause(10)
            assert ending.interrupted
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        await pressed_twice()
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
