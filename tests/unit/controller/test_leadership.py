"""Who leads: decided from the leader's record, and by two controllers on one bucket."""

import pytest

from anabranch.common.model.cluster import LeaderRecord
from anabranch.controller.domain.cluster.leadership import Abstain, Follow, Lead, Take, next_role

MINE = LeaderRecord("me", "mine", 4)
OTHER = LeaderRecord("other", "theirs", 4)


@pytest.mark.parametrize(
    ("found", "over", "role"),
    [
        (None, False, Take(LeaderRecord("me", "mine", 1))),
        (MINE, False, Lead(4)),
        (LeaderRecord("me", "older", 4), False, Take(LeaderRecord("me", "mine", 5))),
        (OTHER, False, Follow()),
        (OTHER, True, Take(LeaderRecord("me", "mine", 5))),
    ],
)
def test_the_lead_is_taken_only_when_nobody_has_it(
    found: LeaderRecord | None, over: bool, role: object
) -> None:
    assert next_role(found, "me", "mine", over=over, seeing=True) == role
    assert next_role(found, "me", "mine", over=over, seeing=False) == Abstain()
