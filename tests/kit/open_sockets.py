"""The sockets that are still open after the end of their event loop, and where they were opened.

A test that leaves one would pass, and a later one fail, in which the garbage collector finds it.
"""

import sys
from asyncio import AbstractEventLoop, selector_events
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

PLACES_MAX = 12
_MADE_BY = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]


class OpenSockets:
    """Knows the transports that were made while it watched, each with its loop and its place."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, tuple[AbstractEventLoop, str]] = WeakKeyDictionary()

    @contextmanager
    def watching(self) -> Iterator[None]:
        make = _MADE_BY.__init__

        def noted(transport: Any, loop: AbstractEventLoop, *rest: Any, **named: Any) -> None:
            make(transport, loop, *rest, **named)
            self._made[transport] = loop, _place()

        with patch.object(_MADE_BY, "__init__", noted):
            yield

    def left_over(self) -> list[str]:
        """Those of loops that have ended, each of which is told once."""
        found = []
        for transport, (loop, place) in list(self._made.items()):
            if loop.is_closed():
                del self._made[transport]
                if transport.get_extra_info("socket").fileno() != -1:
                    found.append(f"{transport!r} opened by {place}")
        return found


def _place() -> str:
    """The innermost calls outside of asyncio, the last one first."""
    frame, names = sys._getframe(2), list[str]()
    while frame is not None and len(names) < PLACES_MAX:
        code = frame.f_code
        if "/asyncio/" not in code.co_filename:
            names.append(f"{code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return ", ".join(names)
