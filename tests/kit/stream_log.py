"""A `StreamLog` on an event loop of a test."""

import asyncio
from collections.abc import Callable, Coroutine

from anabranch.segstore.adapters.jetstream_log.view import Around
from kit.virtual_time import VirtualClock


def around_of(
    loop: asyncio.AbstractEventLoop, spawn: Callable[[Coroutine[None, None, None]], object]
) -> Around:
    """The runtime of views on the loop."""

    def call_later(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return loop.call_later(seconds, callback).cancel

    return Around(VirtualClock(loop), loop.call_soon, call_later, spawn)
