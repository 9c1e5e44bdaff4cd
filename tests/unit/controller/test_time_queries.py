"""What is answered to writers that note times, and to readers that ask for the marks."""

import pytest

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.writer_times import TimeNoted, WriterMarkList, WriterRemoved
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.handlers.registry import answer_query
from kit.fake_writer_times import InMemoryWriterTimes
from kit.query_world import QueryWorld, places, query_world

WRITERS = [f"{number:032x}" for number in range(5)]


def with_times(world: QueryWorld) -> InMemoryWriterTimes:
    times = InMemoryWriterTimes(SystemClock())
    world.replace_desk(writer_times=times)
    return times


async def test_a_noted_time_is_listed_with_sorted_positions() -> None:
    async with query_world() as world:
        with_times(world)
        await world.create(segments=2)

        cut = (SegmentOffset(segment_id(0, 1), 4), SegmentOffset(segment_id(0, 0), 3))
        noted = await world.ask(
            "note_time", TimeNoted, writer_id=WRITERS[0], timestamp_ms=5, positions=cut
        )
        found = await world.ask("list_writer_marks", WriterMarkList)

        assert noted.incarnation == found.incarnation == 1
        (mark,) = found.marks
        assert (mark.writer_id, mark.timestamp_ms) == (WRITERS[0], 5)
        assert mark.positions == places((0, 3), (1, 4))


async def test_marks_are_listed_page_by_page() -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()
        for writer in reversed(WRITERS):
            await world.ask("note_time", TimeNoted, writer_id=writer, timestamp_ms=1)

        found, token = [], ""
        for _ in range(3):
            page = await world.ask(
                "list_writer_marks", WriterMarkList, page_size=2, page_token=token
            )
            found += [mark.writer_id for mark in page.marks]
            token = page.next_page_token

        assert (found, token) == (WRITERS, "")


async def test_a_large_page_ends_where_the_answer_would_be_too_large() -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()
        cut = places(*((number, 2**62) for number in range(1000)))
        writers = [f"{number:032x}" for number in range(20)]
        for writer in writers:
            await world.ask("note_time", TimeNoted, writer_id=writer, timestamp_ms=1, positions=cut)

        found: list[str] = []
        token = ""
        pages = 0
        while token or not pages:
            page = await world.ask("list_writer_marks", WriterMarkList, page_token=token)
            found += [mark.writer_id for mark in page.marks]
            token, pages = page.next_page_token, pages + 1

        assert found == writers
        assert pages > 1


async def test_another_life_of_the_stream_knows_nothing_and_is_not_meant() -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()
        await world.ask("note_time", TimeNoted, writer_id=WRITERS[0], timestamp_ms=9)
        await world.seal()
        await world.delete()
        await world.create()

        fields = {"writer_id": WRITERS[0], "timestamp_ms": 10, "incarnation": 1}
        assert await world.refusal("note_time", **fields) == "stream-not-found"
        assert (await world.ask("list_writer_marks", WriterMarkList)).marks == ()
        await world.ask("note_time", TimeNoted, **{**fields, "timestamp_ms": 1, "incarnation": 2})


async def test_a_removed_writer_is_gone() -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()
        await world.ask("note_time", TimeNoted, writer_id=WRITERS[0], timestamp_ms=9)

        removed = await world.ask("remove_writer", WriterRemoved, writer_id=WRITERS[0])
        again = await world.ask("remove_writer", WriterRemoved, writer_id=WRITERS[0])

        assert (removed.was_known, again.was_known) == (True, False)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"writer_id": WRITERS[0], "timestamp_ms": 4}, "invalid-request"),
        ({"stream": "none"}, "stream-not-found"),
        ({"scope": "none"}, "scope-not-found"),
        ({"stream": "a/b"}, "invalid-name"),
    ],
)
async def test_what_cannot_be_noted_is_refused_by_name(
    fields: dict[str, object], code: str
) -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()
        await world.ask("note_time", TimeNoted, writer_id=WRITERS[0], timestamp_ms=5)
        wanted = {"writer_id": WRITERS[1], "timestamp_ms": 5, **fields}

        assert await world.refusal("note_time", **wanted) == code


@pytest.mark.parametrize(
    "body", [b"{}", b'{"scope":"s","stream":"x","writer_id":"x","timestamp_ms":1}']
)
async def test_what_is_malformed_is_refused(body: bytes) -> None:
    async with query_world() as world:
        with_times(world)
        await world.create()

        assert b"invalid-request" in await answer_query(world.desk, "note_time", Envelope(body))


async def test_without_a_keeper_or_while_it_is_away_times_are_unavailable() -> None:
    async with query_world() as world:
        await world.create()
        noting = {"writer_id": WRITERS[0], "timestamp_ms": 5}
        assert await world.refusal("note_time", **noting) == "unavailable"
        times = with_times(world)
        times.away = True
        assert await world.refusal("list_writer_marks") == "unavailable"
        assert await world.refusal("remove_writer", writer_id=WRITERS[0]) == "unavailable"
