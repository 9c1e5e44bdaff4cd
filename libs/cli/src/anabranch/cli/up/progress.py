"""The output of `anabranch up`: a live table on a terminal, lines elsewhere, JSON for programs.

Each change of a part is shown once, with the reason why the part is not ready. When all parts are
ready for the first time, `ready_block` says where the cluster is and what to type next; a program
gets the same as the line `{"event": "ready", …}`. The table stays on the terminal until the end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from anabranch.cli.output import counted
from anabranch.cli.up.plan import PartState, Phase, is_cluster_ready
from anabranch.cli.up.supervisor import States
from anabranch.common.runtime.clock import Clock

if TYPE_CHECKING:
    from anabranch.cli.up.table import LiveTable


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cluster is, for its user."""

    endpoints: Mapping[str, object]
    endpoints_file: Path
    data_dir: Path
    is_default: bool
    """Whether commands find the data directory by themselves."""
    is_kept: bool = True
    """False for an ephemeral cluster."""
    program: str = "anabranch"
    """The command, as another terminal finds it."""


def ready_block(place: Place, seconds: float) -> str:
    """The text that shows a ready cluster: its addresses, and commands that work as they stand."""
    end = "keeps its data" if place.is_kept else "loses its data"
    named = f"export ANABRANCH_DATA_DIR={quote(str(place.data_dir))}"
    found = [] if place.is_default else [named]
    commands = [
        *found,
        f"{place.program} scope create hello",
        f"{place.program} stream create hello/world",
        f"echo 'hello, stream' | {place.program} write hello/world",
        f"{place.program} read hello/world",
    ]
    return "\n".join(
        [
            f"ready in {seconds:.1f} s; Ctrl-C stops the cluster and {end}",
            "",
            f"NATS       {place.endpoints['nats']}",
            f"gateway    {place.endpoints['gateway']}",
            f"data       {place.data_dir}",
            f"endpoints  {place.endpoints_file}",
            "",
            "In another terminal:",
            "",
            *(f"    {command}" for command in commands),
        ]
    )


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
    """Shows each change once. `begun_s`: the monotonic second at which the command began."""

    def __init__(self, stream: TextIO, clock: Clock, begun_s: float, *, as_json: bool) -> None:
        self._stream = stream
        self._clock = clock
        self._begun_s = begun_s
        self._as_json = as_json
        self._shown: dict[str, dict[str, object]] = {}
        self._place: Place | None = None
        self._table: LiveTable | None = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._table is not None:
            self._table.stop()

    def changed(self, states: States) -> None:
        """Show the parts whose line differs from the one shown last."""
        lines = {part: part_line(part, state) for part, state in states.items()}
        new = [line for part, line in lines.items() if self._shown.get(part) != line]
        self._shown = lines
        if self._is_live:
            self._show_table(states)
        else:
            for line in new:
                self._say(line, _sentence(line))
        if self._place is not None and is_cluster_ready(states):
            place, self._place = self._place, None
            self._show_ready(place, self._clock.monotonic() - self._begun_s)

    def will_serve(self, place: Place) -> None:
        """Set the place to show once everything is ready. Call it before the first part is."""
        self._place = place

    def tick(self) -> None:
        """Show the time that has passed, if it is shown; call it several times a second."""
        if self._table is not None:
            self._table.tick()

    def remark(self, part: str, text: str) -> None:
        """Show a remark about a part that runs otherwise than usual, or not at all."""
        self._say({"event": "remark", "part": part, "reason": text}, f"{part}: {text}")

    def stopped(self) -> None:
        self._say({"event": "stopped"}, "stopped")

    @property
    def _is_live(self) -> bool:
        return self._stream.isatty() and not self._as_json

    def _show_table(self, states: States) -> None:
        if self._table is None:
            # The library for the table is slow to load; meanwhile the parts load their programs.
            from anabranch.cli.up.table import LiveTable

            self._table = LiveTable(self._stream, self._clock)
        self._table.show(states)

    def _show_ready(self, place: Place, seconds: float) -> None:
        block = ready_block(place, seconds)
        if self._table is not None:
            self._table.show_below(block)
            return
        line = {
            "event": "ready",
            "endpoints": dict(place.endpoints),
            "endpoints_file": str(place.endpoints_file),
            "seconds": round(seconds, 2),
        }
        self._say(line, block)

    def _say(self, line: Mapping[str, object], sentence: str) -> None:
        text = json.dumps(line) if self._as_json else sentence
        if self._table is not None:
            self._table.say(text)
            return
        self._stream.write(text + "\n")
        self._stream.flush()


def _sentence(line: Mapping[str, object]) -> str:
    why = f" ({line['reason']})" if line["reason"] else ""
    restarts = line["restarts"]
    assert isinstance(restarts, int)
    again = f", {counted(restarts, 'restart')}" if restarts else ""
    return f"{line['part']}: {line['state']}{why}{again}"
