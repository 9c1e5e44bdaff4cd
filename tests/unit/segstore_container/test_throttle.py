"""A store is as full as the fullest of what can fill up, and says what that is."""

import pytest

from anabranch.common.errors import Overloaded
from anabranch.segstore.shell.container.throttle import Source, ThrottleLimits, fullest
from kit.store_parts import a_throttle

LIMITS = ThrottleLimits(pending_soft=100, pending_hard=200, untiered=1000, journal=2000)


class Full:
    """A throttle and the size of its journal, set by hand."""

    def __init__(
        self, pending: int = 0, untiered: int = 0, journal: int = 0, taken_up: int = 0
    ) -> None:
        self.journal = journal
        self.no_room = False
        self.throttle = a_throttle(LIMITS, lambda: self.journal, lambda: self.no_room)
        self.throttle.pending = pending
        self.throttle.untiered = untiered
        self.throttle.taken_up = taken_up


def test_each_source_has_a_ratio_of_its_own_limit() -> None:
    ratios = Full(pending=50, untiered=750, journal=3000, taken_up=450).throttle.ratios()
    assert ratios == {
        Source.PENDING: 0.5, Source.UNFLUSHED: 0.8, Source.UNTIERED: 0.75, Source.JOURNAL: 1.5,
        Source.DISK: 0,
    }  # fmt: skip
    assert fullest(ratios) is Source.JOURNAL


@pytest.mark.parametrize(
    "full",
    [
        Full(pending=101),
        Full(untiered=376),
        Full(untiered=800, taken_up=424),
        Full(untiered=1001, taken_up=1001),
        Full(journal=2001),
        Full(101, 1001, 2001),
    ],
)
def test_any_source_above_its_limit_pauses(full: Full) -> None:
    assert full.throttle.paused
    assert max(full.throttle.ratios().values()) > 1


@pytest.mark.parametrize(
    ("full", "for_all"),
    [
        (Full(untiered=376), False),
        (Full(untiered=1001), False),
        (Full(untiered=1125), False),
        (Full(untiered=1126), True),
        (Full(journal=2250), False),
        (Full(journal=2251), True),
        (Full(pending=101), True),
    ],
)
def test_connections_that_send_little_go_on_while_a_flush_is_behind(
    full: Full, for_all: bool
) -> None:
    assert (full.throttle.paused, full.throttle.paused_for_all) == (True, for_all)


def test_a_full_disk_refuses_at_once_and_pauses_no_connection() -> None:
    full = Full(pending=150, untiered=1100)
    full.no_room = True
    assert not full.throttle.paused
    with pytest.raises(Overloaded) as refusal:
        full.throttle.admit(1)
    assert refusal.value.fields["source"] == "disk"
    full.no_room = False
    assert full.throttle.paused
    full.throttle.admit(1)


def test_sources_below_their_limits_do_not_add_up() -> None:
    full = Full(pending=100, untiered=1000, journal=2000, taken_up=625)
    assert not full.throttle.paused
    full.throttle.admit(100)


@pytest.mark.parametrize(
    ("full", "source", "limit"),
    [
        (Full(pending=191), "pending", 200),
        (Full(untiered=1241), "untiered", 1250),
        (Full(journal=2491), "journal", 2500),
    ],
)
def test_a_refusal_names_its_source(full: Full, source: str, limit: int) -> None:
    full.throttle.admit(9)
    with pytest.raises(Overloaded) as refusal:
        full.throttle.admit(10)
    assert refusal.value.fields["source"] == source
    assert refusal.value.fields["limit"] == limit
    assert full.throttle.refused == {(source,): 1}


@pytest.mark.parametrize(
    ("full", "source"), [(Full(untiered=999), "untiered"), (Full(journal=1999), "journal")]
)
def test_what_a_failing_tier_2_cannot_relieve_refuses_at_once_and_pauses_nobody(
    full: Full, source: str
) -> None:
    full.throttle.admit(2)
    full.throttle.tier_two_failing(3, failing=True)
    with pytest.raises(Overloaded) as refusal:
        full.throttle.admit(2)
    assert refusal.value.fields["source"] == source
    full.throttle.untiered, full.journal = 5000, 5000
    assert not full.throttle.paused
    full.throttle.tier_two_failing(3, failing=False)
    assert full.throttle.paused


def test_everybodys_flush_is_wanted_near_the_limit_of_unflushed_bytes_alone() -> None:
    assert not Full(pending=200, untiered=281, journal=2500).throttle.flush_wanted
    assert not Full(untiered=900, taken_up=619).throttle.flush_wanted
    assert Full(untiered=282).throttle.flush_wanted


def test_who_waits_goes_on_while_a_flush_goes_on_and_not_because_it_ends() -> None:
    full, resumed = Full(untiered=400), list[bool]()
    full.throttle.when_open(lambda: resumed.append(True))
    full.throttle.take_up(20)
    assert resumed == []
    full.throttle.take_up(5)
    assert resumed == [True]
    # 75 more bytes came while the flush moved 100 of the 400
    full.throttle.add_untiered(75)
    full.throttle.take_up(75)
    full.throttle.when_open(lambda: resumed.append(False))
    full.throttle.add_untiered(100)
    full.throttle.put_down(100)
    full.throttle.add_untiered(-100)
    assert full.throttle.unflushed == 475
    assert resumed == [True], "what the flush had taken up was counted before"


def test_what_a_failed_flush_had_taken_up_is_unflushed_again() -> None:
    full = Full(untiered=400)
    full.throttle.take_up(100)
    assert not full.throttle.paused
    full.throttle.put_down(100)
    assert full.throttle.paused


def test_who_waits_for_the_journal_goes_on_when_its_files_went() -> None:
    full, resumed = Full(journal=2001), list[bool]()
    full.throttle.when_open(lambda: resumed.append(True))
    full.throttle.wake()
    assert resumed == []
    full.journal = 100
    full.throttle.wake()
    assert resumed == [True]


def test_a_connection_that_is_gone_is_not_called_back_and_leaves_nothing_behind() -> None:
    full, resumed = Full(journal=2001), list[str]()

    class Connection:
        def is_open(self) -> None:
            resumed.append("gone")

    gone = Connection()
    full.throttle.when_open(gone.is_open)
    full.throttle.when_open(lambda: resumed.append("here"))
    full.throttle.forget(gone.is_open)
    full.throttle.forget(gone.is_open)
    full.journal = 100
    full.throttle.wake()
    assert resumed == ["here"]
