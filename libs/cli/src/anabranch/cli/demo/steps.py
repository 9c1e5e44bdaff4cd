"""Shows the step at which a demo is: bars on a terminal, plain lines anywhere else.

One step runs at a time; beginning the next one ends it. Its name remains known, so that a report
can say at which step a demo failed. `shown` encloses all steps: it refreshes the lines of a step
that reports nothing by itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from anabranch.cli.demo.step_pace import Pace, amount_text, clock_text, rate_text, seconds_text
from anabranch.common.runtime.clock import Clock

LINE_EVERY_S = 5.0
"""How often a plain output gets a line about a step that lasts."""
TICK_S = 1.0
NAME_WIDTH, BAR_WIDTH, AMOUNT_WIDTH, RATE_WIDTH = 20, 12, 15, 9
"""With the times, 80 characters; and columns that do not move."""


@dataclass(slots=True)
class Step:
    """A step. `left_s`: the remaining time, if the demo knows it better than the pace does."""

    name: str
    unit: str
    pace: Pace
    left_s: float | None = None

    @property
    def remaining_s(self) -> float | None:
        return self.pace.left_s if self.left_s is None else self.left_s


class View(Protocol):
    """The place at which steps appear."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def begin(self, step: Step) -> None: ...

    def advance(self, step: Step, now_s: float) -> None: ...

    def end(self, step: Step, now_s: float, *, complete: bool) -> None: ...

    def remark(self, text: str) -> None: ...


class Steps:
    """Owns the present step."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        bars = console.is_terminal and not console.quiet
        self._view: View = Bars(console) if bars else Lines(console)
        self._step: Step | None = None

    @property
    def name(self) -> str:
        """The name of the present step, also after it failed; empty before the first."""
        return self._step.name if self._step is not None else ""

    def begin(self, name: str, total: int | None = None, unit: str = "events") -> None:
        """End the present step and begin one; `total` None: its length is not known."""
        now_s = self._clock.monotonic()
        self._end(now_s, complete=True)
        self._step = Step(name, unit, Pace(now_s, total))
        self._view.begin(self._step)

    def advance(self, done: int, *, total: int | None = None, left_s: float | None = None) -> None:
        """`done` of the present step is done. `total`: it became known, or has changed."""
        step = self._step
        assert step is not None, "no step has begun"
        if total is not None:
            step.pace.total = total
        step.left_s = left_s
        now_s = self._clock.monotonic()
        step.pace.advance(now_s, done)
        self._view.advance(step, now_s)

    def remark(self, text: str) -> None:
        """Show a line about something that has happened."""
        self._view.remark(text)

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show the steps that run in the block. An error leaves the last one incomplete."""
        self._view.open()
        complete = False
        try:
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(self._tick())
                yield
                ticking.cancel()
            complete = True
        finally:
            self._end(self._clock.monotonic(), complete=complete)
            self._view.close()

    def _end(self, now_s: float, *, complete: bool) -> None:
        if self._step is not None:
            self._view.end(self._step, now_s, complete=complete)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            if self._step is not None:
                self._view.advance(self._step, self._clock.monotonic())


class Bars:
    """A bar or a spinner for each step, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", table_column=Column(min_width=NAME_WIDTH)),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[amount]}", table_column=Column(min_width=AMOUNT_WIDTH)),
            TextColumn("{task.fields[rate]}", table_column=Column(min_width=RATE_WIDTH)),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._console = console

    def open(self) -> None:
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()

    def begin(self, step: Step) -> None:
        total = step.pace.total
        self._task = self._progress.add_task(
            step.name, total=total, amount=amount_text(0, total), rate="", left=""
        )

    def advance(self, step: Step, now_s: float) -> None:  # noqa: ARG002 (bars count time)
        pace, left_s = step.pace, step.remaining_s
        self._progress.update(
            self._task, completed=pace.done, total=pace.total,
            amount=amount_text(pace.done, pace.total), rate=rate_text(pace.rate),
            left="" if left_s is None else f"{clock_text(left_s)} left",
        )  # fmt: skip

    def end(self, step: Step, now_s: float, *, complete: bool) -> None:
        total = step.pace.total
        done = total if complete and total is not None else step.pace.done
        self._progress.update(
            self._task, total=total or 1, completed=(total or 1) if complete else done,
            amount=amount_text(done, total), left="" if complete else "not finished",
            rate=rate_text(step.pace.mean_rate(now_s)),
        )  # fmt: skip
        self._progress.stop_task(self._task)

    def remark(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


class Lines:
    """Lines for files, pipes and logs: the begin, the end, and every few seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told_s = 0.0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def begin(self, step: Step) -> None:
        self._told_s = step.pace.begun_s
        total = step.pace.total
        self._say(step.name if total is None else f"{step.name}: {total:,} {step.unit}")

    def advance(self, step: Step, now_s: float) -> None:
        if now_s - self._told_s >= LINE_EVERY_S:
            self._told_s = now_s
            self._say(f"{step.name}: {progress_text(step, now_s)}")

    def end(self, step: Step, now_s: float, *, complete: bool) -> None:
        what = "done" if complete else "not finished"
        mean = step.pace.mean_rate(now_s) if step.pace.done else None
        rate = "" if mean is None else f", {mean:,.0f} {step.unit}/s"
        self._say(f"{step.name}: {what} after {step.pace.elapsed_s(now_s):.1f} s{rate}")

    def remark(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()


def progress_text(step: Step, now_s: float) -> str:
    """A step's progress in words, as far as it is known."""
    pace = step.pace
    parts = []
    if pace.total is not None:
        parts.append(f"{pace.done:,} of {pace.total:,} {step.unit}")
    if pace.done and pace.rate is not None:
        parts.append(f"{pace.rate:,.0f} {step.unit}/s")
    parts.append(f"{seconds_text(pace.elapsed_s(now_s))} so far")
    if step.remaining_s is not None:
        parts.append(f"{seconds_text(step.remaining_s)} left")
    return ", ".join(parts)
