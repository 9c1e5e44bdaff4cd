"""Auto-scaling as arithmetic: what splits, what merges, what is left alone, and what is said."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.common.errors import ScaleRefused
from anabranch.common.model.division import equal_parts
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, number_of, segment_id
from anabranch.common.model.stream import ScalingPolicy, ScalingType, SegmentRange
from anabranch.controller.domain.load import Merged
from anabranch.controller.domain.policies.autoscale import Action, Decision, Evaluation
from anabranch.controller.domain.policies.profile import CLASSIC, FAST, HotRule, Profile
from anabranch.controller.domain.policies.verdicts import Verdict
from anabranch.controller.domain.policies.watch import followed
from kit.loaded_stream import (
    EVENT_SIZE_BYTES,
    Load,
    LoadedStream,
    by_events,
    commanded,
    performed,
    refused,
)

TARGET = 1000
POLICY = by_events(TARGET)


def constant(uniform: float = 0.0, *keys: tuple[float, float]) -> Callable[[float], Load]:
    return lambda _t: Load(uniform, keys)


def until_scaled(stream: LoadedStream, seconds: float) -> Evaluation | None:
    """The first look within that time that decided something."""
    until_s = stream.now_s + seconds
    while stream.now_s < until_s:
        found = stream.step()
        if found.decision.action is not Action.NOTHING:
            return found
    return None


def verdicts(found: Evaluation) -> list[Verdict]:
    return [one.verdict for one in found.findings]


# --- splits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1.3, 1.6, 3.0, 8.0])
def test_a_load_above_the_target_splits_within_ten_seconds(times: float) -> None:
    stream = LoadedStream(lambda t: Load(TARGET * (times if t > 60 else 0.5)), POLICY, period_s=2.0)
    stream.run(60)
    found = until_scaled(stream, 10)
    assert found is not None
    assert found.decision.action is Action.SPLIT


def test_a_load_far_above_splits_into_many_at_once_and_never_more_than_the_policy_says() -> None:
    for scale_factor, parts in ((2, 2), (5, 5), (1000, 8)):
        stream = LoadedStream(constant(20 * TARGET), by_events(TARGET, scale_factor))
        found = until_scaled(stream, 30)
        assert found is not None
        assert len(found.decision.ranges) == parts


def test_all_hot_segments_split_in_one_scale_and_it_says_which_and_why() -> None:
    load = Load(0.0, ((0.1, 3000.0), (0.6, 1500.0), (0.9, 10.0)))
    stream = LoadedStream(lambda _t: load, POLICY, segment_count=4)
    found = until_scaled(stream, 30)
    assert found is not None
    assert [int(one) for one in found.decision.sealed] == [0, 2]
    assert found.decision.why == (
        "segment 0 with 3000 events/s over 2 s exceed the target of 1000, and 1 more"
    )
    assert verdicts(found) == [Verdict.HOT, Verdict.STEADY, Verdict.HOT, Verdict.STEADY]


def test_a_new_segment_is_left_alone_and_it_is_said_for_how_long() -> None:
    profile = replace(FAST, cooldown_s=20.0)
    stream = LoadedStream(constant(3 * TARGET), POLICY, profile)
    assert until_scaled(stream, 18) is None
    found = stream.step()
    (one,) = found.findings
    assert (one.verdict, one.cooldown_s) == (Verdict.HOT, 2.0)
    assert found.decision.why.endswith("; it is left alone for another 2 s")
    assert until_scaled(stream, 4) is not None


def test_what_had_no_effect_is_not_decided_again_at_once() -> None:
    stream = LoadedStream(constant(3 * TARGET), POLICY, scale_s=math.inf)
    assert until_scaled(stream, 30) is not None
    stream._pending = None
    assert until_scaled(stream, FAST.mute_s - 2) is None
    assert until_scaled(stream, 4) is not None


def test_a_rate_of_a_minute_ago_splits_nothing_while_the_load_is_low() -> None:
    """The longest window remembers the load longest."""
    stream = LoadedStream(
        lambda t: Load(50 * TARGET if t < 100 else 0.1 * TARGET),
        by_events(TARGET),
        replace(FAST, cooldown_s=120.0),
    )
    assert until_scaled(stream, 300) is None


def test_a_policy_by_bytes_counts_kibibytes() -> None:
    events = 3 * TARGET * 1024 / EVENT_SIZE_BYTES
    stream = LoadedStream(constant(events), ScalingPolicy(ScalingType.BYTE_RATE, TARGET, 8, 1))
    found = until_scaled(stream, 30)
    assert found is not None
    assert "3000 KiB/s" in found.decision.why


def test_few_events_in_a_short_window_say_nothing() -> None:
    """Ten seconds of silence and a burst are one event per second, as the target has it."""
    stream = LoadedStream(lambda t: Load(8.0 if t % 20 < 2 else 0.1), by_events(1))
    assert until_scaled(stream, 600) is None


def test_no_segment_becomes_narrower_than_the_profile_allows() -> None:
    profile = replace(FAST, halvings_max=3.0, hot_key_halvings=99.0)
    stream = LoadedStream(constant(0, (0.3, 50_000.0)), POLICY, profile)
    stream.run(300)
    widths = [one.keys.end - one.keys.start for one in stream.segments]
    assert min(widths) == 1 / 8


def test_classic_waits_for_ten_minutes_and_then_splits_as_pravega_does() -> None:
    stream = LoadedStream(constant(3 * TARGET), POLICY, CLASSIC, period_s=10.0)
    found = until_scaled(stream, 3600)
    assert found is not None
    assert stream.now_s == 610.0
    assert len(found.decision.ranges) == 3


# --- hot keys -----------------------------------------------------------------------------------


def test_one_hot_key_is_recognized_and_said_and_not_split_for_ever() -> None:
    for scale_factor, scales in ((2, 6), (8, 2)):
        stream = LoadedStream(
            constant(100, (0.3, 10_000.0)), by_events(TARGET, scale_factor), keep_seen=True
        )
        stream.run(300)
        splits = [one for one in stream.scaled if one.action is Action.SPLIT]
        assert len(splits) == scales
        assert "one routing key is hot" in stream.seen[-1].decision.why
        assert verdicts(stream.seen[-1]).count(Verdict.HOT_KEY) == 1
        stream.run(600)
        assert [one for one in stream.scaled if one.action is Action.SPLIT] == splits


def test_a_hot_key_that_cools_down_is_no_hot_key_any_more() -> None:
    """Later, the same range may split again: other keys may be hot."""
    stream = LoadedStream(
        lambda t: Load(100, ((0.3, 10_000.0),)) if t < 200 else Load(), POLICY, keep_seen=True
    )
    stream.run(200)
    assert Verdict.HOT_KEY in verdicts(stream.seen[-1])
    stream.run(300)
    assert stream.watch is not None
    assert {one.halvings for one in stream.watch.segments.values()} == {0.0}


def test_a_load_that_grows_while_it_splits_is_no_hot_key() -> None:
    """Each part is as hot as the whole was, because the load doubled meanwhile."""
    stream = LoadedStream(
        lambda t: Load(1.2 * TARGET * 2 ** (t / 15)), by_events(TARGET, 2), keep_seen=True
    )
    stream.run(100)
    assert not [found for found in stream.seen if Verdict.HOT_KEY in verdicts(found)]
    assert len(stream.segments) > 64


def test_a_share_that_is_not_known_proves_no_hot_key() -> None:
    """Reports that stop short of the siblings neither accuse nor clear the segment."""
    stream = LoadedStream(constant(0, (0.3, 10_000.0)), by_events(TARGET, 2), keep_seen=True)
    real = stream._heard

    def only_the_hot_one() -> dict[SegmentId, object]:
        hot = [one.segment_id for one in stream.segments if 0.3 in one.keys]
        return {name: heard for name, heard in real().items() if name in hot}

    stream._heard = only_the_hot_one  # type: ignore[method-assign,assignment]
    stream.run(120)
    assert not [found for found in stream.seen if Verdict.HOT_KEY in verdicts(found)]


def test_a_rate_that_equals_a_limit_is_neither_hot_nor_cold() -> None:
    """However floats round it: a stream would change its mind again and again."""
    for rate in (TARGET, TARGET * FAST.cold_factor):
        stream = LoadedStream(constant(2 * rate), POLICY, segment_count=2, keep_seen=True)
        stream.run(600)
        assert stream.scaled == []
        assert set(verdicts(stream.seen[-1])) == {Verdict.STEADY}


def test_a_split_by_hand_that_divides_two_hot_keys_ends_the_verdict() -> None:
    """Halves cannot divide keys that lie close together; a hand that knows them can."""
    keys = ((0.30001, 2000.0), (0.30002, 2000.0))
    stream = LoadedStream(constant(0, *keys), POLICY, keep_seen=True)
    stream.run(60)
    assert Verdict.HOT_KEY in verdicts(stream.seen[-1])
    (held,) = (one for one in stream.segments if 0.30001 in one.keys)
    ranges = (KeyRange(held.keys.start, 0.300015), KeyRange(0.300015, held.keys.end))
    by_hand = Decision(Action.SPLIT, "by hand", (held.segment_id,), ranges)
    scales = len(stream.scaled)
    stream.stream = performed(stream.stream, commanded(stream.stream, by_hand))
    stream.run(10)
    assert Verdict.HOT_KEY not in verdicts(stream.seen[-1])
    assert len(stream.scaled) > scales


def test_a_roll_keeps_what_is_remembered_of_a_hot_key_and_measures_anew() -> None:
    """The segments of the second epoch of a roll are the old ones under other ids."""
    stream = LoadedStream(constant(0, (0.3, 10_000.0)), POLICY, keep_seen=True)
    stream.run(60)
    before = stream.seen[-1].watch
    rolled = [
        SegmentRange(segment_id(99, number_of(one.segment_id)), one.keys) for one in stream.segments
    ]
    after = followed(before, 1, 99, rolled, windows_s=FAST.windows_s, now_s=stream.now_s)
    assert [one.halvings for one in after.segments.values()] == [
        before.segments[one.segment_id].halvings for one in stream.segments
    ]
    assert max(one.halvings for one in after.segments.values()) >= FAST.hot_key_halvings
    assert {one.gauge.known_s for one in after.segments.values()} == {0.0}


def test_another_life_of_the_stream_is_watched_anew() -> None:
    stream = LoadedStream(constant(0, (0.3, 10_000.0)), POLICY, keep_seen=True)
    stream.run(60)
    again = followed(
        stream.seen[-1].watch, 2, stream.stream.stream_epoch, stream.segments,
        windows_s=FAST.windows_s, now_s=stream.now_s,
    )  # fmt: skip
    assert {(one.halvings, one.gauge.known_s) for one in again.segments.values()} == {(0.0, 0.0)}


# --- merges -------------------------------------------------------------------------------------


def test_cold_neighbours_merge_after_the_window_and_the_minimum_is_held() -> None:
    stream = LoadedStream(constant(80), by_events(TARGET, min_segments=3), segment_count=16)
    found = until_scaled(stream, 3600)
    assert found is not None
    assert stream.now_s == pytest.approx(FAST.cold_s, abs=2 * stream.period_s)
    stream.run(600)
    assert len(stream.segments) == 3
    assert {one.action for one in stream.scaled} == {Action.MERGE}


def test_neighbours_that_would_come_close_to_the_target_together_do_not_merge() -> None:
    together = FAST.merge_factor * TARGET
    for load, count in ((together * 1.02, 2), (together * 0.98, 1)):
        stream = LoadedStream(constant(load), POLICY, segment_count=2)
        stream.run(200)
        assert len(stream.segments) == count


def test_nothing_merges_while_a_transaction_holds_events_that_do_not_count_yet() -> None:
    stream = LoadedStream(constant(10), POLICY, segment_count=4, uncounted_s=FAST.cold_s / 2)
    stream.run(300)
    assert stream.scaled == []
    stream.uncounted_s = 5.0
    stream.run(60)
    assert len(stream.segments) == 1


def test_segments_that_do_not_touch_do_not_merge() -> None:
    load = Load(0.0, tuple((at, 700.0) for at in (0.3, 0.6)))
    stream = LoadedStream(lambda _t: load, POLICY, segment_count=5)
    stream.run(300)
    assert [one.keys.start for one in stream.segments] == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_a_stream_is_patient_no_longer_when_the_bursts_are_over() -> None:
    stream = LoadedStream(
        lambda t: Load(6 * TARGET if t < 900 and t % 180 < 10 else 10), POLICY, period_s=5.0
    )
    stream.run(900)
    assert stream.watch is not None
    assert stream.watch.patience == 4
    stream.run(2 * 3700)
    assert stream.watch.patience == 1
    assert len(stream.segments) == 1


# --- transactions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("over_s", "splits"), [(60, False), (0, True)])
def test_what_a_commit_brings_counts_over_the_life_of_its_transaction(
    over_s: int, *, splits: bool
) -> None:
    """24,000 events in a minute are 400 per second; at once they would be 12,000."""
    stream = LoadedStream(lambda t: Load(12_000.0 if t % 60 == 0 else 0.0), POLICY)

    def merged() -> None:
        name = f"s/x/{0}.#epoch.0"
        is_commit = (stream.now_s + stream.period_s) % 60 == 0
        stream.merged = {name: Merged(24_000, 24_000 * EVENT_SIZE_BYTES, over_s * 1000)}
        if not is_commit:
            stream.merged = {}

    for _ in range(300):
        merged()
        stream.step()
    assert any(one.action is Action.SPLIT for one in stream.scaled) is splits


# --- properties ---------------------------------------------------------------------------------

LOADS = st.builds(
    Load,
    st.floats(0, 12 * TARGET),
    st.lists(st.tuples(st.floats(0, 0.999), st.floats(0, 3 * TARGET)), max_size=4).map(tuple),
)
SETTLED_S, WATCHED_S = 900.0, 300.0


def settles(load: Load, policy: ScalingPolicy, segment_count: int) -> LoadedStream:
    """The stream comes to rest under the load; every scale meets the rules of streams."""
    stream = LoadedStream(
        lambda _t: load,
        policy,
        period_s=10.0,
        segment_count=max(segment_count, policy.min_segments),
    )
    stream.run(SETTLED_S)
    scales = len(stream.scaled)
    stream.run(WATCHED_S)
    assert len(stream.scaled) == scales, f"it goes on scaling: {stream.scaled[-4:]}"
    assert len(stream.segments) >= policy.min_segments
    return stream


@settings(max_examples=15, deadline=None)
@given(LOADS, st.sampled_from([2, 3, 8]), st.integers(1, 4), st.integers(1, 12))
@example(Load(0.0, ((0.0, 1000.0), (0.3412, 1000.0), (0.5, 1000.0))), 8, 1, 3)
@example(Load(0.0, ((0.0, 600.0), (0.0, 1000.0), (0.5, 900.0), (0.25, 500.0))), 8, 3, 12)
@example(Load(10801.518, ((0.5, 3100.0),)), 3, 4, 12)
def test_a_stream_comes_to_rest_under_any_constant_load(
    load: Load, scale_factor: int, minimum: int, count: int
) -> None:
    settles(load, by_events(TARGET, scale_factor, minimum), count)


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 12), st.integers(1, 12))
def test_at_rest_no_segment_is_above_the_target_if_splitting_can_help(
    times: float, count: int
) -> None:
    stream = settles(Load(times * TARGET), POLICY, count)
    assert max(stream.loads) <= TARGET * 1.01


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(1, 60), max_size=20), st.floats(0, 2), st.integers(2, 6))
def test_unknown_is_never_cold(lost: set[int], times: float, count: int) -> None:
    """Segments merge only if everything is known for the whole window before."""
    never_merges_in_the_dark(lost, times, count)


def never_merges_in_the_dark(lost: Iterable[int], times: float, count: int) -> None:
    dark_s = {number * 5.0 for number in lost}
    stream = LoadedStream(
        constant(times * TARGET), POLICY, period_s=5.0, segment_count=count,
        is_lost=lambda t: t in dark_s, scale_s=0.0,
    )  # fmt: skip
    stream.run(400)
    for scaled in stream.scaled:
        if scaled.action is Action.MERGE:
            window = (scaled.at_s - FAST.cold_s, scaled.at_s)
            assert not [at for at in dark_s if window[0] < at <= window[1]]
            assert scaled.at_s >= FAST.cold_s


@given(st.floats(0, 0.99), st.floats(1e-6, 1.0), st.integers(2, 8))
def test_parts_cover_the_keys_exactly(start: float, width: float, count: int) -> None:
    whole = KeyRange(start, min(1.0, start + width))
    parts = equal_parts(whole, count)
    assert len(parts) == count
    assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
    assert all(low.end == high.start for low, high in itertools.pairwise(parts))


def test_a_decision_is_void_when_the_stream_has_another_epoch() -> None:
    stream = LoadedStream(constant(3 * TARGET), POLICY, scale_s=math.inf)
    found = until_scaled(stream, 30)
    assert found is not None
    command = commanded(stream.stream, found.decision)
    assert refused(stream.stream, command) is None
    moved = LoadedStream(constant(3 * TARGET), POLICY)
    moved.run(30)
    assert refused(moved.stream, command) is None, "the same decision again changes nothing"
    error = refused(moved.stream, command.model_copy(update={"command_id": "another"}))
    assert isinstance(error, ScaleRefused)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hot": ()},
        {"hot": (HotRule(5, 1.0), HotRule(2, 1.0))},
        {"hot": (HotRule(2, 0.5),)},
        {"hot": (HotRule(70, 1.0),)},
        {"merge_factor": 1.0},
        {"cold_factor": 0.0},
        {"parts_max": 1},
        {"fill_factor": 1.5},
        {"hot_key_share": 0.5},
    ],
)
def test_a_profile_under_which_streams_would_not_come_to_rest_is_refused(
    wrong: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=r"must"):
        Profile(**{"hot": FAST.hot, "cold_s": 60.0, **wrong})  # type: ignore[arg-type]
