"""Parts that requests share: when they are opened, given to another request, and closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from anabranch.common.errors import Overloaded, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.bounds.leases import LeaseLimits, Leases
from kit.client_bench import until


class Part:
    """An open part."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed = False
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class HandClock:
    """Stands still until it is set."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class World:
    """Leases of parts that are opened at once."""

    def __init__(self, tasks: asyncio.TaskGroup, limits: LeaseLimits) -> None:
        self.clock = HandClock()
        self.parts: list[Part] = []
        self.leases = Leases[Part](self.open, cast(Clock, self.clock), tasks, limits)

    async def open(self, name: str) -> Part:
        if name == "none":
            raise Unavailable("it is away")
        self.parts.append(Part(name))
        return self.parts[-1]

    async def used(self, name: str) -> Part:
        """The part that a request for the name gets."""
        async with self.leases.lease(name) as part:
            return part


@asynccontextmanager
async def world(
    open_max: int = 2, idle_s: float = 10.0, age_s_max: float = 60.0
) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        made = World(tasks, LeaseLimits("parts", open_max, idle_s, age_s_max))
        serving = tasks.create_task(made.leases.serve())
        yield made
        serving.cancel()


async def test_requests_of_one_name_share_a_part_until_it_fails() -> None:
    async with world() as w:
        first = await w.used("a")
        assert await w.used("a") is first
        async with w.leases.lease("a"):
            first.failed = True
        second = await w.used("a")
        await until(lambda: first.closed)

    assert second is not first
    assert not second.closed


async def test_a_part_that_cannot_be_opened_is_tried_again_by_the_next_request() -> None:
    async with world(open_max=1) as w:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await w.used("none")
            await asyncio.sleep(0)
        assert len(w.leases) == 0


async def test_a_part_of_full_age_is_opened_again_and_stays_open_for_its_requests() -> None:
    async with world() as w, w.leases.lease("a") as old:
        w.clock.now_s = 59.9
        assert await w.used("a") is old
        w.clock.now_s = 60.0
        assert await w.used("a") is not old
        await asyncio.sleep(0)
        assert not old.closed


async def test_the_part_idle_for_longest_makes_room_and_none_that_is_used() -> None:
    async with world() as w:
        async with w.leases.lease("a") as used:
            idle = await w.used("b")
            await w.used("c")
            await until(lambda: idle.closed)
            async with w.leases.lease("c"):
                with pytest.raises(Overloaded, match="too many open parts"):
                    await w.used("d")
        assert not used.closed


async def test_a_forgotten_part_serves_no_later_request() -> None:
    async with world(open_max=3) as w:
        first = await w.used("a")
        other = await w.used("b")
        w.leases.forget_where(lambda name: name == "a")
        assert await w.used("a") is not first
        assert await w.used("b") is other
        await until(lambda: first.closed)


async def test_a_part_can_be_leased_at_once_only_while_it_is_open_and_of_use() -> None:
    async with world(age_s_max=60.0) as w:
        assert w.leases.lease_now("a") is None
        part = await w.used("a")
        leased = w.leases.lease_now("a")
        assert leased is not None
        assert leased[0] is part
        part.failed = True
        assert w.leases.lease_now("a") is None
        leased[1]()
        await until(lambda: part.closed)

        await w.used("a")
        w.clock.now_s += 60.0
        assert w.leases.lease_now("a") is None


async def test_a_part_that_could_not_be_opened_is_leased_by_nobody() -> None:
    async with world() as w:
        with pytest.raises(Unavailable):
            await w.used("none")
        assert w.leases.lease_now("none") is None


async def test_a_part_leased_at_once_stays_open_until_it_is_released() -> None:
    async with world() as w:
        part = await w.used("a")
        leased = w.leases.lease_now("a")
        assert leased is not None
        w.leases.forget_where(lambda _: True)
        await w.used("b")
        w.leases.forget_where(lambda _: True)
        await until(lambda: w.parts[-1].closed)
        assert not part.closed
        leased[1]()
        w.leases._sweep.set()
        await until(lambda: part.closed)
