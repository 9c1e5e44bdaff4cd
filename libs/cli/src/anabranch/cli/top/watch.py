"""The live screen of `anabranch top`: one task refreshes the snapshot, the other waits for keys.

The screen is drawn after each refresh and each key. At the end the terminal shows its own contents
again.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anabranch.cli.top.gather import Gatherer
from anabranch.cli.top.keys import pressed_keys
from anabranch.cli.top.panes import View
from anabranch.cli.top.screen import Line, screen
from anabranch.cli.top.snapshot import Snapshot
from anabranch.common.runtime.clock import Clock

QUIT = "q"
REDRAW = "\f"
"""Comes in place of a key when the size of the terminal has changed."""


async def watch(gatherer: Gatherer, *, interval_s: float, clock: Clock) -> None:
    """Show the cluster until q is pressed. Stdin and stdout are terminals."""
    console = Console()
    with (
        Live(console=console, screen=True, auto_refresh=False) as live,
        pressed_keys(sys.stdin.fileno()) as keys,
        _resizes(keys),
    ):
        drawing = _Drawing(live, gatherer.last)
        async with asyncio.TaskGroup() as tasks:
            refreshing = tasks.create_task(drawing.refresh(gatherer, interval_s, clock))
            while (key := await keys.get()) != QUIT:
                drawing.pressed(key)
            refreshing.cancel()


class _Drawing:
    """The last snapshot and the present view."""

    def __init__(self, live: Live, snapshot: Snapshot) -> None:
        self._live = live
        self._snapshot = snapshot
        self._view = View.ALL
        self._draw()

    async def refresh(self, gatherer: Gatherer, interval_s: float, clock: Clock) -> None:
        """Take snapshots for ever, one every `interval_s`, or one after the other if they take
        longer."""
        while True:
            due = clock.monotonic() + interval_s
            self._snapshot = await gatherer.snapshot()
            self._draw()
            await clock.sleep(max(0.0, due - clock.monotonic()))

    def pressed(self, key: str) -> None:
        """Another view, or the same again on a terminal of another size."""
        if key in list(View):
            self._view = View(key)
        self._draw()

    def _draw(self) -> None:
        size = self._live.console.size
        lines = screen(self._snapshot, self._view, width=size.width, height=size.height)
        self._live.update(Group(*map(_text, lines)), refresh=True)


def _text(line: Line) -> Text:
    return Text(line.text, style=line.style, no_wrap=True, overflow="crop")


@contextmanager
def _resizes(keys: "asyncio.Queue[str]") -> Iterator[None]:
    """Within the block a change of the terminal's size comes as a key."""
    loop = asyncio.get_running_loop()

    def resized() -> None:
        if not keys.full():
            keys.put_nowait(REDRAW)

    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
