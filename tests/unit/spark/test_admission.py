"""How a budget is divided among backlogs, and what lies before a stream's head."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.following.admission import bytes_of_rows, fill

backlogs = st.dictionaries(st.integers(0, 50), st.integers(0, 1000))


@given(backlogs, st.integers(0, 20_000))
def test_shares_use_the_budget_and_exceed_no_backlog(wanted: dict[int, int], budget: int) -> None:
    shares = fill(wanted, budget)
    assert all(0 < share <= wanted[key] for key, share in shares.items())
    assert sum(shares.values()) == min(budget, sum(wanted.values()))


@given(backlogs, st.integers(0, 20_000))
def test_shares_are_even_but_for_short_backlogs(wanted: dict[int, int], budget: int) -> None:
    shares = fill(wanted, budget)
    cut = [shares.get(key, 0) for key, size in wanted.items() if shares.get(key, 0) < size]
    assert not cut or max(cut) - min(cut) <= 1
    assert not cut or max(shares.values(), default=0) <= max(cut) + 1


def test_rows_count_by_the_mean_size_of_events() -> None:
    assert bytes_of_rows(10, {"a": (1000, 10), "b": (3000, 30)}) == 1000
    assert bytes_of_rows(10, {}) == 1
    assert bytes_of_rows(1, {"a": (1, 10)}) == 1
