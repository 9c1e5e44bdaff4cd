"""Turns a snapshot into panes: tables with styles, for the screen and for plain output. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch.cli.figures import NONE, duration, size
from anabranch.cli.top.snapshot import (
    ContainerLine,
    GroupLine,
    MemberLine,
    Part,
    Snapshot,
    StreamLine,
    TopicLine,
    WorkLine,
)

LAG_WORTH_TELLING_S = 60.0
"""A group that lags so far behind is shown as a warning."""


class View(StrEnum):
    """The panes that the screen shows; the value is the key for it."""

    ALL = "a"
    STREAMS = "s"
    GROUPS = "g"
    TOPICS = "t"
    CLUSTER = "c"
    WORK = "w"


class Style(StrEnum):
    """The meaning of a row, as a style of rich."""

    PLAIN = ""
    DIM = "dim"
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, in the order of its pane's columns."""

    cells: tuple[str, ...]
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """`right`: numbers, aligned to the right. `shrinks`: its texts may be cut if space is short."""

    name: str
    right: bool = False
    shrinks: bool = False


@dataclass(frozen=True, slots=True)
class Pane:
    """A table. `note`: why it is old or incomplete; `count`: all rows that exist."""

    view: View
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    count: int
    is_whole: bool = True
    note: str = ""


def _text(name: str) -> Column:
    return Column(name, shrinks=True)


def _number(name: str) -> Column:
    return Column(name, right=True)


STREAM_COLUMNS = (
    _text("stream"), _number("events/s"), _number("bytes/s"), _number("segments"),
    _number("epoch"), _text("scaling"), _text("state"),
)  # fmt: skip
GROUP_COLUMNS = (
    _text("group"), _number("unread"), _number("bytes"), _number("behind"), _number("readers"),
    _number("segments"), _text("state"),
)  # fmt: skip
TOPIC_COLUMNS = (
    _text("topic"), _number("online"), _text("state"), _text("why"), _text("remedy"),
)  # fmt: skip
MEMBER_COLUMNS = (
    _text("member"), Column("kind"), _text("state"), _number("for"), _number("containers"),
    _text("at"),
)  # fmt: skip
WORK_COLUMNS = (
    _text("work"), _text("step"), _number("for"), _number("tries"), _text("why"),
)  # fmt: skip


def panes(snapshot: Snapshot) -> Sequence[Pane]:
    """All panes, in the order of the screen; the topics only if there are any."""
    found = snapshot.topics
    topics = found.value is not None and (found.value.count > 0 or found.value.troubled > 0)
    shown = [view for view in _PANES if view is not View.TOPICS or topics]
    return [pane(snapshot, view) for view in shown]


def pane(snapshot: Snapshot, view: View) -> Pane:
    """One pane."""
    return _PANES[view](snapshot)


def _streams(snapshot: Snapshot) -> Pane:
    found = snapshot.streams.value
    return Pane(
        View.STREAMS,
        "streams",
        STREAM_COLUMNS,
        [_stream_row(line) for line in found.lines] if found else (),
        found.count if found else 0,
        found.is_whole if found else True,
        _note(snapshot, snapshot.streams, found.late if found else 0),
    )


def _stream_row(line: StreamLine) -> Row:
    """Same order as `STREAM_COLUMNS`."""
    state = line.doing or line.state
    idle = not line.events_per_s
    style = Style.WARNING if line.doing else Style.DIM if idle else Style.PLAIN
    cells = (
        line.stream,
        rate(line.events_per_s),
        NONE if line.bytes_per_s is None else size(line.bytes_per_s),
        str(line.segments),
        str(line.epoch),
        line.scaling,
        state,
    )
    return Row(cells, style)


def _groups(snapshot: Snapshot) -> Pane:
    found = snapshot.groups.value
    return Pane(
        View.GROUPS,
        "reader groups",
        GROUP_COLUMNS,
        [_group_row(line) for line in found.lines] if found else (),
        found.count if found else 0,
        found.is_whole if found else True,
        _note(snapshot, snapshot.groups, found.late if found else 0),
    )


def _group_row(line: GroupLine) -> Row:
    """Same order as `GROUP_COLUMNS`."""
    if line.events is None:
        style = Style.BAD if line.state else Style.DIM
        return Row((line.group, *[NONE] * 5, line.state or "not asked yet"), style)
    about = "" if line.exact else "~"
    behind_s = line.seconds or 0.0
    lags = behind_s >= LAG_WORTH_TELLING_S or (line.events > 0 and not line.readers)
    cells = (
        line.group,
        f"{about}{line.events:,}",
        size(line.bytes or 0),
        duration(behind_s * 1000) if behind_s else "0",
        str(line.readers),
        str(line.segments),
        line.state,
    )
    return Row(cells, Style.WARNING if lags else Style.PLAIN)


def _topics(snapshot: Snapshot) -> Pane:
    found = snapshot.topics.value
    count = found.count if found else 0
    return Pane(
        View.TOPICS,
        f"{count}{'' if found is None or found.is_whole else '+'} topics; in trouble",
        TOPIC_COLUMNS,
        [_topic_row(line) for line in found.lines] if found else (),
        found.troubled if found else 0,
        note=_note(snapshot, snapshot.topics),
    )


def _topic_row(line: TopicLine) -> Row:
    """Same order as `TOPIC_COLUMNS`."""
    online = NONE if line.partitions is None else f"{line.online} of {line.partitions}"
    return Row((line.about, online, line.state, line.reason, line.remedy), Style.BAD)


def _cluster(snapshot: Snapshot) -> Pane:
    found = snapshot.members.value
    rows: list[Row] = []
    if found is not None:
        members = [_member_row(line, snapshot.at_ms) for line in found.lines]
        rows += [row for row in members if row.style is Style.BAD]
        rows += [_container_row(line) for line in found.troubled]
        rows += [row for row in members if row.style is not Style.BAD]
    note = _note(snapshot, snapshot.members)
    return Pane(View.CLUSTER, "cluster", MEMBER_COLUMNS, rows, len(rows), note=note)


def _member_row(line: MemberLine, now_ms: int) -> Row:
    """Same order as `MEMBER_COLUMNS`."""
    down = line.state.split(",")[0] in ("down", "stopped", "over", "refused", "unregistered")
    held = NONE if line.placed is None else f"{line.open} of {line.placed} open"
    cells = (line.member, line.kind, line.state, _age(line.since_ms, now_ms), held, line.place)
    return Row(cells, Style.BAD if down else Style.PLAIN)


def _container_row(line: ContainerLine) -> Row:
    """Same order as `MEMBER_COLUMNS`."""
    state = f"{line.state}: {line.reason}" if line.reason else line.state
    cells = (f"container {line.container}", "container", state, "", "", line.store)
    return Row(cells, Style.WARNING if line.serves else Style.BAD)


def _work(snapshot: Snapshot) -> Pane:
    found = snapshot.work.value
    return Pane(
        View.WORK,
        "work",
        WORK_COLUMNS,
        [_work_row(line, snapshot.at_ms) for line in found.lines] if found else (),
        found.count if found else 0,
        found.is_whole if found else True,
        _note(snapshot, snapshot.work),
    )


def _work_row(line: WorkLine, now_ms: int) -> Row:
    """Same order as `WORK_COLUMNS`."""
    style = Style.BAD if line.parked else Style.WARNING if line.failing else Style.PLAIN
    why = " ".join(line.why.split())
    age = _age(line.since_ms, now_ms)
    return Row((line.about, line.step, age, str(line.attempts), why), style)


_PANES: Mapping[View, Callable[[Snapshot], Pane]] = {
    View.STREAMS: _streams,
    View.GROUPS: _groups,
    View.TOPICS: _topics,
    View.CLUSTER: _cluster,
    View.WORK: _work,
}


def rate(per_s: float | None) -> str:
    """Events per second; small ones with a fraction."""
    if per_s is None:
        return NONE
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.2g}"


def _age(since_ms: int, now_ms: int) -> str:
    return duration(max(0, now_ms - since_ms) // 1000 * 1000) if since_ms else NONE


def _note(snapshot: Snapshot, part: Part[object], late: int = 0) -> str:
    if not part.trouble:
        return f"{late} did not answer in time" if late else ""
    if part.value is None:
        return part.trouble
    return f"{part.trouble}; as of {_age(part.as_of_ms, snapshot.at_ms)} ago"
