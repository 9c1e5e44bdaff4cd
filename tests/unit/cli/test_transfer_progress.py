"""The line of progress of a long write."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.cli.transfer_progress import TransferProgress, progress_line, shows_progress
from kit.virtual_time import VirtualClock, VirtualTimeLoop


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("input_bytes", "read_bytes", "line"),
    [
        (None, 0, "1,200,000 events, 300,000/s, 12 MiB/s"),
        (100, 40, "1,200,000 events, 300,000/s, 12 MiB/s, 40%, 6 s left"),
        (100, 0, "1,200,000 events, 300,000/s, 12 MiB/s, 0%"),
        (100, 120, "1,200,000 events, 300,000/s, 12 MiB/s, 100%, nearly done"),
    ],
)
def test_the_line_shows_rates_and_the_time_left_of_a_known_size(
    input_bytes: int | None, read_bytes: int, line: str
) -> None:
    assert line == progress_line(
        count=1_200_000,
        things="events",
        size_bytes=48 * 1024 * 1024,
        elapsed_s=4.0,
        read_bytes=read_bytes,
        input_bytes=input_bytes,
    )


def test_the_line_is_for_terminals_on_which_nobody_types_the_input() -> None:
    with pipe() as descriptor:
        assert shows_progress(Terminal(), descriptor, {"TERM": "xterm"})
        assert not shows_progress(Terminal(), descriptor, {"TERM": "dumb"})
        assert not shows_progress(io.StringIO(), descriptor, {})
    main, terminal = os.openpty()
    try:
        assert not shows_progress(Terminal(), terminal, {})
    finally:
        os.close(main)
        os.close(terminal)


def test_the_line_comes_after_two_seconds_and_is_erased_at_the_end() -> None:
    loop, terminal = VirtualTimeLoop(), Terminal()
    progress = TransferProgress(terminal, VirtualClock(loop), input_bytes=None)
    progress.show(10, 10, 10)
    loop.advance(1.9)
    progress.show(20, 20, 20)
    assert terminal.getvalue() == ""
    loop.advance(0.1)
    progress.show(30, 30, 30)
    progress.show(31, 31, 31)
    loop.advance(0.3)
    progress.show(40, 40, 40)
    shown = terminal.getvalue().split("\r\x1b[K")
    assert [line.partition(",")[0] for line in shown] == ["", "30 events", "40 events"]
    progress.close()
    assert terminal.getvalue().endswith("\r\x1b[K")
    loop.close()


def test_a_short_write_leaves_nothing_on_the_terminal() -> None:
    loop, terminal = VirtualTimeLoop(), Terminal()
    for stream in (terminal, None):
        progress = TransferProgress(stream, VirtualClock(loop), input_bytes=5)
        progress.show(1, 1, 1)
        progress.close()
    assert terminal.getvalue() == ""
    loop.close()
