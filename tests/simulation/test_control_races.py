"""Creating a stream against deleting its scope, mirrors behind, and wishes that queue up."""

import itertools
from collections.abc import Sequence

import pytest

from anabranch.common.contracts.commands import Command
from kit.control_crash import (
    CLOSE,
    CREATE,
    OTHER_SCALES,
    SAME_SCALES,
    WISHES,
    When,
    lagging,
    overtaken,
    queued_up,
)

REQUESTS_MAX = 24
"""More than either command's work takes."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("work", "by"), [(CREATE, CLOSE), (CLOSE, CREATE)], ids=["close", "create"]
)
def test_no_stream_lives_in_a_deleted_scope_however_one_overtakes_the_other(
    work: Command, by: Command, when: When
) -> None:
    for call in range(1, REQUESTS_MAX):
        overtaken(work, by, call, when)


@pytest.mark.parametrize("seed", range(10))
def test_mirrors_that_are_seconds_behind_neither_delete_too_much_nor_deny_what_is_there(
    seed: int,
) -> None:
    lagging(seed)


@pytest.mark.parametrize("asked", list(itertools.permutations(WISHES)))
def test_wishes_that_queue_up_end_with_their_own_work(asked: Sequence[Command]) -> None:
    queued_up(asked)


@pytest.mark.parametrize("away", range(4))
def test_a_scale_that_is_wanted_twice_is_done_once_though_a_store_is_away(away: int) -> None:
    queued_up(SAME_SCALES, [away])
    queued_up(OTHER_SCALES, [away])
