"""How far a watermark is, as every controller says and only the owner knows."""

from collections.abc import Sequence

import pytest

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.watermarks import WRITERS_SHOWN_MAX, WatermarkStatus
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.watermark_log import WatermarkLog
from kit.desks import query_desk
from kit.marked_world import TIMEOUT_MS, Marked, at
from kit.workflow_world import REF


@pytest.fixture
async def world() -> Marked:
    made = Marked()
    await made.found()
    return made


def desk_of(world: Marked, *, is_owner: bool = True, peer: QueryDesk | None = None) -> QueryDesk:
    async def ask_peers(name: str, body: bytes, _timeout_s: float) -> Sequence[tuple[str, bytes]]:
        answers = [("broken", b"not an answer")]
        if peer is not None:
            answers.append(("owner", await answer_query(peer, name, Envelope(body))))
        return answers

    return query_desk(
        world.mirror,
        writer_times=world.writer_times,
        watermark_log=WatermarkLog(world.segments, world.ids),
        last_look=world.advancer.last_look if is_owner else lambda _stream, _incarnation: None,
        ask_peers=ask_peers,
        controller_id="owner" if is_owner else "other",
    )


async def status(desk: QueryDesk) -> WatermarkStatus:
    body = b'{"scope": "s", "stream": "x"}'
    return WatermarkStatus.model_validate_json(
        await answer_query(desk, "watermark_status", Envelope(body))
    )


async def test_a_stream_without_writers_has_no_watermark(world: Marked) -> None:
    found = await status(desk_of(world))

    assert (found.held, found.last, found.writers) == ("no_writers", None, ())
    assert (found.timeout_ms, found.controller) == (TIMEOUT_MS, "owner")


async def test_the_last_watermark_and_all_writers_are_told(world: Marked) -> None:
    await world.note("b", 1200)
    await world.note("a", 1000, at(10, 0, 5))
    await world.later()

    found = await status(desk_of(world))

    assert found.held == ""
    assert found.last is not None
    assert (found.last.lower_ms, found.last.upper_ms) == (1000, 1200)
    assert found.last.cut == at(10, 0, 5)
    assert [(one.writer_id[0], one.is_later) for one in found.writers] == [
        ("a", False),
        ("b", True),
    ]
    assert found.now_ms == world.clock.now_ms()


async def test_who_holds_it_back_is_told_and_for_how_long(world: Marked) -> None:
    await world.note("a", 1000)
    await world.note("b", 1200)
    await world.later()
    await world.note("b", 1300)
    await world.later()
    world.clock.ms += 5_000

    found = await status(desk_of(world))

    assert (found.held, found.held_by, found.held_for_ms) == ("idle_writer", "a" * 32, 15_000)


async def test_after_a_loss_it_is_told_how_long_it_settles(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    world.writer_times.empty()
    await world.note("a", 1100)
    await world.later()
    world.clock.ms += 1_000

    found = await status(desk_of(world))

    assert (found.held, found.settles_in_ms) == ("settling", TIMEOUT_MS - 1_000)


async def test_another_controller_asks_the_owner(world: Marked) -> None:
    await world.note("a", 1000)
    await world.note("b", 1200)
    await world.later()
    await world.note("b", 1300)
    await world.later()
    other = desk_of(world, is_owner=False, peer=desk_of(world))

    found = await status(other)

    assert (found.held, found.held_by, found.controller) == ("idle_writer", "a" * 32, "owner")
    assert found.last is not None


async def test_without_an_owner_it_is_unwatched_and_the_rest_is_told(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    other = desk_of(world, is_owner=False, peer=desk_of(world, is_owner=False))

    found = await status(other)

    assert (found.held, found.controller, found.writer_count) == ("unwatched", "", 1)
    assert found.last is not None


async def test_of_very_many_writers_those_with_the_lowest_times_are_told(world: Marked) -> None:
    for number in range(WRITERS_SHOWN_MAX + 5):
        await world.writer_times.note(REF, 1, f"{number:032x}", 5000 - number, ())

    found = await status(desk_of(world))

    assert (len(found.writers), found.writer_count) == (WRITERS_SHOWN_MAX, WRITERS_SHOWN_MAX + 5)
    assert found.writers[0].timestamp_ms < found.writers[-1].timestamp_ms


async def test_an_owner_that_has_lost_the_bucket_knows_nothing(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    world.owned = frozenset()

    assert (await status(desk_of(world))).held == "unwatched"
