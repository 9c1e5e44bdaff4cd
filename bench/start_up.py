"""How long `anabranch up` takes until it is ready, and the processor time of its parts.

    .venv/bin/python -m bench.start_up [STARTS] [OPTION OF UP …]

One cluster is started again and again on one data directory; the first start, which creates it, is
reported apart. Seconds count from the start of the command. For each part: when its process is
started, when its program has loaded, so that it says what it waits for, and when it is ready.
Processor time counts until everything is ready; several parts of one program share a figure. Run
it on an idle machine, and compare processor time rather than seconds if that is not to be had.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.clock import Stopwatch, SystemStopwatch
from bench.machine import cpu_seconds
from bench.stats import spread

STARTS = 7
SECONDS_MAX = 60
COMMAND = Path(sys.executable).with_name("anabranch")
LOADING = ("", "its program loads")
"""The reasons of a part that does not answer yet."""


@dataclass(frozen=True, slots=True)
class Start:
    """The figures of one start, in seconds. `loaded` and `cpu` lack what has no such figure."""

    ready: float
    started: Mapping[str, float]
    loaded: Mapping[str, float]
    part_ready: Mapping[str, float]
    cpu: Mapping[str, float]


@dataclass(slots=True)
class Seen:
    """What the lines of one start have said so far."""

    started: dict[str, float] = field(default_factory=dict)
    loaded: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def note(self, line: Mapping[str, object], seconds: float) -> None:
        """Take the line of a part, which came so many seconds after the command's start."""
        part, state = str(line["part"]), line["state"]
        if state == "waiting":
            return
        self.started.setdefault(part, seconds)
        if state == "ready" or line["reason"] not in LOADING:
            self.loaded.setdefault(part, seconds)
        if state == "ready":
            self.ready.setdefault(part, seconds)


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else STARTS
    clock = SystemStopwatch()
    with tempfile.TemporaryDirectory(prefix="anabranch-start-") as directory:
        first = start_once(directory, sys.argv[2:], clock)
        starts = [start_once(directory, sys.argv[2:], clock) for _ in range(count)]
    say(f"first start of a data directory: ready after {first.ready:.2f} s")
    for line in table(starts):
        say(line)


def start_once(directory: str, options: Sequence[str], clock: Stopwatch) -> Start:
    """Start a cluster, and stop it when it is ready."""
    begun, seen = clock.now(), Seen()
    with subprocess.Popen(
        [COMMAND, "up", "--json", "--data-dir", directory, *options],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in lines_of(process):
                if line["event"] == "ready":
                    ready = clock.now() - begun
                    return Start(ready, seen.started, seen.loaded, seen.ready, cpu_of(process.pid))
                if line["event"] == "part":
                    seen.note(line, clock.now() - begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)
    raise SystemExit("the cluster ended before it was ready")


def lines_of(process: "subprocess.Popen[str]") -> Iterator[dict[str, object]]:
    assert process.stdout is not None
    return map(json.loads, process.stdout)


def cpu_of(pid: int) -> dict[str, float]:
    """The processor time of the command, and of its children by the program that they run."""
    pids = {"up": [pid]}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        name = name_of(Path(f"/proc/{child}/cmdline").read_bytes())
        pids.setdefault(name, []).append(int(child))
    return {name: cpu_seconds(those) for name, those in pids.items()}


def name_of(command_line: bytes) -> str:
    """The part that a child's command line runs."""
    words = command_line.decode().split("\0")
    modules = [word.removeprefix("anabranch.") for word in words if word.startswith("anabranch.")]
    return modules[0] if modules else Path(words[0].split(" ")[0]).name.removesuffix("-server")


def table(starts: Sequence[Start]) -> Iterator[str]:
    """The medians, and the range of the whole."""
    whole = spread([start.ready for start in starts])
    cpu = spread([sum(start.cpu.values()) for start in starts])
    yield (
        f"{len(starts)} starts on it: ready after {_shown(whole.median)} s "
        f"({_shown(whole.min)} to {_shown(whole.max)}), {_shown(cpu.median)} s of processor time"
    )
    yield f"{'part':<12}{'started':>9}{'loaded':>9}{'ready':>9}{'processor':>11}"
    last = starts[-1]
    for part in dict.fromkeys(("up", *last.started)):
        figures = [
            _median([getattr(start, field).get(part) for start in starts])
            for field in ("started", "loaded", "part_ready", "cpu")
        ]
        yield f"{part:<12}{figures[0]:>9}{figures[1]:>9}{figures[2]:>9}{figures[3]:>11}"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _shown(spread(known).median) if known else ""


def _shown(seconds: float) -> str:
    return f"{seconds:.2f}"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
