"""Whether every await of a call is cancelled once, and what escapes a cancellation is told."""

import asyncio

import pytest

from kit.cancel_everywhere import Cancelling, everywhere


async def test_each_suspension_is_cancelled_once_and_the_last_run_is_left_alone() -> None:
    ends: list[tuple[str, ...]] = []

    async def inner(steps: list[str]) -> None:
        await asyncio.sleep(0)
        steps.append("a")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future
        steps.append("b")

    async def scenario(cancelling: Cancelling) -> None:
        steps: list[str] = []
        await cancelling.run(inner(steps))
        await cancelling.run(inner(steps))
        ends.append(tuple(steps))

    assert await everywhere(scenario) == 4
    assert ends == [("a", "b"), ("a", "a", "b"), ("a", "b"), ("a", "b", "a"), ("a", "b", "a", "b")]


async def test_a_result_and_an_error_come_through() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError

    assert await Cancelling(9).run(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError):
        await Cancelling(9).run(fail())


async def test_a_swallowed_cancellation_is_a_failure() -> None:
    async def swallow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with pytest.raises(AssertionError, match="swallowed"):
        await Cancelling(1).run(swallow())
