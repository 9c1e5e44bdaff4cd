"""The command `anabranch top`: a live view of the cluster, or snapshots for programs."""

import sys
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.target import shown_address
from anabranch.cli.top.gather import Gatherer
from anabranch.cli.top.panes import Pane, panes
from anabranch.cli.top.snapshot import Snapshot
from anabranch.client import Client
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import Clock, SystemClock

INTERVAL_S_MIN = 0.2
DEADLINE_S_MIN = 2.0
_HERE = Connection()


def top(
    *,
    interval: float = 2.0,
    limit: int = 50,
    once: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Watch streams, reader groups, members and work of the cluster.

    Keys: q quits; s, g, t, c and w show streams, groups, topics, the cluster or work alone, and a
    shows all. Of topics, partitions and SPUs, those are shown that need attention.
    Without a terminal, the command shows one snapshot. With --json it prints one object per
    snapshot until Ctrl-C, or one with --once. The first rates of a stream are means of the last
    minute, the later ones those since the refresh before.

    Parameters
    ----------
    interval
        Seconds between two refreshes.
    limit
        The most streams and reader groups to show: the busiest, and those that lag most.
    once
        Show one snapshot as tables.
    """
    if interval < INTERVAL_S_MIN or limit < 1:
        raise InvalidRequest(
            "a refresh needs an interval and a limit",
            remedy=f"give --interval {INTERVAL_S_MIN:g} or more, --limit 1 or more",
        )
    address = shown_address(connection.target.context)

    async def perform(client: Client, output: Output) -> None:
        clock = SystemClock()
        deadline_s = max(DEADLINE_S_MIN, interval)
        gatherer = Gatherer(client, address, clock=clock, limit=limit, deadline_s=deadline_s)
        if output.for_programs:
            await _print_records(gatherer, output, clock, 0.0 if once else interval)
        elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            show(await gatherer.snapshot(), output)
        else:
            from anabranch.cli.top.watch import watch

            await watch(gatherer, interval_s=interval, clock=clock)

    run_with_client(connection, perform)


async def _print_records(
    gatherer: Gatherer, output: Output, clock: Clock, interval_s: float
) -> None:
    """One record per snapshot, for ever; without an interval a single one."""
    while True:
        due = clock.monotonic() + interval_s
        output.done("", asdict(await gatherer.snapshot()))
        sys.stdout.flush()
        if not interval_s:
            return
        await clock.sleep(max(0.0, due - clock.monotonic()))


def show(snapshot: Snapshot, output: Output) -> None:
    """Print the panes of a snapshot as tables."""
    for one in panes(snapshot):
        output.done(heading(one), {})
        if one.rows:
            names = [column.name for column in one.columns]
            output.rows(names, [row.cells for row in one.rows], ())


def heading(one: Pane) -> str:
    """The line above a plain table."""
    left_out = one.count - len(one.rows)
    more = f", {left_out} more" if left_out else ""
    note = f": {one.note}" if one.note else ""
    return f"{one.title} ({one.count}{'' if one.is_whole else '+'}{more}){note}"
