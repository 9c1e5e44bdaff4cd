"""The steps of a move and of a drain, and what the commands about them show."""

import io
from collections.abc import Sequence

import pytest

from anabranch.cli.commands import containers, spus
from anabranch.cli.commands.spus import Looks, drained_in_time
from anabranch.cli.moving import (
    Drain,
    Step,
    current_step,
    move_text,
    placed_on,
    step_of,
    store_state,
)
from anabranch.cli.output import Form, Output
from anabranch.client import ContainerDescription, NodeDescription, Unavailable
from kit.snapshots import assert_snapshot
from kit.transaction_desk import SetClock

STORE = NodeDescription(node_id="store-1", host="10.0.0.1", port=9400, containers=2)
OPEN = ContainerDescription(
    container=3, state="open", container_epoch=5, node_id="store-2", host="10.0.0.2", port=9400
)


def moving(to: str = "store-1", **fields: object) -> ContainerDescription:
    return OPEN.model_copy(update={"target": to, **fields})


AWAY = OPEN.model_copy(update={"node_id": "store-1"})


@pytest.mark.parametrize(
    ("one", "step", "text"),
    [
        (OPEN, Step.WAITING, "container 3 to store-1: waiting"),
        (
            moving(state="failed", reason="disk-failed"),
            Step.WAITING,
            "container 3 to store-1: waiting, because it is failed on store-2: disk-failed",
        ),
        (moving(to="store-9"), Step.WAITING, "container 3 to store-1: waiting"),
        (moving(), Step.FLUSHING, "container 3 to store-1: flushing"),
        (
            AWAY.model_copy(update={"state": "assigned"}),
            Step.OPENING,
            "container 3 to store-1: opening",
        ),
        (
            AWAY.model_copy(update={"state": "failed", "reason": "no room"}),
            Step.OPENING,
            "container 3 to store-1: opening: no room",
        ),
        (AWAY, Step.OPEN, "container 3 to store-1: open"),
        (
            moving(isr=("store-2", "store-1")),
            Step.HANDING_OVER,
            "container 3 to store-1: handing over",
        ),
        (
            OPEN.model_copy(update={"wanted": ("store-1", "store-2")}),
            Step.COPYING,
            "container 3 to store-1: copying",
        ),
    ],
)
def test_a_move_waits_flushes_and_opens(one: ContainerDescription, step: Step, text: str) -> None:
    assert step_of(one, "store-1") is step
    assert move_text(one, "store-1") == text


def test_a_container_without_a_target_is_open_or_being_opened_or_waits() -> None:
    steps = [
        current_step(OPEN.model_copy(update={"state": state}))
        for state in ("open", "assigned", "failed", "unavailable")
    ]
    assert steps == [Step.OPEN, Step.OPENING, Step.WAITING, Step.WAITING]
    assert current_step(moving()) is Step.FLUSHING
    assert current_step(OPEN.model_copy(update={"wanted": ("store-1",)})) is Step.COPYING


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "alive"),
        ({"live": False}, "down"),
        ({"live": False, "over": True}, "over"),
        ({"live": False, "stopped": True}, "stopped"),
        ({"live": False, "stopped": True, "over": True}, "stopped"),
        ({"live": False, "refused": True}, "refused"),
        ({"live": False, "refused": True, "stopped": True}, "refused"),
    ],
)
def test_the_state_of_a_store_is_one_word(fields: dict[str, bool], state: str) -> None:
    assert store_state(STORE.model_copy(update=fields)) == state


def test_a_drain_tells_what_is_left_what_moves_and_its_rate() -> None:
    left = (moving(), OPEN.model_copy(update={"container": 4}))
    assert Drain("store-2", 3, left, 1.0).text == (
        "2 containers left; container 3 to store-1: flushing"
    )
    assert Drain("store-2", 3, left, 6.0).text == (
        "2 containers left; container 3 to store-1: flushing; 10 a minute, about 12 s left"
    )
    copied = OPEN.model_copy(
        update={"node_id": "store-1", "isr": ("store-1", "store-2"), "wanted": ("store-1", "x")}
    )
    assert Drain("store-2", 3, (copied,), 1.0).text == (
        "1 container left; container 3 to x: copying"
    )
    stuck = Drain("store-2", 3, left[1:], 1.0, "no other store is alive")
    assert stuck.text == "1 container left; waiting: no other store is alive"
    assert Drain("store-2", 3, (), 1.0).is_done


class Course:
    """What a cluster answers, one answer after the other; the last one again and again."""

    def __init__(self, *answers: Sequence[ContainerDescription]) -> None:
        self._answers = list(answers)
        self.asked_why: list[int] = []

    async def containers(self) -> list[ContainerDescription]:
        return list(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    async def why(self, container: int) -> str:
        self.asked_why.append(container)
        return "no other store is alive"


async def test_a_drain_shows_each_step_once_and_ends_when_no_container_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = AWAY.model_copy(update={"container": 1})
    course = Course(
        [other, OPEN], [other, moving()], [other, moving()],
        [other, AWAY.model_copy(update={"state": "assigned"})],
    )  # fmt: skip

    done = await watched(course)

    assert done.is_done
    assert done.at_first == 1
    assert capsys.readouterr().err.splitlines() == [
        "1 container left",
        "1 container left; container 3 to store-1: flushing",
    ]
    assert course.asked_why == []


FOLLOWED = AWAY.model_copy(update={"replicas": ("store-1", "store-2"), "isr": ("store-1",)})


@pytest.mark.parametrize(
    ("left", "takers", "done"),
    [
        (FOLLOWED, {"store-1"}, True),
        (FOLLOWED, {"store-1", "store-3"}, False),
        (FOLLOWED, None, False),
        (FOLLOWED.model_copy(update={"node_id": "store-2"}), set(), False),
        (FOLLOWED.model_copy(update={"wanted": ("store-1", "store-3")}), {"store-1"}, False),
    ],
)
def test_a_drain_is_done_when_only_copies_are_left_that_no_other_store_can_take(
    left: ContainerDescription, takers: set[str] | None, *, done: bool
) -> None:
    known = frozenset(takers) if takers is not None else None
    assert Drain("store-2", 1, (left,), 1.0, takers=known).is_done is done


async def test_a_drain_that_nothing_moves_tells_why_and_gives_up_in_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = Course([OPEN])

    with pytest.raises(Unavailable, match="has containers left") as late:
        await watched(course)

    assert late.value.fields["reason"] == "no other store is alive"
    assert capsys.readouterr().err.splitlines() == [
        "1 container left",
        "1 container left; waiting: no other store is alive",
    ]
    assert 2 <= len(course.asked_why) <= 5, "it asks now and then"


async def test_a_move_shows_each_step_once_and_ends_when_the_container_is_open_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = Course(
        [moving()], [moving()], [AWAY.model_copy(update={"state": "assigned"})], [AWAY]
    )  # fmt: skip

    async def look() -> ContainerDescription:
        return (await course.containers())[0]

    output = Output(Form.JSON)
    found = await containers.opened_in_time(look, output, "store-1", SetClock())

    assert found == AWAY
    told = capsys.readouterr().err.splitlines()
    assert ['"step": "flushing"' in line for line in told] == [True, False]
    assert '"step": "opening"' in told[1]


async def watched(course: Course) -> Drain:
    looks = Looks(course.containers, course.why)
    return await drained_in_time(
        looks, Output(Form.TABLE), "store-2", timeout_s=10.0, clock=SetClock()
    )


def test_only_containers_that_are_placed_on_a_store_are_its_own() -> None:
    assert placed_on("store-2", [OPEN, AWAY, moving()]) == [OPEN, moving()]
    followed = AWAY.model_copy(update={"replicas": ("store-1", "store-2")})
    assert placed_on("store-2", [AWAY, followed]) == [followed], "its copy is to leave, too"


def test_stores_and_containers_as_tables() -> None:
    stores = [
        STORE.model_copy(update={"rack": "a", "log": "jetstream", "containers_open": 2}),
        STORE.model_copy(update={"node_id": "store-2", "draining": True, "log": "jetstream"}),
        STORE.model_copy(
            update={"node_id": "store-3", "over": True, "live": False, "containers_followed": 3}
        ),
    ]
    found = [
        AWAY.model_copy(update={"log": "jetstream", "lease": "held"}),
        moving(log="jetstream", lease="lapsed"),
        ContainerDescription(container=5, state="unassigned"),
        AWAY.model_copy(
            update={
                "container": 6, "log": "replicated", "lease": "held", "isr_min": 2,
                "replicas": ("store-1", "store-2", "store-3"), "isr": ("store-1", "store-2"),
                "wanted": ("store-1", "store-2", "store-4"),
            }
        ),
    ]  # fmt: skip
    stream = io.StringIO()
    output = Output(Form.TABLE, stream)
    output.rows(spus.COLUMNS, [spus.row(one) for one in stores], ())
    output.rows(containers.COLUMNS, [containers.row(one) for one in found], ())
    assert_snapshot("stores-and-containers-in-a-pipe", stream.getvalue())
