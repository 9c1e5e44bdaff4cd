"""The members and containers of a snapshot: which need attention, and how they are shown."""

from dataclasses import replace

from anabranch.cli.top.lines import members
from anabranch.cli.top.panes import Style, View, pane
from anabranch.cli.top.snapshot import Part, Snapshot
from anabranch.client import ClusterOverview, ContainerDescription, NodeDescription
from anabranch.common.contracts.membership import MemberCount

COUNT = MemberCount(known=2, live=2)
OVERVIEW = ClusterOverview(
    answered_by="c1", leader="c1", term=1, controllers=COUNT, stores=COUNT, containers={}
)
STORE = NodeDescription(node_id="s1", host="h", port=1, containers=2, containers_open=1)
OPEN = ContainerDescription(container=0, state="open", node_id="s1", log="jetstream", lease="held")


def rows(*found: NodeDescription | ContainerDescription) -> list[tuple[str, str, str, Style]]:
    """Name, state, place and style of each row."""
    told = members(
        OVERVIEW,
        (),
        [one for one in found if isinstance(one, NodeDescription)],
        [one for one in found if isinstance(one, ContainerDescription)],
    )
    snapshot = replace(Snapshot(1, "here"), members=Part(told, 1))
    shown = pane(snapshot, View.CLUSTER).rows
    return [(row.cells[0], row.cells[2], row.cells[5], row.style) for row in shown]


def test_a_container_that_serves_and_stays_is_not_shown() -> None:
    assert rows(OPEN) == []


def test_containers_that_wait_or_move_are_shown_with_their_step() -> None:
    moving = OPEN.model_copy(update={"target": "s2"})
    failed = {"state": "failed", "reason": "disk-failed"}
    opening = OPEN.model_copy(update={"node_id": "s2", "state": "assigned"})
    lapsed = OPEN.model_copy(update={"lease": "lapsed"})

    assert rows(moving, moving.model_copy(update=failed), opening, lapsed) == [
        ("container 0", "moving: flushing", "s1 → s2", Style.WARNING),
        ("container 0", "moving: waiting: disk-failed", "s1 → s2", Style.BAD),
        ("container 0", "assigned", "s2", Style.BAD),
        (
            "container 0",
            "open: reads wait, because the lease of its store has lapsed",
            "s1",
            Style.WARNING,
        ),
    ]


def test_stores_are_shown_with_the_state_of_their_session() -> None:
    over = STORE.model_copy(update={"live": False, "over": True})
    draining = STORE.model_copy(update={"node_id": "s2", "draining": True})

    assert rows(draining, over) == [
        ("s1", "over", "h:1", Style.BAD),
        ("s2", "alive, draining", "h:1", Style.PLAIN),
    ]
