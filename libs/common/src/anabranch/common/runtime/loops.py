"""The event loop of a process: uvloop's where it is installed, else the standard library's."""

import asyncio
import sys
from collections.abc import Callable
from importlib.util import find_spec


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory of the fastest installed loop; uvloop has no wheels for some platforms."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def pauses_after_writelines(
    transport: asyncio.BaseTransport, python: tuple[int, ...] = sys.version_info[:3]
) -> bool:
    """Whether `writelines` tells the protocol that the peer takes too little.

    The transports of asyncio itself did not in Python 3.12 before 3.12.9 and 3.13 before 3.13.2
    (CVE-2024-12254), so that unsent bytes had no bound; their `write` does.
    """
    is_old = (3, 12) <= python < (3, 12, 9) or (3, 13) <= python < (3, 13, 2)
    return not (is_old and type(transport).__module__.startswith("asyncio."))
