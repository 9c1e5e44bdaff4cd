"""The event loop of a process: uvloop's where it is installed, else the standard library's."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory of the fastest installed loop; uvloop has no wheels for some platforms."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
