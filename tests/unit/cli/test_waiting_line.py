"""The line that a long wait shows on a terminal."""

import io
import threading

import pytest

from anabranch.cli.transfer_progress import RETURN_AND_ERASE
from anabranch.cli.waiting_line import line_on, waiting
from anabranch.common.runtime.clock import SystemClock

SECONDS_MAX = 10.0


class Terminal(io.StringIO):
    """Lets a test wait for the line instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_a_long_wait_shows_what_goes_on_and_is_erased() -> None:
    terminal = Terminal()
    with line_on(terminal, "moving data to tier 2", SystemClock(), 0.0, 0.001):
        assert terminal.written.wait(SECONDS_MAX)
    shown = terminal.getvalue()
    assert shown.startswith(f"{RETURN_AND_ERASE}moving data to tier 2, 0 ms")
    assert shown.endswith(RETURN_AND_ERASE)


def test_the_line_is_erased_after_an_error_too() -> None:
    terminal = Terminal()
    with (
        pytest.raises(ValueError, match="x"),
        line_on(terminal, "work", SystemClock(), SECONDS_MAX, 1.0),
    ):
        raise ValueError("x")
    assert terminal.getvalue() == RETURN_AND_ERASE


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("work"):
        pass
    assert capsys.readouterr().err == ""
