"""Auto-scaling is explained by the controller that looks after the stream, whoever is asked."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from anabranch.common.contracts.scaling import ScalingExplained
from anabranch.common.contracts.stream_queries import SegmentDescription
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import StreamConfig
from anabranch.controller.domain.policies.autoscale import Action
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.handlers.queries.scaling import COLD_MS
from anabranch.controller.projections.scaling import Decided, Looked, ScalingStates
from kit.container_driver import ManualTime
from kit.loaded_stream import Load, LoadedStream, by_events
from kit.query_world import QueryWorld, query_world
from kit.rng import Random, seeded

SUBJECT = stream_events(stream_ref("s/x"))
POLICY = by_events(1000)
COLD = Load(100.0)


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


def looked(
    load: Load, seconds: float, time: ManualTime, *, chance: Random | None = None
) -> ScalingStates:
    """What a controller found after so many seconds of that load; with `chance`, its store told
    where the keys lie."""
    stream = LoadedStream(
        lambda _t: load, POLICY, scale_s=float("inf"), keep_seen=True, chance=chance
    )
    stream.run(seconds)
    time.seconds = stream.now_s + 1.5
    states = ScalingStates(FAST, time)
    last = Decided(Action.SPLIT, "numbers", 0, 999_000, "void", "moved")
    states.keep(SUBJECT, Looked(stream.seen[-1], stream.now_s, last))
    return states


async def explained(world: QueryWorld, states: ScalingStates, **more: object) -> ScalingExplained:
    world.desk = replace(world.desk, scaling=states, controller_id="me", **more)  # type: ignore[arg-type]
    return await world.ask("explain_scaling", ScalingExplained)


async def test_the_owner_tells_rates_thresholds_and_since_when(world: QueryWorld) -> None:
    await world.create(config=StreamConfig(POLICY))
    time = ManualTime()
    found = await explained(world, looked(Load(3000.0), 4, time))
    assert (found.status, found.unit, found.target, found.controller) == (
        "watched", "events/s", 1000, "me",
    )  # fmt: skip
    assert found.looked_ms == time.now_ms() - 1500
    assert found.thresholds is not None
    assert [(rule.window_s, rule.rate) for rule in found.thresholds.hot][:2] == [
        (2.0, 2000.0), (5.0, 1000.0),
    ]  # fmt: skip
    assert (found.thresholds.cold_below, found.thresholds.merged_below) == (500.0, 600.0)
    assert (found.thresholds.parts_max, found.thresholds.segment_count_min) == (8, 1)
    (segment,) = found.segments
    assert (segment.name, segment.verdict) == ("s/x/0.#epoch.0", "hot")
    assert segment.hot_since_ms == found.looked_ms
    assert segment.cold_since_ms is None
    assert segment.cooldown_ms == 3000
    assert [(rate.window_s, rate.rate) for rate in segment.rates] == [(2.0, 3000.0)]
    assert found.present is not None
    assert "left alone for another 3 s" in found.present.why
    assert found.last is not None
    assert (found.last.outcome, found.last.error, found.last.at_ms) == ("void", "moved", 999_000)


async def test_the_owner_tells_where_the_load_of_a_hot_segment_lies(world: QueryWorld) -> None:
    """By the place of a key, and not by the key."""
    await world.create(config=StreamConfig(POLICY))
    load = Load(300.0, ((0.25, 2700.0),))
    found = await explained(world, looked(load, 4, ManualTime(), chance=seeded(1)))
    (segment,) = found.segments
    assert segment.keys is not None
    assert (segment.keys.events, segment.keys.position, segment.keys.keyless) == (256, 0.25, 0.0)
    assert segment.keys.share == pytest.approx(0.9, abs=0.05)
    assert "of it at position 0.250000 of the key space" in segment.why


async def test_what_is_missing_is_said(world: QueryWorld) -> None:
    await world.create(config=StreamConfig(POLICY))
    found = await explained(world, looked(Load(3000.0), 2, ManualTime()))
    assert [(one.verdict, one.why) for one in found.segments] == [
        ("unknown", "the load is known for 0 s, 2 s are needed")
    ]


async def test_streams_that_follow_no_load_say_so(world: QueryWorld) -> None:
    await world.create()
    states = ScalingStates(FAST, ManualTime())
    assert (await explained(world, states)).status == "fixed"
    await world.create("s/y", config=StreamConfig(POLICY))
    off = ScalingStates(None, ManualTime())
    world.desk = replace(world.desk, scaling=off)
    assert (await world.ask("explain_scaling", ScalingExplained, stream="y")).status == "off"
    assert await world.refusal("explain_scaling", stream="z") == "stream-not-found"


async def test_another_controller_asks_the_owner(world: QueryWorld) -> None:
    await world.create(config=StreamConfig(POLICY))
    theirs = await explained(world, looked(Load(3000.0), 4, ManualTime()))
    asked: list[bytes] = []

    async def ask_peers(
        name: str, payload: bytes, _timeout_s: float
    ) -> Sequence[tuple[str, bytes]]:
        assert name == "explain_scaling"
        asked.append(payload)
        nothing = theirs.model_copy(update={"status": "unwatched"})
        return [
            ("old", b'{"ok": false}'),
            ("idle", nothing.model_dump_json().encode()),
            ("them", theirs.model_dump_json().encode()),
        ]

    empty = ScalingStates(FAST, ManualTime())
    assert await explained(world, empty, ask_peers=ask_peers) == theirs
    assert b'"only_here":true' in asked[0]
    alone = await world.ask("explain_scaling", ScalingExplained, only_here=True)
    assert (alone.status, len(asked)) == ("unwatched", 1)


async def test_what_is_known_of_an_earlier_life_is_not_told(world: QueryWorld) -> None:
    await world.create(config=StreamConfig(POLICY))
    states = looked(Load(3000.0), 4, ManualTime())
    found = states.looked(SUBJECT)
    assert found is not None
    watch = replace(found.evaluation.watch, incarnation=7)
    states.keep(SUBJECT, replace(found, evaluation=replace(found.evaluation, watch=watch)))
    assert (await explained(world, states)).status == "unwatched"


async def test_a_described_segment_tells_until_when_it_counts_as_cold(world: QueryWorld) -> None:
    await world.create(config=StreamConfig(POLICY))
    time = ManualTime()
    world.desk = replace(world.desk, scaling=looked(COLD, 100, time))
    cold = await world.ask("describe_segment", SegmentDescription, segment_id=0)
    assert cold.cold_until_ms == time.now_ms() - 1500 + COLD_MS
    world.desk = replace(world.desk, scaling=looked(Load(3000.0), 4, time))
    hot = await world.ask("describe_segment", SegmentDescription, segment_id=0)
    assert hot.cold_until_ms is None
