"""The live table of `anabranch up` on a terminal: each part, its state, its seconds, the reason.

Below the table stands a text about the ready cluster, from the moment when it is ready until it
stops. The seconds of a part that is not ready grow with each `tick`.
"""

from collections.abc import Mapping
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from anabranch.cli.up.plan import PartState, Phase, is_cluster_ready
from anabranch.cli.up.progress import word_for
from anabranch.cli.up.supervisor import States
from anabranch.common.runtime.clock import Clock

_COLOURS: Mapping[str, str] = {
    "ready": "green",
    "waiting": "dim",
    "starting": "yellow",
    "not ready": "red",
    "restarting": "red",
    "stopping": "yellow",
    "stopped": "dim",
}


class LiveTable:
    """A table at the end of the terminal's output. `stop` leaves its last state there."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._clock = clock
        self._states: States = {}
        self._below = ""
        self._live = Live(console=Console(file=stream), auto_refresh=False)
        self._live.start()

    def show(self, states: States) -> None:
        """Show these states from now on."""
        self._states = dict(states)
        if any(state.phase in (Phase.STOPPING, Phase.DOWN) for state in states.values()):
            self._below = ""
        self._refresh()

    def show_below(self, text: str) -> None:
        """Show a text below the table until the cluster stops."""
        self._below = text
        self._refresh()

    def tick(self) -> None:
        """Show the time that has passed, while a part is not ready."""
        if not is_cluster_ready(self._states):
            self._refresh()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._live.stop()

    def _refresh(self) -> None:
        table = _table(self._states, self._clock.monotonic())
        below = [Text("\n" + self._below)] if self._below else []
        self._live.update(Group(table, *below), refresh=True)


def seconds_of(state: PartState, now_s: float) -> float | None:
    """How long a part took to become ready, or has been in its phase; None if it has none."""
    if state.phase in (Phase.IDLE, Phase.DOWN):
        return None
    return (state.ready_since if state.ready else now_s) - state.since


def _table(states: States, now_s: float) -> Table:
    table = Table(
        "part", "state", Column("seconds", justify="right"), "reason", box=None, pad_edge=False
    )
    for part, state in states.items():
        word, seconds = word_for(state), seconds_of(state, now_s)
        again = f"restarts: {state.restarts}" if state.restarts else ""
        table.add_row(
            part,
            Text(word, _COLOURS[word]),
            "" if seconds is None else f"{seconds:.1f}",
            Text("; ".join(text for text in (state.reason, again) if text)),
        )
    return table
