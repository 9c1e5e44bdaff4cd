"""How a load lies over the keys of a segment, as far as a sample tells."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import HotKey, Spread
from anabranch.common.model.stream import ScalingType
from anabranch.controller.domain.policies.spread import spread_of
from kit.rng import seeded
from kit.sketched import sampled, zipf

ALL = KeyRange(0.0, 1.0)
HALF = 2**31


def spread(
    sketch: KeySketch | None, keys: KeyRange = ALL, *, by_size: bool = False
) -> Spread | None:
    measure = ScalingType.BYTE_RATE if by_size else ScalingType.EVENT_RATE
    return spread_of(sketch, keys, measure, 20.0)


def sketch(*places: tuple[int, int, int], **more: int) -> KeySketch:
    positions, events, sizes = zip(*places, strict=True) if places else ((), (), ())
    return KeySketch.model_validate(
        {"positions": positions, "events": events, "sizes": sizes, **more}
    )


def test_shares_are_of_events_or_of_bytes_as_the_policy_counts() -> None:
    found = sketch((HALF, 75, 1000), (HALF + 2**30, 25, 9000))
    by_events, by_size = spread(found), spread(found, by_size=True)
    assert by_events is not None
    assert by_size is not None
    assert (by_events.shares, by_events.heaviest) == ((0.75, 0.25), HotKey(0.5, 0.75))
    assert (by_size.shares, by_size.heaviest) == ((0.1, 0.9), HotKey(0.75, 0.9))


def test_events_without_a_key_are_load_that_every_part_gets() -> None:
    found = spread(sketch((HALF, 50, 0), keyless_events=50))
    assert found is not None
    assert (found.shares, found.keyless, found.stays(2)) == ((0.5,), 0.5, 0.75)
    assert found.within(KeyRange(0.0, 0.5), 2) == pytest.approx(0.25)
    assert found.within(KeyRange(0.5, 1.0), 2) == pytest.approx(0.75)


def test_keys_in_one_cell_are_one_place_and_the_greater_one_gives_its_name() -> None:
    found = spread(sketch((HALF, 30, 0), (HALF + 1, 60, 0), (HALF + 2, 10, 0)))
    assert found is not None
    assert (found.cells, found.heaviest) == ((2**19,), HotKey((HALF + 1) / 2**32, 1.0))


UNKNOWN = {
    "not told": None,
    "too few": sketch((HALF, 63, 0)),
    "mostly compressed": sketch((HALF, 100, 0), unread_events=101),
    "no keys at all": sketch(keyless_events=200),
    "of other keys": sketch((HALF // 2, 200, 0)),
    "not parallel": sketch((HALF, 100, 0)).model_copy(update={"events": (50, 50)}),
    "not sorted": sketch((HALF, 100, 0), (HALF - 1, 100, 0)),
    "negative": sketch((HALF, 200, 0), (HALF + 9, -20, 0)),
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_the_spread_is_unknown(reason: str) -> None:
    assert spread(UNKNOWN[reason], KeyRange(0.5, 1.0)) is None


def test_positions_outside_the_segment_do_not_count() -> None:
    found = spread(sketch((HALF // 2, 100, 0), (HALF, 70, 0)), KeyRange(0.5, 1.0))
    assert found is not None
    assert (found.shares, found.count) == ((1.0,), 70)


@given(
    st.integers(0, 2**32 - 1), st.floats(0, 0.9), st.floats(0.01, 0.1),
    st.lists(st.floats(0.0, 1.0), max_size=7).map(sorted),
)  # fmt: skip
def test_parts_together_have_all_of_the_load(
    seed: int, start: float, width: float, bounds: list[float]
) -> None:
    keys = KeyRange(start, start + width)
    chance = seeded(seed)
    single = tuple(
        (keys.start + at * (keys.end - keys.start) * 0.999, rate)
        for at, rate in zipf(20, 500.0, chance)
    )
    found = spread(sampled(keys, 500.0, single, chance), keys)
    assert found is not None
    places = sorted({keys.start, *(start + at * width for at in bounds), keys.end})
    places = [at for at in places if keys.start <= at <= keys.end]
    parts = [KeyRange(low, high) for low, high in pairwise(places)]
    shares = [found.within(part, len(parts)) for part in parts]
    assert sum(shares) == pytest.approx(1.0, abs=0.05)
