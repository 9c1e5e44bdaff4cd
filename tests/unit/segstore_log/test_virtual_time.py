"""The virtual loop: time jumps, order is fixed, waiting for nothing is an error."""

import asyncio

import pytest

from kit.virtual_time import START_MS, Deadlock, VirtualClock, run_virtual


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> list[tuple[str, float]]:
        clock = VirtualClock(asyncio.get_running_loop())
        seen: list[tuple[str, float]] = []

        async def note(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            seen.append((name, clock.monotonic()))

        async with asyncio.TaskGroup() as tasks:
            for name, seconds in (("year", 31_536_000.0), ("hour", 3600.0), ("now", 0.0)):
                tasks.create_task(note(name, seconds))
        assert clock.now_ms() == START_MS + 31_536_000_000
        return seen

    names, times = zip(*run_virtual(main()), strict=True)
    assert names == ("now", "hour", "year")
    assert times == pytest.approx((0.0, 3600.0, 31_536_000.0))


def test_deadlines_expire_in_virtual_time() -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_virtual(main())


def test_waiting_for_what_cannot_happen_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(main())


def test_threads_do_not_exist() -> None:
    async def main() -> None:
        await asyncio.to_thread(len, "")

    with pytest.raises(RuntimeError, match="thread"):
        run_virtual(main())
