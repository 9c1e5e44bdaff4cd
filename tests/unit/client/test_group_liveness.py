"""Who is alive, by beats and clocks."""

import pytest

from anabranch.client.groups.liveness import OwnLease, PeerWatch
from anabranch.client.groups.state import OnlineReader
from anabranch.client.groups.updates import Lost

NEVER = float("-inf")


def readers(**beats: int) -> dict[str, OnlineReader]:
    return {reader_id: OnlineReader(nonce=7, beat=beat) for reader_id, beat in beats.items()}


def lost(reader_id: str, beat: int) -> list[Lost]:
    return [Lost(reader_id=reader_id, nonce=7, beat=beat)]


def watched(watch: PeerWatch, until_s: float, from_s: float = 0.0, **beats: int) -> None:
    """It finds these at the end of the log, every second."""
    at_s = from_s
    while at_s <= until_s:
        watch.caught_up(readers(**beats), at_s)
        at_s += 1.0


def test_a_lease_runs_from_the_sending_of_a_beat_that_was_found_less_the_margin() -> None:
    lease = OwnLease(8.0)
    number = lease.sending(100.0)
    assert lease.valid_until_s == NEVER, "sent is not found"
    lease.confirmed(number)
    assert lease.valid_until_s == pytest.approx(107.0)


def test_beats_are_numbered_from_one() -> None:
    lease = OwnLease(8.0)
    assert [lease.sending(at_s) for at_s in (1.0, 2.0, 3.0)] == [1, 2, 3]


def test_a_beat_that_was_not_sent_by_this_life_confirms_nothing() -> None:
    lease = OwnLease(8.0)
    lease.confirmed(0)
    lease.confirmed(5)
    assert lease.valid_until_s == NEVER


def test_the_newest_beat_found_counts_and_no_older_one_after_it() -> None:
    lease = OwnLease(8.0)
    first, second = lease.sending(1.0), lease.sending(3.0)
    lease.confirmed(second)
    lease.confirmed(first)
    lease.confirmed(second)
    assert lease.valid_until_s == pytest.approx(10.0)


def test_a_lease_that_ended_stays_so_whatever_is_found() -> None:
    lease = OwnLease(8.0)
    number = lease.sending(1.0)
    lease.end()
    lease.confirmed(number)
    assert lease.valid_until_s == NEVER


def test_a_reader_without_a_new_beat_for_a_whole_lease_is_lost() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 7.0, a=3)
    assert list(watch.silent(7.9)) == []
    watch.caught_up(readers(a=3), 8.0)
    assert list(watch.silent(8.0)) == lost("a", 3)


def test_a_beat_begins_the_lease_anew() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 6.0, a=3)
    watched(watch, 14.0, from_s=7.0, a=4)
    assert list(watch.silent(14.0)) == []
    watch.caught_up(readers(a=4), 15.0)
    assert list(watch.silent(15.0)) == lost("a", 4)


def test_another_life_of_the_same_id_begins_anew() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 7.0, a=3)
    watch.caught_up({"a": OnlineReader(nonce=8, beat=3)}, 8.0)
    assert list(watch.silent(8.0)) == []


def test_who_left_is_not_accused() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 7.0, a=3)
    watch.caught_up({}, 8.0)
    assert list(watch.silent(8.0)) == []


def test_an_observer_that_was_away_accuses_nobody_before_it_watched_for_a_lease() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 2.0, a=3)
    watch.caught_up(readers(a=3), 60.0)
    assert list(watch.silent(60.0)) == [], "its beats of a minute may be behind what was read"
    watched(watch, 68.0, from_s=61.0, a=3)
    assert list(watch.silent(67.9)) == []
    assert list(watch.silent(68.0)) == lost("a", 3)


def test_what_was_learned_half_a_lease_ago_accuses_nobody() -> None:
    watch = PeerWatch(8.0)
    watched(watch, 7.0, a=3)
    assert list(watch.silent(11.0)) == lost("a", 3)
    assert list(watch.silent(11.5)) == []


def test_an_observer_that_has_read_nothing_accuses_nobody() -> None:
    assert list(PeerWatch(8.0).silent(1000.0)) == []


def test_others_take_over_later_than_the_reader_stops_as_long_as_clocks_agree_to_the_margin() -> (
    None
):
    own, watch, sent_s = OwnLease(8.0), PeerWatch(8.0), 100.0
    own.confirmed(own.sending(sent_s))
    slow = 1 - 0.12
    at_s = sent_s
    while not list(watch.silent(at_s)):
        watch.caught_up(readers(a=1), at_s)
        at_s += 0.1
    stopped_s = sent_s + (own.valid_until_s - sent_s) / slow
    assert at_s >= stopped_s
