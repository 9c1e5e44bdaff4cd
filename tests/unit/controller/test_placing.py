"""Streams that keep their segments together: numbers, containers, updates, names used again."""

from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch.common.contracts import commands
from anabranch.common.contracts.stream_queries import CutFound
from anabranch.common.errors import InvalidRequest
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import TOGETHER_FIRST, number_of, segment_name, stream_ref
from anabranch.common.model.stream import ScalingPolicy, StreamConfig, fixed
from anabranch.controller.domain.stream.state import Stream
from kit.query_world import QueryWorld, query_world

REF = stream_ref("s/x")
TOGETHER = StreamConfig(ScalingPolicy(min_segments=4), together=True)


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


def numbers(loaded: Loaded[Stream]) -> list[int]:
    return sorted(number_of(segment.segment_id) for segment in loaded.state.segments)


def containers(loaded: Loaded[Stream]) -> set[int]:
    names = [segment_name(REF, segment.segment_id) for segment in loaded.state.segments]
    return {container_of(name, 64) for name in names}


def from_first(*indexes: int) -> list[int]:
    return [TOGETHER_FIRST + index for index in indexes]


async def test_all_segments_are_in_one_container_before_and_after_a_scale(
    world: QueryWorld,
) -> None:
    made = await world.create(config=TOGETHER)
    scaled = await world.scale([made.state.segments[0].segment_id], 0, 0.125, 0.25)

    assert numbers(made) == from_first(0, 1, 2, 3)
    assert numbers(scaled) == from_first(1, 2, 3, 4, 5)
    assert containers(made) == containers(scaled)
    assert len(containers(made)) == 1


async def test_the_segments_of_other_streams_spread(world: QueryWorld) -> None:
    made = await world.create(config=fixed(4))

    assert numbers(made) == [0, 1, 2, 3]
    assert len(containers(made)) > 1


async def test_an_update_keeps_the_segments_together(world: QueryWorld) -> None:
    await world.create(config=TOGETHER)
    updated = await world.perform(
        commands.UpdateStream(command_id="u", scope="s", stream="x", config=fixed(5))
    )

    assert updated.state.config == StreamConfig(ScalingPolicy(min_segments=5), together=True)
    assert len(containers(updated)) == 1


async def test_an_update_cannot_bring_segments_together(world: QueryWorld) -> None:
    await world.create(config=fixed(4))
    with pytest.raises(InvalidRequest, match="brought together later"):
        await world.perform(
            commands.UpdateStream(command_id="u", scope="s", stream="x", config=TOGETHER)
        )


async def test_a_name_of_segments_together_is_not_used_again_for_a_stream_that_spreads(
    world: QueryWorld,
) -> None:
    await world.create(config=TOGETHER)
    await world.seal()
    await world.delete()
    with pytest.raises(InvalidRequest, match="kept its segments together"):
        await world.create(config=fixed(4))
    again = await world.create(config=TOGETHER)

    assert numbers(again) == from_first(4, 5, 6, 7)


async def test_a_name_of_a_stream_that_spread_may_be_used_for_segments_together(
    world: QueryWorld,
) -> None:
    await world.create(config=fixed(2))
    await world.seal()
    await world.delete()

    assert numbers(await world.create(config=TOGETHER)) == from_first(0, 1, 2, 3)


async def test_the_tail_of_segments_together_is_asked_for_at_one_moment(world: QueryWorld) -> None:
    made = await world.create(config=TOGETHER)
    names = [segment_name(REF, segment.segment_id) for segment in made.state.segments]
    asked: list[Sequence[str]] = []

    async def lengths(segments: Sequence[str]) -> Sequence[int]:
        asked.append(segments)
        return [7] * len(segments)

    world.replace_desk(segment_lengths=lengths)
    found = await world.ask("tail_cut", CutFound)

    assert asked == [names]
    assert [place.offset for place in found.segments] == [7, 7, 7, 7]
