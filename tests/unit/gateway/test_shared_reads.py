"""Equal requests share a read that begins after all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from anabranch.common.errors import Defect, Unavailable
from anabranch.gateway.bounds.shared_reads import SharedReads
from kit.client_bench import until


@dataclass
class Store:
    """Answers each read with the keys of all reads so far, once `open` is set."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)
    error: Exception | None = None

    async def read(self, key: str) -> list[str]:
        self.begun.append(key)
        seen = list(self.begun)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return seen


@asynccontextmanager
async def sharing() -> AsyncIterator[tuple[Store, SharedReads[str, list[str]], asyncio.TaskGroup]]:
    store = Store()
    async with asyncio.TaskGroup() as tasks:
        yield store, SharedReads(store.read, tasks), tasks
        store.open.set()


async def test_equal_requests_of_one_turn_share_a_read_and_others_do_not() -> None:
    async with sharing() as (store, shared, tasks):
        asking = [tasks.create_task(shared.read(key)) for key in ("a", "b", "a", "a")]
        store.open.set()
        found = [await each for each in asking]
    assert store.begun == ["a", "b"]
    assert found[0] is found[2] is found[3]
    assert found[1] == ["a", "b"]


async def test_a_request_that_comes_after_a_read_began_gets_another_one() -> None:
    async with sharing() as (store, shared, tasks):
        early = tasks.create_task(shared.read("a"))
        await until(lambda: store.begun == ["a"])
        late = tasks.create_task(shared.read("a"))
        await until(lambda: store.begun == ["a", "a"])
        store.open.set()
        assert (await early, await late) == (["a"], ["a", "a"])


async def test_a_caller_that_goes_ends_no_read_of_others() -> None:
    async with sharing() as (store, shared, tasks):
        going, staying = (tasks.create_task(shared.read("a")) for _ in range(2))
        await until(lambda: store.begun == ["a"])
        going.cancel()
        store.open.set()
        assert await staying == ["a"]
    assert going.cancelled()


async def test_every_caller_gets_an_error_of_its_own() -> None:
    async with sharing() as (store, shared, tasks):
        store.error = Unavailable("away", store="s1")
        store.open.set()

        async def failed() -> Unavailable:
            with pytest.raises(Unavailable) as error:
                await shared.read("a")
            return error.value

        one, other = [await each for each in [tasks.create_task(failed()) for _ in range(2)]]
    assert store.begun == ["a"]
    assert one is not other
    assert one.fields == other.fields == {"store": "s1"}


async def test_a_defect_of_a_read_ends_its_requests_alone() -> None:
    async with sharing() as (store, shared, _):
        store.error = KeyError("nobody expected this")
        store.open.set()
        with pytest.raises(Defect):
            await shared.read("a")
        store.error = None
        assert await shared.read("a") == ["a", "a"]


async def test_nobody_waits_for_a_read_that_was_cancelled_with_the_gateway() -> None:
    store = Store()
    waiting: list[asyncio.Task[list[str]]] = []
    async with asyncio.TaskGroup() as requests:

        async def serve() -> None:
            async with asyncio.TaskGroup() as tasks:
                shared = SharedReads(store.read, tasks)
                waiting.append(requests.create_task(shared.read("a")))
                await asyncio.Event().wait()

        serving = requests.create_task(serve())
        await until(lambda: store.begun == ["a"])
        serving.cancel()
    assert waiting[0].cancelled()
