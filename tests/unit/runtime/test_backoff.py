"""One back-off for all: doubling, bounded, and spread by a draw."""

import pytest

from anabranch.common.runtime.backoff import Backoff
from anabranch.segstore.shell.container.pauses import BACK_OFF, drawn_from
from kit.rng import seeded

PAUSES = Backoff(first_s=0.5, longest_s=4.0)


def test_the_bound_of_a_pause_doubles_with_each_failure_until_the_longest() -> None:
    almost_one = 1 - 2**-53

    pauses = [PAUSES.delay_s(failures, almost_one) for failures in (1, 2, 3, 4, 5, 10_000)]

    assert pauses == pytest.approx([0.5, 1.0, 2.0, 4.0, 4.0, 4.0])


def test_a_draw_spreads_pauses_over_the_upper_half() -> None:
    assert [PAUSES.delay_s(2, draw) for draw in (0.0, 0.5)] == [0.5, 0.75]


def test_there_is_no_pause_without_a_failure() -> None:
    with pytest.raises(AssertionError):
        PAUSES.delay_s(0, 0.5)


def test_a_store_that_one_fault_stopped_with_others_comes_back_at_a_moment_of_its_own() -> None:
    pauses = {drawn_from(seeded(store))(7) for store in range(48)}

    assert len(pauses) == 48
    assert all(BACK_OFF.longest_s / 2 <= pause_s < BACK_OFF.longest_s for pause_s in pauses)
