"""What a reader was given, and what of it is processed."""

from anabranch.client.groups.ledger import Ledger
from anabranch.client.groups.updates import Saved
from anabranch.client.reading.frontier import Position

A, B = "s/x/0.#epoch.0", "s/x/1.#epoch.0"


def ledger(*, explicit: bool = False) -> Ledger:
    made = Ledger(explicit=explicit)
    made.gained(A, 1, Position(10))
    made.gained(B, 2, Position(20))
    return made


def test_asking_for_more_says_that_what_was_given_is_processed() -> None:
    books = ledger()
    books.give(A, Position(10, 1), Position(10, 0))
    assert books.saved(A) == Saved(A, 1, Position(10, 0))
    books.asked()
    assert books.saved(A) == Saved(A, 1, Position(10, 1))


def test_what_is_not_in_hand_any_more_is_processed_at_once() -> None:
    books = ledger()
    books.give(A, Position(30), None)
    assert books.is_processed(A)
    assert books.saved(A).position == (30, 0)


def test_with_explicit_acknowledgements_asking_says_nothing() -> None:
    books = ledger(explicit=True)
    books.give(A, Position(30), Position(10))
    books.asked()
    books.give(B, Position(40), Position(20))
    assert not books.is_processed(A)
    assert books.news() == ()
    books.acknowledge()
    assert {at.segment: at.position for at in books.news()} == {A: (30, 0), B: (40, 0)}


def test_news_are_told_once() -> None:
    books = ledger()
    books.give(A, Position(30), None)
    assert books.news() == (Saved(A, 1, Position(30)),)
    assert books.news() == ()
    books.measured(B, 500)
    assert books.news() == (Saved(B, 2, Position(20), 500),)
    assert books.news() == ()


def test_a_measure_of_nothing_unread_is_news_too() -> None:
    books = ledger()
    books.measured(A, 0)
    assert books.news() == (Saved(A, 1, Position(10), 0),)


def test_what_is_measured_of_a_segment_that_went_is_forgotten() -> None:
    books = ledger()
    books.gone(A)
    books.measured(A, 500)
    assert [at.segment for at in books.all_saved()] == [B]


def test_a_segment_is_finished_when_its_end_was_met_and_all_of_it_is_processed() -> None:
    books = ledger()
    books.give(A, Position(30), Position(10))
    books.holdings[A].successors = ()
    assert books.finished() == []
    books.asked()
    assert books.finished() == [A]


def test_what_was_in_hand_of_a_segment_that_went_says_nothing_about_its_next_life() -> None:
    books = ledger()
    books.give(A, Position(30), Position(10))
    assert books.gone(A).processed == (10, 0)
    books.gained(A, 3, Position(15))
    books.asked()
    assert books.saved(A) == Saved(A, 3, Position(15))
