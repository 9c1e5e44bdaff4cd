"""A blocking client over a fake store and a fake controller, which all live in its thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.client.blocking import BlockingClient
from anabranch.client.blocking.background import THREAD_NAME, Background, Stay
from anabranch.client.blocking.proxy import Target, wrapped
from anabranch.common.runtime.clock import SystemClock
from kit.client_bench import Bench, bench


@dataclass
class BlockingBench:
    """`b`: what the client talks to; it belongs to the client's thread."""

    b: Bench
    client: BlockingClient
    background: Background

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Run it in the client's thread."""
        return self.background.thread.perform(work)

    def of(self, value: object, timeout_s: float | None = None) -> Any:
        """A stand-in for `value`, as if the client had returned it."""
        return wrapped(value, self.background, timeout_s)


@contextmanager
def blocking_bench(segment_count: int = 1) -> Iterator[BlockingBench]:
    """An open client on a stream of `segment_count` segments; closing it closes all of it."""
    background = Background(SystemClock())
    stay = Stay(bench(segment_count), background.thread.tasks)
    try:
        entered = background.thread.perform(stay.enter)
        assert isinstance(entered, Bench)
        with BlockingClient(Target(entered.client, background, [stay])) as client:
            yield BlockingBench(entered, client, background)
    finally:
        background.thread.close()


def thread_count() -> int:
    """How many threads of clients live."""
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


class Waiting:
    """Things to wait for, as a client's part."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.left: list[object] = []
        self.tasks: list[object] = []
        self.on_done: Callable[[str], Any] | None = None
        self.on_wait: Callable[[], None] = lambda: None

    async def forever(self) -> None:
        self.on_wait()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def stubborn(self) -> str:
        """Has its result although it was cancelled."""
        self.on_wait()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
        return "kept"

    async def items(self) -> AsyncIterator[int]:
        yield 1
        await self.forever()

    def itself(self) -> "Waiting":
        return self

    def other(self) -> "Waiting":
        return Waiting()

    def is_self(self, other: object, *, again: object) -> bool:
        return other is self and again is self

    def reader(self, *, on_done: Callable[[str], Any]) -> "Waiting":
        self.on_done = on_done
        return self

    async def finish(self) -> Any:
        assert self.on_done is not None
        return await self.on_done("checkpoint")

    def __aiter__(self) -> "Waiting":
        return self

    async def __anext__(self) -> str:
        return await self.stubborn()

    async def __aenter__(self) -> "Waiting":
        self.tasks.append(asyncio.current_task())
        return self

    async def __aexit__(self, *reason: object) -> bool:
        self.tasks.append(asyncio.current_task())
        self.left.append(reason[0])
        return reason[0] is ValueError
