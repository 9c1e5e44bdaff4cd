"""Days of load in virtual time: the number of segments follows it, and comes back."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.controller.domain.policies.autoscale import Action
from anabranch.controller.domain.policies.profile import CLASSIC, FAST
from kit.loaded_stream import Load, LoadedStream, by_events
from kit.rng import seeded

TARGET = 1000
DAY_S = 86_400.0
PERIOD_S = 120.0
SLOW = replace(FAST, hot=FAST.hot[-2:], cold_s=600.0, cooldown_s=60.0, mute_s=60.0)
"""The fast profile for reports of two minutes, so that a day is 720 of them."""


def a_day(load: Callable[[float], Load], *, hours: float = 24.0, seed: int = 0) -> LoadedStream:
    """Hours of load, reported every two minutes; of a seed above 0, every tenth report is lost."""
    chance = seeded(seed)
    stream = LoadedStream(
        load, by_events(TARGET, min_segments=2), SLOW, period_s=PERIOD_S, keep_seen=True,
        is_lost=lambda _t: bool(seed) and chance.random() < 0.1,
    )  # fmt: skip
    stream.run(hours * 3600)
    return stream


def counts(stream: LoadedStream) -> list[int]:
    return [len(found.findings) for found in stream.seen]


@pytest.mark.parametrize("seed", [0, 3])
def test_a_day_and_its_night(seed: int) -> None:
    """From nothing at midnight to eight times the target at noon."""
    stream = a_day(lambda t: Load(4 * TARGET * (1 - math.cos(2 * math.pi * t / DAY_S))), seed=seed)
    found = counts(stream)
    noon = found[len(found) // 2]
    assert 8 <= noon <= 16
    assert max(found) <= 16
    assert found[-1] <= 4
    assert len(stream.scaled) <= 30


def test_a_spike_is_followed_up_and_later_down() -> None:
    stream = a_day(lambda t: Load(20 * TARGET if 3600 < t < 5400 else 100), hours=3)
    found = counts(stream)
    assert found[28] == 2
    assert found[36] >= 20
    assert found[-1] == 2


def test_a_hot_key_moves_and_the_keys_that_it_left_become_few_segments_again() -> None:
    stream = a_day(lambda t: Load(200, ((0.2 if t < 6 * 3600 else 0.7, 5 * TARGET),)), hours=12)
    found = counts(stream)
    assert max(found) <= 24
    assert found[-1] <= 6
    splits = [one for one in stream.scaled if one.action is Action.SPLIT]
    assert len(splits) <= 6


def test_an_idle_stream_is_at_its_minimum_and_stays_there() -> None:
    stream = a_day(lambda _t: Load(), hours=6)
    assert stream.scaled == []
    assert set(counts(stream)) == {2}


def test_without_reports_nothing_happens_and_afterwards_all_of_it_is_made_up() -> None:
    stream = LoadedStream(
        lambda _t: Load(6 * TARGET), by_events(TARGET), is_lost=lambda t: t <= 300, keep_seen=True
    )
    stream.run(300)
    assert stream.scaled == []
    assert all("has not reported" in found.decision.why for found in stream.seen)
    stream.run(60)
    assert len(stream.segments) >= 6


def test_a_day_with_classic_timings_follows_more_slowly() -> None:
    stream = LoadedStream(
        lambda t: Load(4 * TARGET * (1 - math.cos(2 * math.pi * t / DAY_S))),
        by_events(TARGET),
        CLASSIC,
        period_s=PERIOD_S,
        keep_seen=True,
    )
    stream.run(DAY_S)
    found = counts(stream)
    assert 8 <= max(found) <= 16
    assert found[-1] <= 3


def test_a_noisy_load_close_to_the_target_rarely_scales() -> None:
    """Half of the target, and up to thirty per cent more or less in every report."""
    chance = seeded(7)
    stream = LoadedStream(
        lambda _t: Load(0.75 * TARGET * (0.7 + 0.6 * chance.random())), by_events(TARGET)
    )
    stream.run(2 * 3600)
    assert len(stream.scaled) <= 1
