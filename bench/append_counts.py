"""Counts what an event loop and the interpreter do while a process serves awaited appends.

    python -m bench.append_counts FILE        a segment store that counts

The store counts from one SIGUSR1 to the next, and then writes the counts to FILE as JSON.
`bench.append_costs` starts it, and counts its own client with `Counts` in the same way.
"""

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop


class Counts:
    """Counts while `counting`: a loop's objects, and the calls of the thread that starts it."""

    def __init__(self) -> None:
        self.counting = False
        self.found: Counter[str] = Counter()

    def start(self) -> None:
        """Count from now on. Every call is counted, which makes them slow."""
        self.found.clear()
        self.counting = True
        sys.setprofile(self._called)

    def stop(self) -> dict[str, int]:
        """Stop counting → name of a kind of thing → how many."""
        sys.setprofile(None)
        self.counting = False
        return dict(self.found)

    def note(self, kind: str) -> None:
        """Count one, if this counts now."""
        if self.counting:
            self.found[kind] += 1

    def _called(self, _frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            self.found["calls of Python"] += 1
        elif event == "c_call":
            self.found["calls of C"] += 1


def _noted(kind: str, make: Callable[..., Any]) -> Any:
    """The loop's method `make`, which notes one of the kind for each call."""

    def noted(loop: "CountingLoop", *args: Any, **options: Any) -> Any:
        loop.counts.note(kind)
        return make(loop, *args, **options)

    return noted


class CountingLoop(uvloop.Loop):
    """An event loop that notes in `counts` the objects that it is asked to make."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    call_soon = _noted("handles", uvloop.Loop.call_soon)
    call_soon_threadsafe = _noted("hops from a thread", uvloop.Loop.call_soon_threadsafe)
    call_later = _noted("timers", uvloop.Loop.call_later)
    create_future = _noted("futures", uvloop.Loop.create_future)
    create_task = _noted("tasks", uvloop.Loop.create_task)


def main(file: Path) -> int:
    """Run the store, whose loop counts; the result is its exit code."""
    from anabranch.common.runtime import service
    from anabranch.segstore.__main__ import main as serve

    counts = Counts()

    def turn(_number: int, _frame: FrameType | None) -> None:
        if counts.counting:
            file.write_text(json.dumps(counts.stop()))
        else:
            counts.start()

    signal.signal(signal.SIGUSR1, turn)
    vars(service)["loop_factory"] = lambda: lambda: CountingLoop(counts)
    sys.argv[1:] = []
    return serve()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
