"""Reads single keys from a terminal while an event loop runs."""

import asyncio
import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

KEYS_WAITING_MAX = 16
HUNG_UP = "q"


@contextmanager
def pressed_keys(descriptor: int) -> Iterator["asyncio.Queue[str]"]:
    """The keys as they are pressed, without waiting for Enter; Ctrl-C still interrupts.

    The terminal is as before after the block. Keys beyond `KEYS_WAITING_MAX` are dropped. A
    terminal that hangs up counts as ``q``.
    """
    loop, keys = asyncio.get_running_loop(), asyncio.Queue[str](KEYS_WAITING_MAX)
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        found = _read(descriptor)
        if not found:
            loop.remove_reader(descriptor)
            while keys.full():
                keys.get_nowait()
        for key in found or HUNG_UP:
            if not keys.full():
                keys.put_nowait(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield keys
    finally:
        loop.remove_reader(descriptor)
        with suppress(termios.error):  # the terminal has hung up
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read(descriptor: int) -> str:
    """The typed keys; empty if the terminal has hung up."""
    try:
        return os.read(descriptor, KEYS_WAITING_MAX).decode("latin-1")
    except OSError:
        return ""
