"""Lays a snapshot out on a screen of any size, line by line. Pure.

```
anabranch top  nats://…                                12:03:04, asked in 41 ms
leader c1 (term 3), 2 of 2 members alive, 4 of 4 containers open
                                                                   (a blank line)
STREAMS (12)     EVENTS/S  BYTES/S  SEGMENTS …          one pane, or all of them
demo/sensors        1,204  1.2 MiB         4
… 8 more
READER GROUPS (2) …
q quit  a all  s streams …                            always the last line
```

If the panes need more lines than there are, each gets one row in turn until no line is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.cli.figures import moment, size
from anabranch.cli.top.panes import Column, Pane, Style, View, pane, panes, rate
from anabranch.cli.top.snapshot import Snapshot

GAP = "  "
SHRUNK_WIDTH_MIN = 8
NAME_WIDTH = 16
HEADING = "bold cyan"
FOOTER = {
    "q": "quit", View.ALL: "all", View.STREAMS: "streams", View.GROUPS: "groups",
    View.TOPICS: "topics", View.CLUSTER: "cluster", View.WORK: "work",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen and its style, as rich names it."""

    text: str
    style: str = ""


BLANK = Line("")


def screen(snapshot: Snapshot, view: View, *, width: int, height: int) -> Sequence[Line]:
    """At most `height` lines of at most `width` characters."""
    shown = panes(snapshot) if view is View.ALL else [pane(snapshot, view)]
    head = [*_head(snapshot, width), BLANK]
    body = _body(shown, width, height - len(head) - 1)
    lines = [*head, *body][: height - 1]
    padding = [BLANK] * (height - 1 - len(lines))
    cut = [Line(cut_to(line.text, width), line.style) for line in (*lines, *padding)]
    return [*cut, Line(cut_to(_foot(view), width), Style.DIM)]


def shares(needs: Sequence[int], room: int) -> list[int]:
    """The rows that each pane gets: one in turn, as long as it needs more and there is room."""
    given = [0] * len(needs)
    while room > 0 and any(has < needed for has, needed in zip(given, needs, strict=True)):
        for number, needed in enumerate(needs):
            if given[number] < needed and room > 0:
                given[number] += 1
                room -= 1
    return given


def widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The width of each column; if they do not fit, the widest that may shrink do."""
    found = [max((len(row[at]) for row in cells), default=0) for at in range(len(columns))]
    while sum(found) + len(GAP) * (len(found) - 1) > width:
        shrinking = [
            at
            for at, column in enumerate(columns)
            if column.shrinks and found[at] > SHRUNK_WIDTH_MIN
        ]
        if not shrinking:
            break
        found[max(shrinking, key=lambda at: found[at])] -= 1
    return found


def cut_to(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _body(shown: Sequence[Pane], width: int, height: int) -> list[Line]:
    fixed = sum(2 + bool(one.note) for one in shown)
    given = shares([max(1, len(one.rows)) for one in shown], height - fixed)
    lines: list[Line] = []
    for one, rows in zip(shown, given, strict=True):
        lines += _table(one, rows, width)
    return lines


def _table(one: Pane, rows: int, width: int) -> list[Line]:
    """The pane with so many rows, a line for its note, and a line for the number of the rest."""
    taken = one.rows[:rows]
    heads = [column.name.upper() for column in one.columns]
    heads[0] = f"{one.title.upper()} ({one.count}{'' if one.is_whole else '+'})"
    cells = [heads, *(row.cells for row in taken)]
    fitting = widths(one.columns, cells, width)
    lines = [Line(_joined(one.columns, heads, fitting), HEADING)]
    if one.note:
        lines.append(Line(one.note, Style.BAD))
    lines += [Line(_joined(one.columns, row.cells, fitting), row.style) for row in taken]
    if not one.rows and rows and not one.note:
        lines.append(Line("none", Style.DIM))
    return [*lines, Line(_more(one, len(taken)), Style.DIM)]


def _more(one: Pane, taken: int) -> str:
    if one.count <= taken:
        return ""
    return f"… {'' if one.is_whole else 'at least '}{one.count - taken} more"


def _joined(columns: Sequence[Column], cells: Sequence[str], fitting: Sequence[int]) -> str:
    texts = [
        cut_to(cell, width).rjust(width) if column.right else cut_to(cell, width).ljust(width)
        for column, cell, width in zip(columns, cells, fitting, strict=True)
    ]
    return GAP.join(texts).rstrip()


def _head(snapshot: Snapshot, width: int) -> list[Line]:
    at = f"{moment(snapshot.at_ms)[11:19]}, asked in {snapshot.took_ms:.0f} ms"
    address = cut_to(snapshot.address, max(0, width - len("anabranch top") - len(at) - 4))
    first = f"anabranch top  {address}"
    lines = [Line(f"{first}{at.rjust(max(0, width - len(first)))}", "bold")]
    members = snapshot.members.value
    if members is not None and members.hold:
        lines.append(Line(members.hold, "bold red"))
    whole = members is None or members.containers_open == members.containers
    return [*lines, Line(_totals(snapshot), Style.PLAIN if whole else Style.WARNING)]


def _totals(snapshot: Snapshot) -> str:
    told: list[str] = []
    if (members := snapshot.members.value) is not None:
        leader = f"leader {cut_to(members.leader, NAME_WIDTH)}" if members.leader else "no leader"
        told += [leader, f"containers {members.containers_open}/{members.containers}"]
    if (streams := snapshot.streams.value) is not None:
        events = sum(line.events_per_s or 0.0 for line in streams.lines)
        size_bytes = sum(line.bytes_per_s or 0.0 for line in streams.lines)
        told += [f"{rate(events)} events/s", f"{size(size_bytes)}/s"]
    if (work := snapshot.work.value) is not None:
        failing = sum(line.failing or line.parked for line in work.lines)
        told.append(f"{work.count} pending" + (f", {failing} failing" if failing else ""))
    return "  ".join(told) or "the cluster does not answer"


def _foot(view: View) -> str:
    return GAP.join(
        f"[{key}] {name}" if key == view else f" {key}  {name}" for key, name in FOOTER.items()
    )
