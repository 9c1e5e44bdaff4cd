"""The live view of a measurement: some lines on the terminal, written over twice a second.

It is shown on stderr, if that is a terminal and the result is a table; it is gone when the result
comes. A thread of its own draws it, so that a busy event loop does not stop it; the thread only
reads counts.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.cli.output import Output
from anabranch.cli.perf.shown import Rows

if TYPE_CHECKING:
    from rich.console import Group

REFRESHES_PER_S = 2


@contextmanager
def live_view(title: str, rows: Callable[[], Rows], output: Output) -> Iterator[None]:
    """Show the rows that `rows` returns, again and again, until the block ends."""
    if output.for_programs or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, markup=False, highlight=False)
    with Live(
        console=console,
        get_renderable=lambda: drawn(title, rows()),
        refresh_per_second=REFRESHES_PER_S,
        transient=True,
    ):
        yield


def drawn(title: str, rows: Rows) -> "Group":
    """The title above two columns; a line that is too long for the terminal is cut."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return Group(Text(title, no_wrap=True, overflow="ellipsis"), table)
