"""A truncation asks only the stores of segments that it shortens."""

from anabranch.common.contracts.commands import TruncateStream
from anabranch.common.model.stream import StreamCut
from kit.retained_world import NAMES, Retained, cut
from kit.workflow_world import REF


async def truncate(world: Retained, place: StreamCut) -> list[tuple[str, str]]:
    """The requests to the stores."""
    world.segments.requests.clear()
    command = TruncateStream(
        command_id=f"t{place[0].offset}", scope=REF.scope, stream=REF.stream, cut=place
    )
    await world.command(command)
    assert (await world.rest()).state.head == place
    return [(verb, segment) for verb, segment, _ in world.segments.requests]


async def test_segments_that_begin_at_the_cut_already_are_not_asked_again() -> None:
    world = Retained()
    await world.create(None)
    world.write(50, 50, 50)
    first = await truncate(world, cut(10, 20, 0))
    assert first == [(verb, name) for verb in ("check", "truncate") for name in NAMES[:2]]
    second = await truncate(world, cut(30, 20, 0))
    assert second == [("check", NAMES[0]), ("truncate", NAMES[0])]
    assert [world.segments.segments[name].start for name in NAMES] == [30, 20, 0]
