"""Percentiles, medians of rounds and the order of rounds, on figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import Spread, percentile, rotated, spread


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1.0), (50, 50.0), (50.5, 51.0), (99, 99.0), (100, 100.0)]
)
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == expected


def test_the_percentiles_of_a_single_value_are_that_value() -> None:
    assert percentile([7.5], 1) == percentile([7.5], 99) == 7.5


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_enough_values_do_not_exceed_a_percentile(values: list[float], percent: float) -> None:
    found = percentile(values, percent)

    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-6


def test_one_slow_round_moves_the_range_and_not_the_median() -> None:
    assert spread([10.0, 1.0, 11.0]) == Spread(median=10.0, min=1.0, max=11.0)


def test_the_median_of_an_even_number_of_rounds_lies_between_the_middle_two() -> None:
    assert spread([4.0, 1.0, 2.0, 100.0]).median == 3.0


def test_every_system_comes_first_once_in_as_many_rounds_as_systems() -> None:
    orders = [rotated("abc", number) for number in range(4)]

    assert ["".join(order) for order in orders] == ["abc", "bca", "cab", "abc"]


def test_nothing_to_rotate_stays_nothing() -> None:
    assert rotated([], 3) == []
