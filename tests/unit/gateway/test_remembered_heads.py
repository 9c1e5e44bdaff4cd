"""Pages of a stream that the gateway remembers, while the stream changes behind its back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kit.client_bench import STREAM, Bench
from kit.fake_controller import FakeController
from kit.gateway_bench import EVENTS, GatewayBench, gateway, problem
from kit.scaling import merge, split


@asynccontextmanager
async def remembered(*numbers: int) -> AsyncIterator[tuple[GatewayBench, list[str]]]:
    """A gateway that has read a stream with these events, a block each, from its head; and the
    names of the queries that controllers receive from now on."""
    async with gateway(kind=FakeController) as g:
        await write(g, *numbers)
        assert await page(g) == [*numbers]
        asked: list[str] = []
        g.bench.control.before_query = asked.append
        yield g, asked


async def write(g: GatewayBench, *numbers: int) -> None:
    for number in numbers:
        assert (await g.http.post(EVENTS, json=number)).status_code == 200


async def page(g: GatewayBench, position: str = "head") -> list[int]:
    answer = await g.http.get(EVENTS, params={"from": position})
    assert answer.status_code == 200, answer.text
    return [int(line) for line in answer.text.splitlines()]


async def position_behind(g: GatewayBench, count: int) -> str:
    answer = await g.http.get(EVENTS, params={"max_events": count})
    return str(answer.headers["next-position"])


def truncate(b: Bench, blocks: int) -> None:
    """Cut the first blocks of the only current segment off, and all segments before it."""
    (life,) = b.stream.current
    name = b.stream.listed(b.ref)[0].name
    ends = [0, *b.store.segments[name].boundaries]
    b.truncate({life.segment_id: ends[blocks]})


def create_again(g: GatewayBench) -> None:
    g.bench.create_again()
    g.parts.writers.forget(STREAM)  # as a gateway does that deletes a stream itself


def scale_down_to_a_new_segment(b: Bench) -> None:
    for stages in (split, merge):
        for _ in stages(b):
            pass


async def test_a_head_and_a_position_in_it_are_read_without_a_query() -> None:
    async with remembered(1, 2, 3) as (g, asked):
        assert await page(g) == [1, 2, 3]
        assert await page(g, await position_behind(g, 1)) == [2, 3]
    assert asked == []


async def test_events_behind_the_present_tail_belong_to_the_next_page() -> None:
    async with remembered(1) as (g, _):
        behind = await position_behind(g, 9)
        assert await page(g, behind) == []
        await write(g, 2)
        assert await page(g, behind) == [2]


async def test_the_head_of_a_truncated_stream_is_looked_up_again() -> None:
    async with remembered(1, 2, 3) as (g, asked):
        truncate(g.bench, 2)
        assert await page(g) == [3]
        assert "head_cut" in asked
        asked.clear()
        assert await page(g) == [3]
        assert asked == []


async def test_a_head_whose_segments_are_gone_is_looked_up_again() -> None:
    async with remembered(1) as (g, _):
        scale_down_to_a_new_segment(g.bench)
        await write(g, 2, 3)
        truncate(g.bench, 1)
        assert await page(g) == [3]


async def test_a_position_in_a_segment_that_is_gone_is_answered_with_the_one_behind() -> None:
    async with remembered(1, 2) as (g, _):
        old = await position_behind(g, 1)
        scale_down_to_a_new_segment(g.bench)
        await write(g, 3)
        truncate(g.bench, 0)

        refused = await g.http.get(EVENTS, params={"from": old})
        assert problem(refused, 410) == "events-truncated"
        assert await page(g, refused.json()["fields"]["next"]) == [3]


async def test_a_gap_is_passed_segment_by_segment_while_others_of_its_epoch_are_there() -> None:
    async with remembered(1) as (g, _):
        for _ in split(g.bench):
            pass
        await write(g, 2, 3, 4, 5)
        old = await position_behind(g, 1)
        first, second = (each.name for each in g.bench.stream.listed(g.bench.ref))
        for _ in merge(g.bench):
            pass
        await write(g, 6)
        left = g.bench.events_in(bytes(g.bench.store.segments[second].data))
        g.bench.store.delete(first)  # the segments of a truncation are deleted one by one

        found: list[int] = []
        gaps = 0
        while True:
            answer = await g.http.get(EVENTS, params={"from": old, "max_events": 1})
            if answer.status_code == 410:
                gaps, old = gaps + 1, answer.json()["fields"]["next"]
                assert gaps < 3
                continue
            if not answer.content:
                break
            found.append(int(answer.text))
            old = answer.headers["next-position"]
    assert gaps == 1
    assert found == [*(int(payload) for _, payload in left), 6]


async def test_a_deleted_stream_is_not_found() -> None:
    async with remembered(1) as (g, _):
        position = await position_behind(g, 9)
        g.bench.delete()
        for start in ("head", position, "head"):
            gone = await g.http.get(EVENTS, params={"from": start})
            assert problem(gone, 404) == "stream-not-found"


async def test_the_next_stream_of_the_name_has_its_own_events_and_positions() -> None:
    async with remembered(1) as (g, _):
        old = await position_behind(g, 9)
        create_again(g)
        assert await page(g) == []
        await write(g, 2)
        assert await page(g) == [2]
        foreign = await g.http.get(EVENTS, params={"from": old})
        assert problem(foreign, 400) == "invalid-request"


async def test_a_position_of_the_next_stream_is_taken_by_a_gateway_that_knows_the_old_one() -> None:
    async with remembered(1) as (g, _):
        async with gateway(kind=FakeController) as other:
            create_again(other)
            await write(other, 2)
            new = await position_behind(other, 1)
        create_again(g)
        await write(g, 2, 3)
        assert await page(g, new) == [3]


@pytest.mark.parametrize("stages", [(split,), (split, merge), (split, merge, split)])
async def test_a_page_from_a_head_before_scales_has_the_events_of_all_epochs(
    stages: tuple[type, ...],
) -> None:
    async with remembered(1) as (g, _):
        written = [1]
        for number, scale in enumerate(stages, 2):
            for _ in scale(g.bench):
                pass
            await write(g, number)
            written.append(number)
        assert sorted(await page(g)) == written
        assert sorted(await page(g, await position_behind(g, 0 + 1))) == written[1:]


async def test_every_stage_of_a_scale_shows_what_was_acknowledged() -> None:
    async with remembered(1) as (g, _):
        behind = await position_behind(g, 9)
        for _ in split(g.bench):
            assert await page(g) == [1]
            assert await page(g, behind) == []


async def test_a_sealed_stream_is_read_to_its_end() -> None:
    async with remembered(1) as (g, _):
        behind = await position_behind(g, 9)
        g.bench.seal()
        assert await page(g) == [1]
        ended = await g.http.get(EVENTS, params={"from": behind, "wait": "20"})
    assert (ended.content, ended.headers["end-of-stream"]) == (b"", "true")
