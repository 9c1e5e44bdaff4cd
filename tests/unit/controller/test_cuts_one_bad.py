"""A cut with one bad segment among good ones is refused by every command, and changes nothing.

Truncations, which only the stores can refuse, are in `test_workflow_kills.py`.
"""

from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import CreateStream, NewRange, ScaleStream
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    ResetReaderGroup,
    UpdateSubscriberCut,
)
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import InvalidCut
from anabranch.common.model.names import segment_id
from anabranch.common.model.reader_group import GroupStream, PositionCut, SegmentPosition
from anabranch.common.workflow.runner import run_to_rest
from kit.controlled_groups import CREATE, GroupWorld, X, Y, config

GOOD: PositionCut = (
    SegmentPosition(segment_id(0, 0), 40),
    SegmentPosition(segment_id(0, 1), 60),
)
"""In two sealed segments of 100 bytes each, which have all keys."""
BAD = {
    "beyond its end": replace(GOOD[1], offset=101),
    "no segment": replace(GOOD[1], segment_id=segment_id(0, 9)),
    "behind for its keys": replace(GOOD[1], segment_id=segment_id(1, 2)),
}


async def scaled(world: GroupWorld) -> None:
    """s/x has two sealed segments and one after them; s/y has one."""
    await world.open_scope()
    world.listing.names = {X.stream, Y.stream}
    for ref, count in ((X, 2), (Y, 1)):
        command_id = f"c-{ref.stream}"
        await world.command(
            CreateStream(command_id=command_id, scope="s", stream=ref.stream, segment_count=count)
        )
        await run_to_rest(world.workflow(), stream_events(ref))
    sealed = tuple(segment_id(0, number) for number in (0, 1))
    ranges = (NewRange(key_start=0.0, key_end=0.5), NewRange(key_start=0.5, key_end=1.0))
    await world.command(
        ScaleStream(command_id="scale", scope="s", stream="x", seal=sealed, new_ranges=ranges)
    )
    await run_to_rest(world.workflow(), stream_events(X))


def from_cut(cut: PositionCut) -> tuple[GroupStream, ...]:
    return GroupStream("s/y"), GroupStream("s/x", start=cut)


async def facts(world: GroupWorld) -> object:
    streams = [(await world.at(stream_events(ref))).subscriptions for ref in (X, Y)]
    segments = {name: (s.start, s.deleted) for name, s in world.segments.segments.items()}
    return replace(await world.group(), operations=()), streams, segments


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("swapped", [False, True])
async def test_a_group_is_not_created_reset_or_released_by_a_cut_of_which_one_place_is_bad(
    bad: str, swapped: bool
) -> None:
    world = GroupWorld()
    await scaled(world)
    cut = (BAD[bad], GOOD[0]) if swapped else (GOOD[0], BAD[bad])
    wrong, right = (replace(CREATE.config, streams=from_cut(each)) for each in (cut, GOOD))
    untouched = await facts(world)

    with pytest.raises(InvalidCut):
        await world.group_command(
            CreateReaderGroup(command_id="1", scope="s", group="g", config=wrong)
        )
    assert await facts(world) == untouched
    await world.do(CreateReaderGroup(command_id="2", scope="s", group="g", config=right))
    untouched = await facts(world)

    with pytest.raises(InvalidCut):
        await world.group_command(
            ResetReaderGroup(command_id="3", scope="s", group="g", config=wrong)
        )
    with pytest.raises(InvalidCut):
        await world.command(
            UpdateSubscriberCut(
                command_id="4", scope="s", stream="x", subscriber="s/g", generation=0, cut=cut
            )
        )
    assert await facts(world) == untouched
    reset = ResetReaderGroup(command_id="5", scope="s", group="g", config=config("s/y"))
    assert (await world.do(reset)).generation == 1
