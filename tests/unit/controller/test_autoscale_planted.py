"""The properties of auto-scaling find the bugs that are planted for them."""

from collections.abc import Callable

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.controller.domain.policies.autoscale import Action
from anabranch.controller.domain.policies.profile import FAST
from kit import planted_scaling as planted
from kit.loaded_stream import Load, LoadedStream, by_events
from kit.rng import seeded

TARGET = 1000


def comes_to_rest(load: Load, *, minimum: int = 1, count: int = 1) -> LoadedStream:
    stream = LoadedStream(
        lambda _t: load, by_events(TARGET, 3, minimum), period_s=5.0, segment_count=count
    )
    stream.run(480)
    scales = len(stream.scaled)
    stream.run(240)
    assert len(stream.scaled) == scales
    return stream


def even_load() -> None:
    """Six segments that are cold one by one, and hot together."""
    stream = comes_to_rest(Load(0.45 * 6 * TARGET), count=6)
    assert [one for one in stream.scaled if one.action is Action.MERGE] == []


def load_that_rounds() -> None:
    comes_to_rest(Load(7.3 * TARGET))


def idle_with_a_minimum() -> None:
    assert len(comes_to_rest(Load(), minimum=3, count=9).segments) == 3


def one_hot_key() -> None:
    stream = comes_to_rest(Load(50, ((0.3, 10 * TARGET),)))
    narrowest = min(one.keys.end - one.keys.start for one in stream.segments)
    assert narrowest >= 2**-FAST.hot_key_halvings / 3


def reports_lost() -> None:
    """Every second report is lost, so nothing is ever known."""
    stream = LoadedStream(
        lambda _t: Load(5 * TARGET), by_events(TARGET), segment_count=4,
        is_lost=lambda t: t % 4 == 0,
    )  # fmt: skip
    stream.run(200)
    assert stream.scaled == []


def a_store_falls_silent() -> None:
    """What it reported last is cold, but it is not known any more."""
    stream = LoadedStream(
        lambda _t: Load(10), by_events(TARGET), segment_count=4, is_lost=lambda t: t > 64,
    )  # fmt: skip
    stream.uncounted_s = 99.0
    stream.run(72)
    stream.uncounted_s = 0.0
    stream.run(20)
    assert [one for one in stream.scaled if one.action is Action.MERGE] == []


def a_store_is_overdue() -> None:
    """Its newest report is cold, but half a minute old: the load may have risen since."""
    stream = LoadedStream(
        lambda _t: Load(10), by_events(TARGET), segment_count=4, is_lost=lambda t: t > 64,
    )  # fmt: skip
    stream.due_ms = 10_000
    stream.uncounted_s = 99.0
    stream.run(80)
    stream.uncounted_s = 0.0
    stream.run(12)
    assert [one for one in stream.scaled if one.action is Action.MERGE] == []


def load_in_bursts() -> None:
    """Ten seconds of load every three minutes: merges in the pauses come to an end."""
    stream = LoadedStream(
        lambda t: Load(6 * TARGET if t % 180 < 10 else 10), by_events(TARGET), period_s=5.0
    )
    stream.run(1800)
    scales = len(stream.scaled)
    stream.run(1800)
    assert len(stream.scaled) == scales
    assert "in bursts" in stream.step().decision.why


def measured(load: Load, scale_factor: int = 8) -> LoadedStream:
    """A stream whose store tells where its keys lie, for five minutes."""
    stream = LoadedStream(lambda _t: load, by_events(TARGET, scale_factor), chance=seeded(1))
    stream.run(300)
    return stream


def load_beside_a_hot_key() -> None:
    """The load of other keys does not stay with the hot one."""
    stream = measured(Load(3000, ((0.3, 6000.0),)))
    (hot,) = (one for one in stream.segments if 0.3 in one.keys)
    assert stream.load(0).of(hot) <= 6600
    assert len(stream.scaled) == 1


def keys_of_uneven_load() -> None:
    """A load in a fiftieth of the keys is divided at once, and nothing merges afterwards."""
    stream = measured(Load(800, tuple((0.4 + n / 1000, 400.0) for n in range(20))))
    assert len(stream.scaled) == 2


def a_measured_hot_key() -> None:
    assert measured(Load(100, ((0.3, 10 * TARGET),))).scaled == []


def a_hot_key_and_no_more_sketches() -> None:
    stream = measured(Load(100, ((0.3, 10 * TARGET),)))
    stream.chance = None
    stream.run(60)
    assert stream.scaled == []


def keys_that_lie_close_together() -> None:
    """Also in a segment whose bounds are no binary fractions."""
    keys = tuple((1 / 3 + number * 2**-24, 600.0) for number in range(1, 40))
    stream = LoadedStream(
        lambda _t: Load(0.0, keys), by_events(TARGET), chance=seeded(1), segment_count=3
    )
    stream.run(300)
    assert min(one.keys.end - one.keys.start for one in stream.segments) >= 2**-FAST.halvings_max


PROPERTIES: dict[Callable[[], None], tuple[planted.Planted, ...]] = {
    even_load: (planted.merged_without_looking_at_the_sum, planted.split_at_the_limit_of_merges),
    load_that_rounds: (planted.bounds_by_accumulation,),
    idle_with_a_minimum: (planted.minimum_not_held,),
    one_hot_key: (planted.hot_keys_not_recognized,),
    reports_lost: (planted.unknown_counts_as_idle,),
    a_store_falls_silent: (planted.late_reports_tell_the_present,),
    load_in_bursts: (planted.never_patient,),
    a_store_is_overdue: (planted.overdue_reports_tell_the_present,),
    load_beside_a_hot_key: (planted.cuts_behind_the_hot_key_only,),
    keys_of_uneven_load: (planted.parts_of_equal_width_always,),
    a_measured_hot_key: (planted.measured_hot_keys_not_recognized,),
    a_hot_key_and_no_more_sketches: (planted.hot_key_forgotten_without_a_sketch,),
    keys_that_lie_close_together: (planted.measured_parts_as_narrow_as_positions,),
}


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_property_holds_without_a_bug(holds: Callable[[], None]) -> None:
    holds()


@pytest.mark.parametrize(
    ("holds", "bug"), [(holds, bug) for holds, bugs in PROPERTIES.items() for bug in bugs]
)
def test_the_bug_is_found(holds: Callable[[], None], bug: planted.Planted) -> None:
    with bug(), pytest.raises((AssertionError, AnabranchError)):
        holds()
