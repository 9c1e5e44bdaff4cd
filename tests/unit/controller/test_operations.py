"""How an aggregate remembers its commands."""

import pytest

from anabranch.common.contracts.commands import OperationState
from anabranch.common.errors import Busy
from anabranch.controller.domain.operations import (
    FREQUENT_COUNT_MAX,
    OPERATION_COUNT_MAX,
    Operations,
    check_room,
    find,
    finished_between,
    with_finished,
    with_frequent,
    with_satisfied,
    with_started,
)


def test_the_oldest_finished_ones_are_forgotten_and_running_ones_never() -> None:
    operations: Operations = with_started((), "running")
    for index in range(OPERATION_COUNT_MAX + 10):
        operations = with_satisfied(operations, f"done-{index}")

    assert len(operations) == OPERATION_COUNT_MAX
    assert find(operations, "running") is not None
    assert find(operations, "done-10") is None
    assert find(operations, "done-11") is not None


def test_what_ended_is_told_once() -> None:
    before = with_started(with_satisfied((), "old"), "running")
    after = with_satisfied(with_finished(before, ["running"]), "at once")

    ended = finished_between(before, after)

    assert [(o.operation, o.state) for o in ended] == [
        ("running", OperationState.SUCCEEDED),
        ("at once", OperationState.SUCCEEDED),
    ]
    assert finished_between(after, after) == []


def test_too_many_that_wait_are_refused() -> None:
    operations: Operations = ()
    for index in range(OPERATION_COUNT_MAX):
        check_room(operations)
        operations = with_started(operations, f"c{index}")

    with pytest.raises(Busy):
        check_room(operations)


def test_what_comes_all_the_time_pushes_out_nothing_else() -> None:
    known = with_satisfied((), "wish", "scale")
    for number in range(1000):
        known = with_frequent(known, f"release-{number}", "release")

    assert known[0].operation == "wish"
    kept = [o.operation for o in known[1:]]
    last = range(1000 - FREQUENT_COUNT_MAX, 1000)
    assert kept == [f"release-{number}" for number in last]
