"""The screen of `anabranch top` from snapshots: what it shows, and that it fits every terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.top.panes import LAG_WORTH_TELLING_S, Column, Style, View, pane, panes, rate
from anabranch.cli.top.screen import Line, screen, shares, widths
from anabranch.cli.top.snapshot import (
    ContainerLine,
    GroupLine,
    Groups,
    MemberLine,
    Members,
    Part,
    Snapshot,
    StreamLine,
    Streams,
    Work,
    WorkLine,
)

NOW_MS = 1_700_000_000_000
EMPTY = Snapshot(NOW_MS, "nats://127.0.0.1:4222")


def full(streams: int = 3, *, trouble: str = "") -> Snapshot:
    lines = [
        StreamLine(f"plant/sensors-{number}", "active", 4, 2, 1000.0 - number, 1e6, 2.0, "fixed")
        for number in range(streams)
    ]
    groups = (
        GroupLine("plant/workers", "reading", 2, 4, ("plant/sensors",), 1200, 2**20, 1.5),
        GroupLine("plant/stuck", "its log does not answer"),
    )
    members = Members(
        leader="c1",
        term=3,
        lines=(
            MemberLine("controller", "c1", "leads, term 3", NOW_MS - 90_000, "host 17"),
            MemberLine("store", "s1", "down", NOW_MS - 5_000, "127.0.0.1:1", 0, 2),
        ),
        containers_open=3,
        containers=4,
        troubled=(ContainerLine(2, "unavailable", "s1", ""),),
    )
    work = WorkLine("plant/sensors-0", "scale: seal_segments", NOW_MS - 2_000, 3, "a store is away")
    return Snapshot(
        NOW_MS,
        "nats://127.0.0.1:4222",
        41.0,
        Part(Streams(lines, streams + 5, True), NOW_MS - 4_000, trouble),
        Part(Groups(groups, 2, True, late=1), NOW_MS),
        Part(members, NOW_MS),
        Part(Work((work,), 1), NOW_MS),
    )


def text_of(lines: "list[Line] | tuple[Line, ...]") -> str:
    return "\n".join(line.text for line in lines)


def shown(snapshot: Snapshot, view: View = View.ALL, width: int = 80, height: int = 24) -> str:
    return text_of(list(screen(snapshot, view, width=width, height=height)))


def line_with(snapshot: Snapshot, word: str, view: View = View.ALL) -> Line:
    lines = screen(snapshot, view, width=120, height=40)
    return next(line for line in lines if word in line.text)


@given(
    st.sampled_from(list(View)),
    st.integers(1, 200),
    st.integers(1, 60),
    st.integers(0, 100),
    st.booleans(),
)
def test_the_screen_fits_every_terminal(
    view: View, width: int, height: int, streams: int, empty: bool
) -> None:
    snapshot = EMPTY if empty else full(streams, trouble="no answer within 2 s")

    lines = screen(snapshot, view, width=width, height=height)

    assert len(lines) == height
    assert max(len(line.text) for line in lines) <= width


def test_a_small_terminal_shows_something_of_every_part() -> None:
    text = shown(full(30))

    for word in (
        "STREAMS (35)", "plant/sensors-0", "READER GROUPS (2)", "plant/workers", "plant/stuck",
        "CLUSTER (3)", "s1 ", "container 2", "WORK (1)", "a store is away", "[a] all",
    ):  # fmt: skip
        assert word in text


def test_a_view_has_the_screen_for_itself_and_tells_how_many_are_left_out() -> None:
    alone = shown(full(30), View.STREAMS)

    assert "READER GROUPS" not in alone
    assert "[s] streams" in alone
    assert alone.count("plant/sensors-") == 18
    assert "… 17 more" in alone


def test_a_cut_list_says_that_there_may_be_more() -> None:
    cut = Snapshot(NOW_MS, "x", streams=Part(Streams((), 1000, False), NOW_MS))

    assert "STREAMS (1000+)" in shown(cut)
    assert "… at least 1000 more" in shown(cut)


def test_the_head_tells_the_leader_the_load_and_the_work() -> None:
    first, second, *_ = shown(full(2)).splitlines()

    assert first.startswith("anabranch top  nats://127.0.0.1:4222")
    assert first.endswith("22:13:20, asked in 41 ms")
    assert second.split("  ") == [
        "leader c1", "containers 3/4", "1,999 events/s", "1.91 MiB/s", "1 pending, 1 failing",
    ]  # fmt: skip


def test_a_part_without_an_answer_says_so_above_its_last_rows() -> None:
    lines = shown(full(2, trouble="no answer within 2 s")).splitlines()

    at = lines.index("no answer within 2 s; as of 4 s ago")
    assert lines[at - 1].startswith("STREAMS (7)")
    assert lines[at + 1].startswith("plant/sensors-0")


def test_a_part_that_never_answered_is_not_shown_as_empty() -> None:
    nothing = Snapshot(NOW_MS, "x", streams=Part(trouble="no answer within 2 s"))

    alone = shown(nothing, View.STREAMS)
    assert "no answer within 2 s" in alone
    assert "none" not in alone


def test_some_that_did_not_answer_in_time_are_counted() -> None:
    assert "1 did not answer in time" in shown(full())


@pytest.mark.parametrize(
    ("word", "style"),
    [
        ("plant/stuck", Style.BAD),
        ("plant/workers", Style.PLAIN),
        ("container 2", Style.BAD),
        ("s1 ", Style.BAD),
        ("seal_segments", Style.WARNING),
        ("leader", Style.WARNING),
    ],
)
def test_rows_that_need_attention_stand_out(word: str, style: Style) -> None:
    assert line_with(full(), word).style == style


def test_a_group_far_behind_or_without_readers_is_a_warning() -> None:
    def style_of(line: GroupLine) -> Style:
        snapshot = Snapshot(NOW_MS, "x", groups=Part(Groups((line,), 1), NOW_MS))
        return pane(snapshot, View.GROUPS).rows[0].style

    far = GroupLine("a/b", "reading", 1, 1, (), 5, 10, LAG_WORTH_TELLING_S)
    idle = GroupLine("a/b", "no reader", 0, 1, (), 0, 0, 0.0)
    waiting = GroupLine("a/b", "no reader", 0, 1, (), 1, 10, 1.0)
    assert [style_of(one) for one in (far, idle, waiting)] == [
        Style.WARNING, Style.PLAIN, Style.WARNING,
    ]  # fmt: skip


def test_an_estimate_of_unread_events_is_marked() -> None:
    line = GroupLine("a/b", "reading", 1, 1, (), 1200, 10, 1.0, exact=False)
    found = pane(Snapshot(NOW_MS, "x", groups=Part(Groups((line,), 1), NOW_MS)), View.GROUPS)

    assert found.rows[0].cells[1] == "~1,200"


def test_a_hold_is_a_line_of_its_own() -> None:
    members = Members("c1", 3, hold="nothing moves: missing s1")
    held = Snapshot(NOW_MS, "x", members=Part(members, NOW_MS))

    assert line_with(held, "nothing moves").style == "bold red"


def test_a_member_that_is_down_comes_before_its_containers() -> None:
    members = [row.cells[0] for row in pane(full(), View.CLUSTER).rows]

    assert members == ["s1", "container 2", "c1"]


def test_every_row_has_a_cell_for_every_column() -> None:
    for one in panes(full()):
        assert one.rows
        assert {len(row.cells) for row in one.rows} == {len(one.columns)}


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(-5, 60))
def test_rows_are_shared_evenly_and_none_is_wasted(needs: list[int], room: int) -> None:
    given_rows = shares(needs, room)

    assert sum(given_rows) == min(max(room, 0), sum(needs))
    assert all(has <= needed for has, needed in zip(given_rows, needs, strict=True))
    short = [has for has, needed in zip(given_rows, needs, strict=True) if has < needed]
    assert not short or max(short) - min(short) <= 1


def test_only_texts_shrink_and_the_widest_first() -> None:
    columns = (Column("a", shrinks=True), Column("n", right=True), Column("b", shrinks=True))
    cells = [("x" * 30, "1234567890", "y" * 20)]

    assert widths(columns, cells, 100) == [30, 10, 20]
    assert widths(columns, cells, 54) == [20, 10, 20]
    assert widths(columns, cells, 44) == [15, 10, 15]
    assert widths(columns, cells, 10) == [8, 10, 8]


@pytest.mark.parametrize(
    ("per_s", "text"), [(None, "–"), (0.0, "0"), (0.25, "0.25"), (12345.6, "12,346")]
)
def test_small_rates_keep_their_fraction(per_s: float | None, text: str) -> None:
    assert rate(per_s) == text
