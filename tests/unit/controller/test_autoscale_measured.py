"""Auto-scaling with sketches of keys: parts of measured load, and hot keys that are named."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.policies.autoscale import Action, Evaluation
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.policies.verdicts import Verdict
from anabranch.controller.domain.policies.watch import followed
from kit.loaded_stream import Load, LoadedStream, by_events
from kit.rng import seeded
from kit.sketched import sampled, zipf

TARGET = 1000


def measured(
    load: Callable[[float], Load] | Load, scale_factor: int = 8, **more: object
) -> LoadedStream:
    """A stream whose store tells where its keys lie."""
    held = load if callable(load) else lambda _t: load
    return LoadedStream(
        held,
        by_events(TARGET, scale_factor),
        chance=seeded(1),
        keep_seen=True,
        **more,  # type: ignore[arg-type]
    )


def splits(stream: LoadedStream) -> int:
    return sum(one.action is Action.SPLIT for one in stream.scaled)


def last(stream: LoadedStream) -> Evaluation:
    return stream.seen[-1]


@pytest.mark.parametrize("scale_factor", [2, 8])
def test_one_hot_key_is_named_without_a_single_split(scale_factor: int) -> None:
    stream = measured(Load(100, ((0.3, 10_000.0),)), scale_factor)
    stream.run(600)
    assert stream.scaled == []
    (found,) = last(stream).findings
    assert found.verdict is Verdict.HOT_KEY
    assert "% of it at position 0.300000 of the key space: one routing key is hot" in found.why
    assert last(stream).decision.why.startswith("segment 0: 101")


@pytest.mark.parametrize(("scale_factor", "most"), [(2, 4), (8, 2)])
def test_the_load_around_a_hot_key_is_separated_from_it_once(scale_factor: int, most: int) -> None:
    stream = measured(Load(3000, ((0.3, 6000.0),)), scale_factor)
    stream.run(120)
    assert 1 <= splits(stream) <= most + 2
    held = {one.segment.segment_id: one for one in last(stream).findings}
    (hot,) = (one for one in held.values() if one.verdict is Verdict.HOT_KEY)
    assert 0.3 in hot.segment.keys
    loads = [load for load in stream.loads if load < 6000]
    assert max(loads) <= TARGET
    scales = len(stream.scaled)
    stream.run(600)
    assert len(stream.scaled) == scales


def test_a_key_that_is_most_of_the_load_is_named_before_the_split() -> None:
    stream = measured(Load(2000, ((0.3, 6000.0),)))
    stream.run(4)
    (found,) = last(stream).findings
    assert found.verdict is Verdict.HOT
    assert "exceed the target of 1000; " in found.why
    assert found.why.endswith("% of it at position 0.300000 of the key space")


def test_keys_by_zipf_come_to_rest_in_fewer_scales_than_with_equal_parts() -> None:
    load = Load(0.0, tuple(zipf(200, 12 * TARGET, seeded(3), exponent=0.7)))
    counts, heaviest, scales = [], [], []
    for chance in (seeded(1), None):
        stream = LoadedStream(lambda _t: load, by_events(TARGET), chance=chance)
        stream.run(300)
        counts.append(len(stream.segments))
        scales.append(len(stream.scaled))
        heaviest.append(max(stream.loads))
    assert counts[0] <= counts[1]
    assert scales[0] < scales[1]
    assert heaviest[0] <= 1.01 * TARGET


def test_a_split_by_measured_load_says_so() -> None:
    stream = measured(Load(0.0, tuple(zipf(50, 5 * TARGET, seeded(2)))))
    stream.run(10)
    whys = [one.decision.why for one in stream.seen if one.decision.action is Action.SPLIT]
    assert whys[0].endswith("exceed the target of 1000; divided by measured load")


def test_a_hot_key_is_remembered_while_the_store_tells_nothing_of_keys() -> None:
    stream = measured(Load(100, ((0.3, 10_000.0),)))
    stream.run(20)
    stream.chance = None
    stream.run(60)
    assert stream.scaled == []
    assert last(stream).findings[0].verdict is Verdict.HOT_KEY


def test_a_roll_keeps_a_measured_hot_key() -> None:
    stream = measured(Load(100, ((0.3, 10_000.0),)))
    stream.run(20)
    rolled = [SegmentRange(segment_id(9, 0), stream.segments[0].keys)]
    after = followed(stream.watch, 1, 9, rolled, windows_s=FAST.windows_s, now_s=stream.now_s)
    (one,) = after.segments.values()
    assert one.hot_key is not None
    assert one.hot_key == last(stream).findings[0].hot_key


def test_a_hot_key_that_cools_down_is_forgotten() -> None:
    stream = measured(lambda t: Load(100, ((0.3, 10_000.0),)) if t < 100 else Load(100))
    stream.run(100)
    assert last(stream).findings[0].hot_key is not None
    stream.run(400)
    assert stream.watch is not None
    assert {one.hot_key for one in stream.watch.segments.values()} == {None}


def test_a_hot_key_that_loses_its_share_is_none_any_more() -> None:
    """The rest of the load grew: now a split helps."""
    stream = measured(lambda t: Load(100 if t < 60 else 8000, ((0.3, 4000.0),)))
    stream.run(60)
    assert stream.scaled == []
    stream.run(60)
    assert splits(stream) >= 1


@pytest.mark.parametrize("told", [1.0, 0.01])
def test_sketches_that_are_always_wrong_end_in_a_verdict_too(told: float) -> None:
    """The store tells of even keys, in all of the segment or at its beginning. In truth there is
    one key, and each split is in vain."""
    stream = measured(Load(10, ((0.3, 10_000.0),)), 2)
    real, chance = stream._sketch, seeded(5)

    def wrong(segment: SegmentRange) -> KeySketch | None:
        start, end = segment.keys.start, segment.keys.end
        even = KeyRange(start, start + told * (end - start))
        return sampled(even, 1.0, (), chance) if real(segment) else None

    stream._sketch = wrong  # type: ignore[method-assign]
    stream.run(600)
    assert splits(stream) <= 2 * FAST.hot_key_halvings
    assert Verdict.HOT_KEY in [one.verdict for one in last(stream).findings]


LOADS = st.builds(
    lambda seed, rate, exponent, uniform, hot: Load(
        uniform * TARGET,
        (*zipf(60, rate * TARGET, seeded(seed), exponent=exponent), (0.3, hot * TARGET)),
    ),
    st.integers(0, 2**32), st.floats(0, 8), st.floats(0, 2), st.floats(0, 4),
    st.sampled_from([0.0, 0.9, 1.1, 3.0, 20.0]),
)  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(LOADS, st.sampled_from([2, 3, 8]), st.integers(0, 2**32))
def test_a_stream_comes_to_rest_with_sketches_under_any_constant_load(
    load: Load, scale_factor: int, seed: int
) -> None:
    """And no segment is above the target at rest, but for one that a hot key fills."""
    stream = LoadedStream(
        lambda _t: load, by_events(TARGET, scale_factor), period_s=10.0, chance=seeded(seed),
        keep_seen=True,
    )  # fmt: skip
    stream.run(900)
    scales = len(stream.scaled)
    stream.run(300)
    assert len(stream.scaled) == scales, f"it goes on scaling: {stream.scaled[-4:]}"
    for one, rate in zip(last(stream).findings, stream.loads, strict=True):
        assert rate <= TARGET * 1.01 or one.verdict is Verdict.HOT_KEY
        if one.verdict is Verdict.HOT_KEY:
            keys = [held for at, held in load.keys if at in one.segment.keys]
            assert max(keys) >= 0.7 * rate


# --- simulated days -----------------------------------------------------------------------------

PERIOD_S = 120.0
SLOW = replace(FAST, hot=FAST.hot[-2:], cold_s=600.0, cooldown_s=60.0, mute_s=60.0)


def a_day(load: Callable[[float], Load], hours: float) -> LoadedStream:
    stream = measured(load, profile=SLOW, period_s=PERIOD_S)
    stream.run(hours * 3600)
    return stream


def test_a_day_of_keys_by_zipf_that_change_at_noon() -> None:
    morning, evening = (tuple(zipf(80, 8 * TARGET, seeded(seed))) for seed in (1, 2))
    stream = a_day(lambda t: Load(100, morning if t < 6 * 3600 else evening), 12)
    counts = [len(found.findings) for found in stream.seen]
    at_noon, at_night = len(stream.seen) // 2 - 2, len(stream.seen) - 1
    for at, keys in ((at_noon, morning), (at_night, evening)):
        hottest = max(rate for _, rate in keys)
        rates = [one.rate for one in stream.seen[at].findings]
        assert max(rates) <= 1.2 * hottest, "only the hottest key is above the target"
    assert max(counts) <= 24
    assert len(stream.scaled) <= 12


def test_a_hot_key_that_moves_costs_few_segments() -> None:
    """Without sketches the same day has 24 segments at its worst."""
    stream = a_day(lambda t: Load(200, ((0.2 if t < 6 * 3600 else 0.7, 5 * TARGET),)), 12)
    assert max(len(found.findings) for found in stream.seen) <= 4
    assert splits(stream) <= 2
