"""The output of `anabranch up`: a live table on a terminal, lines elsewhere, JSON for programs."""

import json
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.table import Table

from anabranch.cli.figures import counted
from anabranch.cli.up.plan import PartState, Phase, is_cluster_ready
from anabranch.cli.up.supervisor import States

_COLOURS: Mapping[str, str] = {
    "ready": "green",
    "waiting": "dim",
    "starting": "yellow",
    "not ready": "red",
    "restarting": "red",
    "stopping": "yellow",
    "stopped": "dim",
}


def word_for(state: PartState) -> str:
    """A part's state in one word."""
    match state.phase:
        case Phase.IDLE:
            return "waiting"
        case Phase.RUNNING:
            if state.ready:
                return "ready"
            return "not ready" if state.was_ready or state.serving else "starting"
        case Phase.BACKING_OFF:
            return "restarting"
        case Phase.STOPPING:
            return "stopping"
        case Phase.DOWN:
            return "stopped"


def part_line(part: str, state: PartState) -> dict[str, object]:
    """A part's state as one JSON line."""
    return {
        "event": "part",
        "part": part,
        "state": word_for(state),
        "restarts": state.restarts,
        "reason": state.reason,
    }


class Progress:
    """Shows each change once."""

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console = console
        self._as_json = as_json
        self._shown: dict[str, dict[str, object]] = {}
        self._ready_line: tuple[dict[str, object], str] | None = None
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def changed(self, states: States) -> None:
        """Show the parts whose line differs from the one shown last."""
        lines = {part: part_line(part, state) for part, state in states.items()}
        new = [line for part, line in lines.items() if self._shown.get(part) != line]
        self._shown = lines
        if self._live is not None:
            self._live.update(_table(lines), refresh=True)
        else:
            for line in new:
                self._say(line, _sentence(line))
        if self._ready_line is not None and is_cluster_ready(states):
            self._say(*self._ready_line)
            self._ready_line = None

    def will_serve(self, endpoints: Mapping[str, object], endpoints_file: str) -> None:
        """Set the text to show once everything is ready. Call it before the first part is."""
        self._ready_line = (
            {"event": "ready", "endpoints": dict(endpoints), "endpoints_file": endpoints_file},
            f"ready: {endpoints['nats']} (endpoints in {endpoints_file}); Ctrl-C stops",
        )

    def remark(self, part: str, text: str) -> None:
        """Show a remark about a part that runs otherwise than usual, or not at all."""
        self._say({"event": "remark", "part": part, "reason": text}, f"{part}: {text}")

    def stopped(self) -> None:
        self._say({"event": "stopped"}, "stopped")

    def _say(self, line: Mapping[str, object], sentence: str) -> None:
        text = json.dumps(line) if self._as_json else sentence
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()


def _sentence(line: Mapping[str, object]) -> str:
    why = f" ({line['reason']})" if line["reason"] else ""
    restarts = line["restarts"]
    assert isinstance(restarts, int)
    again = f", {counted(restarts, 'restart')}" if restarts else ""
    return f"{line['part']}: {line['state']}{why}{again}"


def _table(lines: Mapping[str, Mapping[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("part", "state", "restarts", "reason"):
        table.add_column(column)
    for line in lines.values():
        word = str(line["state"])
        table.add_row(
            str(line["part"]),
            f"[{_COLOURS[word]}]{word}[/]",
            str(line["restarts"]),
            str(line["reason"]),
        )
    return table
