"""How far a long transfer is: one line on a terminal's stderr, renewed in place; elsewhere nothing.

The line appears when the transfer has taken two seconds, has no colours, and is erased at the end.
It shows the number of things taken, their rate, and the remaining time if the size of the input is
known.
"""

import os
from collections.abc import Mapping
from typing import TextIO

from anabranch.cli.figures import duration, size
from anabranch.common.runtime.clock import Clock

SILENT_S = 2.0
INTERVAL_S = 0.2
NO_TERMINAL = -1
"""Stands for the descriptor of data that are no terminal's."""
RETURN_AND_ERASE = "\r\x1b[K"


def progress_line(
    *,
    count: int,
    things: str,
    size_bytes: int,
    elapsed_s: float,
    read_bytes: int,
    input_bytes: int | None,
) -> str:
    """``1,200,000 events, 300,000/s, 34.3 MiB/s, 40%, 6 s left``."""
    parts = [
        f"{count:,} {things}",
        f"{count / elapsed_s:,.0f}/s",
        f"{size(size_bytes / elapsed_s)}/s",
    ]
    if input_bytes:
        share = min(1.0, read_bytes / input_bytes)
        parts.append(f"{share:.0%}")
        if share:
            left_s = round(elapsed_s * (1 - share) / share)
            parts.append(f"{duration(1000 * left_s)} left" if left_s else "nearly done")
    return ", ".join(parts)


def shows_progress(stream: TextIO, descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether a line on the stream helps: it is a capable terminal, and the data do not come from
    or go to a terminal themselves."""
    return stream.isatty() and environment.get("TERM") != "dumb" and not os.isatty(descriptor)


class TransferProgress:
    """The line of one transfer of `things`. `stream` None: it shows nothing."""

    def __init__(
        self,
        stream: TextIO | None,
        clock: Clock,
        input_bytes: int | None,
        *,
        things: str = "events",
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._input_bytes = input_bytes
        self._things = things
        self._begun_s = clock.monotonic()
        self._due_s = self._begun_s + SILENT_S
        self._is_shown = False

    def show(self, count: int, size_bytes: int, read_bytes: int) -> None:
        """Renew the line, if it is time to."""
        now_s = self._clock.monotonic()
        if self._stream is None or now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        self._is_shown = True
        line = progress_line(
            count=count,
            things=self._things,
            size_bytes=size_bytes,
            elapsed_s=now_s - self._begun_s,
            read_bytes=read_bytes,
            input_bytes=self._input_bytes,
        )
        self._stream.write(RETURN_AND_ERASE + line)
        self._stream.flush()

    def close(self) -> None:
        """Erase the line."""
        if self._stream is not None and self._is_shown:
            self._stream.write(RETURN_AND_ERASE)
            self._stream.flush()
