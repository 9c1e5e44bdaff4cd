"""The line that a long wait shows on a terminal's stderr: the work, and its duration.

For work whose progress only another process knows. The line appears after two seconds and is erased
at the end. A thread renews it, because the work may block the thread that called it.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from anabranch.cli.figures import duration
from anabranch.cli.transfer_progress import (
    NO_TERMINAL,
    RETURN_AND_ERASE,
    SILENT_S,
    shows_progress,
)
from anabranch.common.runtime.clock import Clock, SystemClock

INTERVAL_S = 1.0


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show the line for the duration of the block, if stderr is a terminal."""
    if not shows_progress(sys.stderr, NO_TERMINAL, os.environ):
        yield
        return
    with line_on(sys.stderr, text, SystemClock(), SILENT_S, INTERVAL_S):
        yield


@contextmanager
def line_on(
    stream: TextIO, text: str, clock: Clock, silent_s: float, interval_s: float
) -> Iterator[None]:
    """Show the line on a stream, after `silent_s` and then every `interval_s` seconds."""
    done = threading.Event()
    begun_s = clock.monotonic()

    def renew() -> None:
        pause_s = silent_s
        while not done.wait(pause_s):
            pause_s = interval_s
            seconds = round(clock.monotonic() - begun_s)
            stream.write(f"{RETURN_AND_ERASE}{text}, {duration(1000 * seconds)}")
            stream.flush()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        stream.write(RETURN_AND_ERASE)
        stream.flush()
