"""Which transactions of the commit order make the next batch."""

from anabranch.controller.domain.stream.commits import (
    BATCH_MAX,
    CARRIED_SIZE_BYTES_MAX,
    NAMES_SIZE_BYTES_MAX,
    SOURCES_MAX,
    Committing,
    next_batch,
)


def length(*waiting: Committing) -> int:
    """Of the first batch, if all epochs are one logical epoch."""
    batch = next_batch(waiting, lambda _epoch: 0)
    assert list(batch) == list(waiting[: len(batch)])
    return len(batch)


def begun(sources: int = 1, names_size: int = 0) -> Committing:
    return Committing("begun", 0, sources, names_size=names_size)


def carried(size: int) -> Committing:
    return Committing("carried", 0, size=size)


def test_a_batch_has_a_bounded_number_of_transactions() -> None:
    assert length(*[begun()] * (BATCH_MAX + 1)) == BATCH_MAX
    assert length() == 0


def test_a_batch_belongs_to_one_logical_epoch() -> None:
    waiting = [begun(), Committing("other", 1), begun()]
    assert len(next_batch(waiting, lambda epoch: epoch)) == 1


def test_a_transaction_may_exceed_the_limit_of_sources_alone() -> None:
    assert length(begun(SOURCES_MAX + 1), begun()) == 1
    assert length(begun(SOURCES_MAX), begun()) == 1
    assert length(begun(SOURCES_MAX - 1), begun()) == 2


def test_a_batch_with_blocks_fits_in_one_request() -> None:
    half = CARRIED_SIZE_BYTES_MAX // 2
    assert length(carried(half), carried(half), carried(1)) == 2
    many_names = begun(names_size=NAMES_SIZE_BYTES_MAX)
    assert length(many_names, carried(1)) == 2
    assert length(many_names, begun(names_size=1), carried(1)) == 2
    assert length(many_names, carried(1), begun(names_size=1)) == 2
    assert length(begun(SOURCES_MAX), carried(1)) == 1


def test_names_alone_are_sent_in_as_many_requests_as_necessary() -> None:
    assert length(begun(names_size=NAMES_SIZE_BYTES_MAX), begun(names_size=1)) == 2
