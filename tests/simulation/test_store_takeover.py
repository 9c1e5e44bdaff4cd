"""An owner that stands still at any disk call while another process takes its directory over."""

from collections.abc import Callable

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.segstore.adapters.journal import layout
from kit.history import HistoryViolation
from kit.simdisk import SimDisk
from kit.store_takeover import (
    ONE_IN,
    journal_disk,
    random_takeover,
    take_over_everywhere,
    tier_disk,
)
from kit.store_world import World
from kit.thorough import one_in


@pytest.mark.parametrize("disk_of", [journal_disk, tier_disk])
def test_a_woken_owner_acknowledges_nothing_and_changes_nothing(
    disk_of: Callable[[World], SimDisk],
) -> None:
    assert take_over_everywhere(disk_of) >= 60 // one_in(ONE_IN)


def test_an_owner_that_does_not_look_at_the_fence_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "fence_held", lambda *_: True)
    with pytest.raises((HistoryViolation, AssertionError, AnabranchError)):
        take_over_everywhere(journal_disk)


def test_takeovers_of_random_writers_at_random_calls_change_nothing() -> None:
    for seed in range(60 // one_in(4)):
        random_takeover(seed)
