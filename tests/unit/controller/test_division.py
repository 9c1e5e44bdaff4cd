"""Where a hot segment is cut: by the measured load, with exact bounds, and never too thin."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.division import (
    ERRORS,
    UNEVEN,
    Division,
    divided,
    equal_parts,
    measured_parts,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import SINGLE_SHARE, HotKey, Spread
from anabranch.common.model.stream import ScalingType
from anabranch.controller.domain.policies.spread import spread_of
from kit.rng import seeded
from kit.sketched import Keys, sampled, zipf
from kit.thorough import one_in

ALL = KeyRange(0.0, 1.0)
BITS = 20


def spread(*loads: tuple[float, float], keys: KeyRange = ALL, count: int = 10_000) -> Spread:
    """Of single keys, by their positions and loads."""
    whole = sum(load for _, load in loads)
    cells: dict[int, float] = {}
    for at, load in sorted(loads):
        cell = int(at * 2**BITS)
        cells[cell] = cells.get(cell, 0.0) + load / whole
    heaviest = max(cells, key=cells.__getitem__)
    return Spread(
        keys, BITS, tuple(cells), tuple(cells.values()), 0.0,
        HotKey(heaviest / 2**BITS, cells[heaviest]), count,
    )  # fmt: skip


def division(found: Spread | None, count: int, *, filled: float = 0.0) -> Division | None:
    keys = ALL if found is None else found.keys
    return divided(keys, count, found, filled=filled, halvings_max=float(BITS))


def loads_of(parts: Division, loads: Keys) -> list[float]:
    return [sum(load for at, load in loads if at in part) for part in parts.ranges]


EVEN = tuple((number / 100 + 0.001, 1.0) for number in range(100))


def test_without_a_sample_and_for_an_even_one_the_parts_have_equal_widths() -> None:
    for found in (None, spread(*EVEN)):
        parts = division(found, 4)
        assert parts == Division(equal_parts(ALL, 4))


def test_a_small_sample_does_not_prove_that_equal_parts_are_uneven() -> None:
    loads = ((0.1, 30.0), (0.3, 40.0), (0.6, 30.0), (0.8, 0.0))
    small, large = (division(spread(*loads, count=count), 2) for count in (64, 10_000))
    assert small is not None
    assert large is not None
    assert (small.is_measured, large.is_measured) == (False, True)


def test_cuts_make_the_loads_even_and_their_bounds_are_round() -> None:
    loads = tuple((at / 10, load) for at, load in EVEN)
    parts = division(spread(*loads), 4)
    assert parts is not None
    assert parts.is_measured
    assert loads_of(parts, loads) == [25.0] * 4
    assert all((part.end * 2**12).is_integer() for part in parts.ranges)


def test_a_hot_key_becomes_a_part_of_its_own_and_the_others_are_divided_around_it() -> None:
    loads = (*EVEN, (0.3007, 300.0))
    parts = division(spread(*loads), 8, filled=0.1)
    assert parts is not None
    found = loads_of(parts, loads)
    assert found.count(300.0) == 1
    others = [load for load in found if load != 300.0]
    assert sum(others) == 100.0
    assert max(others) <= 40.0, "a tenth of the load"
    assert len(found) <= 6, "no more parts than are needed"


def test_no_more_parts_than_the_load_needs() -> None:
    loads = ((0.2, 10.0), (0.5, 80.0), (0.9, 10.0))
    parts = division(spread(*loads), 8, filled=0.1)
    assert parts is not None
    assert loads_of(parts, loads) == [10.0, 80.0, 10.0]


def test_keys_in_one_cell_are_not_divided_and_those_beside_a_bound_are() -> None:
    cell = 2**-BITS
    keys = KeyRange(0.5, 0.5 + 4 * cell)
    one = spread((0.5 + cell, 1.0), (0.5 + 1.5 * cell, 2.0), keys=keys)
    assert measured_parts(one, 2, 0.0) == ()
    parts = measured_parts(spread((0.5, 1.0), (0.5 + 3 * cell, 2.0), keys=keys), 8, 0.0)
    assert len(parts) == 2
    assert divided(keys, 8, one, filled=0.0, halvings_max=float(BITS)) is None


def test_no_part_is_thinner_than_a_cell_beside_a_bound_that_is_no_binary_fraction() -> None:
    cell = 2**-BITS
    keys = KeyRange(1 / 3, 1 / 3 + 10 * cell)
    places = [(1 / 3 + number * cell / 2, 1.0) for number in range(20)]
    parts = measured_parts(spread(*places, keys=keys), 20, 0.0)
    assert len(parts) == 9
    assert min(part.end - part.start for part in parts) >= cell


def test_one_part_is_no_division() -> None:
    assert division(spread((0.1, 1.0), (0.2, 9.0)), 1) is None


SEGMENTS = st.tuples(st.floats(0, 0.999), st.floats(2**-17, 1.0)).map(
    lambda found: KeyRange(found[0], min(1.0, found[0] + found[1]))
)


@given(SEGMENTS, st.data(), st.integers(2, 8), st.floats(0, 1))
def test_parts_cover_the_keys_exactly_and_none_is_too_thin(
    keys: KeyRange, data: st.DataObject, count: int, filled: float
) -> None:
    places = data.draw(
        st.lists(
            st.tuples(st.floats(keys.start, keys.end, exclude_max=True), st.floats(0.01, 100)),
            min_size=1, max_size=40,
        )
    )  # fmt: skip
    parts = division(spread(*places, keys=keys), count, filled=filled)
    if parts is None:
        assert (keys.end - keys.start) / count < 2**-BITS
        return
    ranges = parts.ranges
    assert 2 <= len(ranges) <= count
    assert (ranges[0].start, ranges[-1].end) == (keys.start, keys.end)
    assert all(low.end == high.start for low, high in pairwise(ranges))
    assert min(part.end - part.start for part in ranges) >= 2**-BITS


@settings(max_examples=40 // one_in(4))
@given(st.integers(0, 2**32), st.integers(2, 8), st.sampled_from([0.0, 0.6, 1.0, 1.4]))
def test_expected_loads_are_close_to_each_other_if_the_sample_is_right(
    seed: int, count: int, exponent: float
) -> None:
    """Neighbouring parts differ by less than one key: moving one over would make them less even. No
    other cuts, such as those into equal widths, have a smaller sum of squares."""
    chance = seeded(seed)
    loads = zipf(300, 1000.0, chance, exponent=exponent)
    found = spread(*loads)
    parts = division(found, count)
    assert parts is not None
    measured = loads_of(parts, loads)
    if not parts.is_measured:
        limit = 1 + UNEVEN + ERRORS * (count / found.count) ** 0.5
        light = [share for share in found.shares if share <= SINGLE_SHARE]
        beside_bounds = 2 * max(light, default=0.0)  # a light share lies anywhere before its place
        assert max(measured) <= 1000.0 * (limit / count + beside_bounds)
        return
    equal = loads_of(Division(equal_parts(ALL, count)), loads)
    assert sum(load**2 for load in measured) <= sum(load**2 for load in equal) + 1e-6
    cells = dict(zip(found.cells, found.shares, strict=True))
    for low, high in pairwise(parts.ranges):
        low_loads, high_loads = (
            [1000.0 * share for cell, share in cells.items() if cell / 2**BITS in part]
            for part in (low, high)
        )
        if len(low_loads) > 1:
            assert sum(low_loads) - sum(high_loads) <= low_loads[-1] + 1e-6
        if len(high_loads) > 1:
            assert sum(high_loads) - sum(low_loads) <= high_loads[0] + 1e-6


@given(st.integers(0, 2**32), st.integers(2, 8))
def test_a_sample_of_a_store_is_right_enough(seed: int, count: int) -> None:
    """The real loads of parts that were cut by some hundred sampled events of Zipf's law."""
    chance = seeded(seed)
    loads = zipf(300, 1000.0, chance, exponent=0.8)
    found = spread_of(sampled(ALL, 0.0, loads, chance), ALL, ScalingType.EVENT_RATE, float(BITS))
    assert found is not None
    parts = division(found, count)
    assert parts is not None
    heaviest_key = max(load for _, load in loads)
    assert max(loads_of(parts, loads)) <= 1.9 * 1000.0 / count + heaviest_key


@pytest.mark.parametrize("seed", range(5))
def test_an_even_load_keeps_equal_parts_however_the_sample_falls(seed: int) -> None:
    chance = seeded(seed)
    found = spread_of(sampled(ALL, 1000.0, (), chance), ALL, ScalingType.EVENT_RATE, float(BITS))
    assert found is not None
    parts = division(found, 4)
    assert parts is not None
    assert not parts.is_measured
