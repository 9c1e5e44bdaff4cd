"""Every workflow of the controller is killed, or stands still, at everything that it changes.

Before and after every append to the event store and every request to a segment store, of which a
usual run tries a share. Whoever goes on is killed too, at the beginning of its work; what comes out
is opened twice more.
"""

import pytest

from kit.control_crash import PLOTS, changing_requests, killed, stood_still
from kit.thorough import some_of

STATES_MIN = 300
ONE_IN = 18
SECOND_KILLS = (17, 20)
"""Requests of the next controller: having caught up takes it 16."""


@pytest.mark.parametrize("name", PLOTS)
def test_a_workflow_killed_at_any_change_is_ended_by_others(name: str) -> None:
    plot = PLOTS[name]
    for call in some_of(changing_requests(plot), ONE_IN):
        for next_call in (0,) if plot.is_long else (0, *SECOND_KILLS):
            killed(plot, call, "before", next_call)
            killed(plot, call, "after", next_call)


@pytest.mark.parametrize("name", PLOTS)
def test_a_controller_that_wakes_when_others_have_gone_on_changes_nothing(name: str) -> None:
    plot = PLOTS[name]
    for call in some_of(changing_requests(plot), ONE_IN):
        stood_still(plot, call, "before")
        stood_still(plot, call, "after")


def test_enough_states_are_tried() -> None:
    changes = sum(len(changing_requests(plot)) for plot in PLOTS.values())
    assert changes * 2 * (1 + len(SECOND_KILLS)) >= STATES_MIN
