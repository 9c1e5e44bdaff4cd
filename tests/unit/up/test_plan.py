"""The supervisor's decision, as a table: given states, then these actions."""

import pytest

from anabranch.cli.up import plan
from anabranch.cli.up.plan import (
    FAILURE_COUNT_MAX,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    Action,
    Answer,
    Forget,
    GiveUp,
    Kill,
    PartState,
    Phase,
    Start,
    Stop,
    back_off_seconds,
    next_actions,
)

NEEDS = {"nats": (), "controller": ("nats",), "segstore": ("nats",)}
NOW = 1000.0

IDLE = PartState()
STARTING = PartState(Phase.RUNNING, since=NOW)
READY = PartState(Phase.RUNNING, since=0.0, ready=True, serving=True, was_ready=True)
READY_NOW = PartState(
    Phase.RUNNING, since=0.0, ready=True, ready_since=NOW - 1, serving=True, was_ready=True
)
UNREADY = PartState(Phase.RUNNING, since=0.0, ready=False, was_ready=True)
OVERDUE = PartState(Phase.RUNNING, since=NOW - START_SECONDS_MAX)
OVERDUE_KILLED = PartState(Phase.RUNNING, since=NOW - START_SECONDS_MAX, killed=True)
JUST_DIED = PartState(Phase.BACKING_OFF, since=NOW, failures=1)
RESTED = PartState(Phase.BACKING_OFF, since=NOW - 10, failures=1)
HOPELESS = PartState(Phase.BACKING_OFF, since=NOW, failures=FAILURE_COUNT_MAX)
SERVING = PartState(Phase.RUNNING, since=0.0, serving=True)
STUCK_AT_ONCE = PartState(Phase.RUNNING, since=NOW, serving=True, stuck=True, reason="full")
STUCK_LONG = PartState(Phase.RUNNING, since=0.0, serving=True, stuck=True, reason="full")
EXCUSED = PartState(Phase.BACKING_OFF, since=NOW - 14, excused=FAILURE_COUNT_MAX * 10)
EXCUSED_RESTED = PartState(Phase.BACKING_OFF, since=NOW - 15, excused=FAILURE_COUNT_MAX * 10)
STOPPING = PartState(Phase.STOPPING, since=NOW)
STUCK = PartState(Phase.STOPPING, since=NOW - STOP_SECONDS_MAX)
STUCK_KILLED = PartState(Phase.STOPPING, since=NOW - STOP_SECONDS_MAX, killed=True)
DOWN = PartState(Phase.DOWN)


@pytest.mark.parametrize(
    ("given", "then"),
    [
        pytest.param(
            (IDLE, IDLE, IDLE),
            [Start("nats"), Start("controller"), Start("segstore")],
            id="all parts at once",
        ),
        pytest.param((STARTING, STARTING, STARTING), [], id="each waits for what it needs"),
        pytest.param((STARTING, READY, RESTED), [], id="a dead part, for what it needs to serve"),
        pytest.param((READY, READY, READY), [], id="nothing to do"),
        pytest.param((READY, UNREADY, READY), [], id="lost readiness alone is no reason to act"),
        pytest.param((READY, READY, JUST_DIED), [], id="a dead part rests first"),
        pytest.param((READY, READY, RESTED), [Start("segstore")], id="then it starts again"),
        pytest.param((RESTED, READY, RESTED), [Start("nats")], id="needs come back first"),
        pytest.param((READY, OVERDUE, READY), [Kill("controller", "not ready in time")], id="late"),
        pytest.param((READY, OVERDUE_KILLED, READY), [], id="a killed part is killed once"),
        pytest.param((READY, READY, HOPELESS), [GiveUp("segstore")], id="hopeless"),
        pytest.param((READY, READY, EXCUSED), [], id="a full disk is waited for"),
        pytest.param(
            (READY, READY, EXCUSED_RESTED), [Start("segstore")], id="and tried again, for ever"
        ),
        pytest.param((SERVING, READY, RESTED), [Start("segstore")], id="what serves is enough"),
        pytest.param((SERVING, OVERDUE, READY), [], id="late because of another part"),
        pytest.param((READY_NOW, OVERDUE, READY), [], id="which has only just become ready"),
        pytest.param((STUCK_LONG, READY, READY), [Kill("nats", "full")], id="a stuck part"),
        pytest.param((STUCK_AT_ONCE, READY, READY), [], id="a stuck part that just started"),
    ],
)
def test_a_running_cluster_takes_the_next_step(
    given: tuple[PartState, ...], then: list[Action]
) -> None:
    states = dict(zip(NEEDS, given, strict=True))

    assert next_actions(NEEDS, states, stopping=False, now=NOW) == then


@pytest.mark.parametrize(
    ("needed", "held_up"),
    [
        pytest.param(STARTING, True, id="it starts"),
        pytest.param(SERVING, True, id="it serves, and is not ready"),
        pytest.param(JUST_DIED, True, id="it has ended"),
        pytest.param(READY, False, id="it is ready"),
    ],
)
def test_a_part_is_excused_while_a_part_that_it_needs_is_not_ready(
    needed: PartState, *, held_up: bool
) -> None:
    assert plan.is_held_up(("nats",), {"nats": needed}) is held_up


OF_THREE = {"nats": (), "nats-2": (), "nats-3": (), "segstore": ("nats", "nats-2", "nats-3")}
LATE = PartState(
    Phase.RUNNING, since=0.0, ready=True, ready_since=NOW - 1, serving=True, was_ready=True
)


@pytest.mark.parametrize(
    ("servers", "store", "then"),
    [
        pytest.param((READY, JUST_DIED, READY), READY, [], id="one of three may be away"),
        pytest.param((READY, RESTED, READY), READY, [Start("nats-2")], id="and starts again"),
        pytest.param((READY, JUST_DIED, READY), RESTED, [Start("segstore")], id="two are enough"),
        pytest.param((READY, JUST_DIED, JUST_DIED), RESTED, [], id="one is not"),
        pytest.param(
            (READY, JUST_DIED, READY),
            OVERDUE,
            [Kill("segstore", "not ready in time")],
            id="late although two were ready for long",
        ),
        pytest.param((READY, LATE, READY), OVERDUE, [Kill("segstore", "not ready in time")]),
        pytest.param((READY, LATE, LATE), OVERDUE, [], id="late because of a second server"),
        pytest.param((READY, JUST_DIED, JUST_DIED), OVERDUE, [], id="late without a second one"),
    ],
)
def test_a_part_needs_most_of_the_parts_that_it_names(
    servers: tuple[PartState, ...], store: PartState, then: list[Action]
) -> None:
    states = dict(zip(OF_THREE, (*servers, store), strict=True))

    assert next_actions(OF_THREE, states, stopping=False, now=NOW) == then


def test_a_part_has_no_excuse_while_most_of_the_parts_that_it_needs_are_ready() -> None:
    needed = OF_THREE["segstore"]
    for servers, held_up in [((READY, SERVING, READY), False), ((READY, SERVING, SERVING), True)]:
        states = dict(zip(needed, servers, strict=True))
        assert plan.is_held_up(needed, states) is held_up


def test_a_part_that_kept_everything_in_memory_is_not_started_again() -> None:
    needs, died = {"nats": (), "segstore": ("nats",)}, {"nats": READY, "segstore": RESTED}
    assert next_actions(needs, died, stopping=False, now=NOW) == [Start("segstore")]
    assert next_actions(needs, died, stopping=False, now=NOW, irreplaceable={"segstore"}) == [
        GiveUp("segstore")
    ]


@pytest.mark.parametrize(
    ("given", "then"),
    [
        pytest.param((READY, READY, READY), [Stop("segstore")], id="the last part goes first"),
        pytest.param((READY, READY, STOPPING), [], id="the others wait for it"),
        pytest.param((READY, READY, STUCK), [Kill("segstore", "did not stop in time")], id="stuck"),
        pytest.param((READY, READY, STUCK_KILLED), [], id="killed once"),
        pytest.param((READY, READY, DOWN), [Stop("controller")], id="then the one before"),
        pytest.param((READY, RESTED, DOWN), [Forget("controller")], id="a dead part stays dead"),
        pytest.param((READY, DOWN, DOWN), [Stop("nats")], id="the first part goes last"),
        pytest.param((IDLE, IDLE, IDLE), [Forget("segstore")], id="what never ran is forgotten"),
        pytest.param((DOWN, DOWN, DOWN), [], id="all down"),
    ],
)
def test_a_stopping_cluster_takes_the_next_step(
    given: tuple[PartState, ...], then: list[Action]
) -> None:
    states = dict(zip(NEEDS, given, strict=True))

    assert next_actions(NEEDS, states, stopping=True, now=NOW) == then


def test_the_back_off_doubles_up_to_its_maximum() -> None:
    pauses = [back_off_seconds(PartState(failures=count)) for count in range(12)]

    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == plan.BACK_OFF.longest_s


def answered(state: PartState, answer: Answer) -> PartState:
    return plan.probed(state, answer, NOW, process_since=state.since)


def test_readiness_forgives_earlier_failures() -> None:
    state = plan.started(PartState(Phase.BACKING_OFF, failures=3, restarts=3), NOW)

    state = plan.ended(answered(state, Answer(True)), NOW, "ended by SIGKILL")

    assert (state.failures, state.restarts) == (0, 4)


def test_a_part_whose_disk_is_full_is_started_again_for_ever_with_growing_pauses() -> None:
    state, pauses, now = IDLE, [], NOW
    for _ in range(20):
        state = plan.ended(plan.started(state, now), now + 1, "exit code 75", "its disk is full")
        now = state.since + back_off_seconds(state) + 1
        pauses.append(back_off_seconds(state))
        assert next_actions({"x": ()}, {"x": state}, stopping=False, now=now) == [Start("x")]

    assert state.failures == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == plan.EXCUSED_BACK_OFF.longest_s
    assert state.reason == "exit code 75: its disk is full; it starts again in 15 s"


def test_a_part_that_ran_for_a_while_begins_with_short_pauses_again() -> None:
    state = plan.started(EXCUSED, NOW)

    state = plan.ended(state, NOW + plan.EXCUSED_FORGOTTEN_SECONDS, "exit code 75", "full")

    assert (state.excused, back_off_seconds(state)) == (1, 0.2)


def test_the_moment_at_which_a_part_became_ready_is_kept_until_it_does_so_again() -> None:
    state = plan.started(IDLE, NOW)
    answers = [False, True, True, False, True]

    kept = []
    for second, ready in enumerate(answers):
        state = plan.probed(state, Answer(ready), NOW + second, process_since=NOW)
        kept.append(state.ready_since - NOW)

    assert kept[1:] == [1.0, 1.0, 1.0, 4.0]


def test_the_answer_of_a_former_process_says_nothing_about_the_present_one() -> None:
    late = plan.started(PartState(Phase.BACKING_OFF, failures=2, restarts=2), NOW)

    assert plan.probed(late, Answer(True), NOW + 1, process_since=NOW - 1) == late


@pytest.mark.parametrize(
    ("state", "calm"),
    [
        (STARTING, False),
        (READY, True),
        (PartState(Phase.RUNNING, since=NOW - 1, serving=True), False),
        (SERVING, True),
        (UNREADY, False),
    ],
)
def test_a_part_is_asked_often_until_it_is_ready_and_seldom_afterwards(
    state: PartState, *, calm: bool
) -> None:
    assert plan.is_calm(state, NOW) is calm


def test_an_end_before_readiness_counts_as_a_failure() -> None:
    state = plan.ended(
        answered(plan.started(IDLE, NOW), Answer(False, "starting")), NOW, "exit code 1"
    )

    assert (state.failures, state.restarts, state.reason) == (1, 1, "exit code 1")


def test_an_end_that_was_asked_for_is_no_restart() -> None:
    state = plan.ended(plan.asked_to_stop(READY, NOW), NOW, "exit code 0")

    assert (state.phase, state.restarts) == (Phase.DOWN, 0)
