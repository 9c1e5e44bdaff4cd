"""The sample of a busy segment's keys: that it is fair, that it forgets, and what it costs."""

from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.event_key import event_key
from anabranch.segstore.domain.load import sketch as module
from anabranch.segstore.domain.load.sketch import (
    FRESHENED_PER_S_MAX,
    KEYLESS,
    POSITION_BITS,
    QUIET_S_MAX,
    SAMPLED_MIN,
    SAMPLED_PER_S_MAX,
    SKETCHES_MAX,
    SLOTS,
    UNREAD,
    Flow,
    Plan,
    Sketch,
    planned,
)
from kit.rng import seeded


def block(keys: Sequence[str | None], *, zstd_level: int | None = None) -> bytes:
    return encode_block(
        [b"event of some size"] * len(keys),
        writer_id=b"w" * 16,
        first_event_number=1,
        base_timestamp_ms=0,
        keys=[None if key is None else key.encode() for key in keys],
        zstd_level=zstd_level,
    )


def appended(sketch: Sketch, payload: bytes, events: int) -> None:
    """As `Traffic` does it."""
    sketch.skip -= events
    if sketch.skip < 0:
        sketch.look(payload, events)


def written(sketch: Sketch, keys: Iterator[str | None], blocks: int, size: int) -> None:
    for _ in range(blocks):
        appended(sketch, block(list(islice(keys, size))), size)


def place_of(key: str) -> int:
    return int(routing_position(key) * 2**POSITION_BITS)


def shares(found: KeySketch | None) -> dict[int, float]:
    assert found is not None
    whole = sum(found.events) + found.keyless_events
    return {
        position: events / whole
        for position, events in zip(found.positions, found.events, strict=True)
    }


def begun(gap: int, events: int = 10**6) -> Sketch:
    sketch = Sketch()
    sketch.begin(Plan(gap, events))
    return sketch


def test_a_sample_has_the_shares_of_the_keys() -> None:
    chance = seeded(1)
    sketch = begun(7)
    keys = ("hot" if chance.random() < 0.4 else f"key {chance.random():.3f}" for _ in count())
    written(sketch, keys, 60, 100)
    assert shares(sketch.summary())[place_of("hot")] == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_keys_in_a_fixed_order_are_sampled_evenly(size: int) -> None:
    """Even if the gap is a multiple of their number, and if blocks begin with the same one."""
    sketch = begun(10)
    written(sketch, cycle([f"key {number}" for number in range(5)]), 8000 // size, size)
    found = shares(sketch.summary())
    assert sorted(found) == sorted(place_of(f"key {number}") for number in range(5))
    assert max(found.values()) == pytest.approx(0.2, abs=0.08)


def test_an_old_load_is_forgotten() -> None:
    sketch = begun(1)
    written(sketch, cycle(["old"]), SLOTS // 50, 50)
    assert shares(sketch.summary())[place_of("old")] == 1
    written(sketch, cycle(["new"]), 6 * SLOTS // 50, 50)
    assert shares(sketch.summary())[place_of("new")] > 0.97


def test_events_without_keys_and_those_that_cannot_be_read_are_told() -> None:
    sketch = begun(1)
    for _ in range(10):
        appended(sketch, block(["key", None, "key", None, None]), 5)
        appended(sketch, b"a byte stream", 2)
    with_known = sketch.summary()
    assert with_known is None
    for _ in range(10):
        appended(sketch, block(["key", None, "key", None, None]), 5)
    found = sketch.summary()
    assert found is not None
    assert (found.events, found.keyless_events, found.unread_events) == ((40,), 60, 20)
    assert (found.sizes, found.keyless_size) == ((40 * 18,), 60 * 18)


def test_too_few_events_tell_nothing() -> None:
    sketch = begun(1)
    written(sketch, cycle(["key"]), 1, SAMPLED_MIN - 1)
    assert sketch.summary() is None
    written(sketch, cycle(["key"]), 1, 1)
    assert sketch.summary() is not None


def test_a_load_that_jumps_costs_its_logarithm() -> None:
    """A thousand times the planned events: the gap doubles with every planned number."""
    sketch = begun(1, events=100)
    payload = block(["key"] * 100)
    with patch.object(module, "event_key", wraps=event_key) as looked:
        for _ in range(1000):
            appended(sketch, payload, 100)
    assert looked.call_count <= 100 * 12


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from([7, 2**31, 2**31 + 1, KEYLESS, UNREAD]) | st.integers(0, 2**32 - 1),
        st.integers(0, 2**20),
    ),
    min_size=SAMPLED_MIN,
    max_size=SLOTS,
)


@settings(max_examples=25)
@given(SAMPLES)
def test_a_summary_is_small_and_complete_and_heavy_places_are_single(
    samples: list[tuple[int, int]],
) -> None:
    sketch = Sketch()
    for position, size in samples:
        sketch.note(position, size)
    found = sketch.summary()
    known = [one for one in samples if one[0] != UNREAD]
    if found is None:
        assert len(known) < SAMPLED_MIN
        return
    assert sum(found.events) + found.keyless_events == len(known)
    assert sum(found.sizes) + found.keyless_size == sum(size for _, size in known)
    assert found.unread_events == len(samples) - len(known)
    assert list(found.positions) == sorted(set(found.positions))
    assert len(found.positions) <= 200
    whole_size = sum(size for _, size in samples)
    exact: dict[int, list[int]] = {}
    for position, size in known:
        if position != KEYLESS:
            exact.setdefault(position, []).append(size)
    for position, events, size in zip(found.positions, found.events, found.sizes, strict=True):
        if events > len(known) / 32 or size > whole_size / 32:
            assert (events, size) == (len(exact[position]), sum(exact[position]))


def test_even_keys_make_a_summary_of_some_fifty_places() -> None:
    chance = seeded(2)
    sketch = Sketch()
    for _ in range(SLOTS):
        sketch.note(chance.randrange(2**32), 100)
    found = sketch.summary()
    assert found is not None
    assert len(found.positions) <= 56
    assert len(found.model_dump_json()) < 1200


# --- which segments are sketched ----------------------------------------------------------------


def test_the_busiest_segments_of_a_store_share_what_it_may_look_at() -> None:
    flows = [
        {f"s/{place}/{number}": Flow(1000 * (number + 1)) for number in range(40)}
        for place in range(4)
    ]
    plans = planned(flows, 2.0)
    chosen = [plan for of in plans for plan in of.values()]
    assert len(chosen) == SKETCHES_MAX
    assert sum(plan.events for plan in chosen) <= 2 * SAMPLED_PER_S_MAX * 1.1
    assert set(plans[0]) == {f"s/0/{number}" for number in range(32, 40)}
    expected = [1000 * (number + 1) / plans[0][f"s/0/{number}"].gap for number in range(32, 40)]
    assert expected == pytest.approx([16.0] * 8, rel=0.01)


def test_a_full_sample_is_kept_fresh_by_fewer_events() -> None:
    (plans,) = planned([{"full": Flow(10_000, 0.0, is_full=True), "new": Flow(10_000)}], 2.0)
    assert plans == {"full": Plan(312, 32), "new": Plan(78, 128)}
    many = {f"s/{number}": Flow(10_000, 0.0, is_full=True) for number in range(32)}
    (plans,) = planned([many], 2.0)
    assert sum(plan.events for plan in plans.values()) == 2 * FRESHENED_PER_S_MAX


def test_slow_segments_are_not_sketched_and_bursts_keep_their_sketch_for_a_while() -> None:
    assert planned([{"slow": Flow(9), "busy": Flow(10)}], 2.0) == [{"busy": Plan(1, 128)}]
    pausing = Flow(0, quiet_s=QUIET_S_MAX - 1)
    assert planned([{"pausing": pausing}], 2.0) == [{"pausing": Plan(1, 0, QUIET_S_MAX - 1)}]
    assert planned([{"gone": Flow(0, quiet_s=QUIET_S_MAX)}], 2.0) == [{}]
    assert planned([{"slower": Flow(1, quiet_s=0.0)}], 2.0) == [{"slower": Plan(1, 128)}]
