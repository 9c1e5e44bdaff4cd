"""What is answered about a stream's cuts."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch.common.contracts import queries
from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.errors import Unavailable
from anabranch.common.model.stream import SegmentOffset
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections import tail_cut
from kit.desks import one_by_one
from kit.query_world import QueryWorld, places, query_world, sid

A, B, C = sid(0, 0), sid(1, 1), sid(1, 2)
"""The first segment, and its successors for the lower and the upper half of the keys."""
D, E = sid(2, 3), sid(2, 4)
"""The successors of B."""


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    """A stream that was split at 2000 and 3000: A | B C | D E C."""
    async with query_world() as built:
        await built.create()
        built.now_ms = 2000
        await built.scale([A], 0, 0.5, 1)
        built.now_ms = 3000
        await built.scale([B], 0, 0.25, 0.5)
        yield built


def told(found: asked.CutFound) -> tuple[int, list[tuple[int, int]]]:
    return found.stream_epoch, [(s.segment_id, s.offset) for s in found.segments]


async def cut(world: QueryWorld, query: str, **fields: int) -> tuple[int, list[tuple[int, int]]]:
    return told(await world.ask(query, asked.CutFound, **fields))


async def test_the_head_is_where_the_stream_was_truncated(world: QueryWorld) -> None:
    assert await cut(world, "head_cut") == (0, [(A, 0)])
    await world.truncate((B, 20), (C, 0))
    assert await cut(world, "head_cut") == (1, [(B, 20), (C, 0)])
    await world.truncate((C, 5), (D, 0), (E, 7))
    assert await cut(world, "head_cut") == (2, [(D, 0), (E, 7), (C, 5)])


async def test_the_tail_is_asked_of_the_stores(world: QueryWorld) -> None:
    world.stores.segments["s/x/3.#epoch.2"].length = 7
    assert await cut(world, "tail_cut") == (2, [(D, 7), (E, 100), (C, 100)])


async def test_the_tail_is_that_of_the_segments_at_the_head(world: QueryWorld) -> None:
    await world.folded()
    world.is_behind = True
    await world.scale([D, E, C], 0, 1)
    assert await cut(world, "tail_cut") == (3, [(sid(3, 5), 100)])


async def test_the_tail_of_a_sealed_stream_needs_no_stores(world: QueryWorld) -> None:
    await world.seal()
    world.replace_desk(segment_lengths=None)
    assert await cut(world, "tail_cut") == (2, [(D, 100), (E, 100), (C, 100)])


async def test_the_tail_of_what_is_not_there_names_what_is_missing(world: QueryWorld) -> None:
    assert await world.refusal("tail_cut", stream="never") == "stream-not-found"
    assert await world.refusal("tail_cut", scope="never") == "scope-not-found"


async def test_stores_that_do_not_answer_make_the_tail_unavailable(world: QueryWorld) -> None:
    async def down(segment: str) -> int:
        raise Unavailable("no segment store serves the container", segment=segment)

    world.replace_desk(segment_lengths=one_by_one(down))
    assert await world.refusal("tail_cut") == "unavailable"


async def test_a_store_that_is_silent_for_long_makes_the_tail_unavailable(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_cut, "LENGTHS_DEADLINE_S", 0.0)

    async def silent(_segment: str) -> int:
        await asyncio.Event().wait()
        return 0

    world.replace_desk(segment_lengths=one_by_one(silent))
    assert await world.refusal("tail_cut") == "unavailable"


async def test_a_segment_that_is_gone_meanwhile_makes_the_tail_unavailable(
    world: QueryWorld,
) -> None:
    world.stores.segments["s/x/3.#epoch.2"].deleted = True
    assert await world.refusal("tail_cut") == "unavailable"


async def test_old_epochs_answer_also_after_a_truncation(world: QueryWorld) -> None:
    await world.truncate((C, 5), (D, 0), (E, 7))
    assert await cut(world, "epoch_segments", stream_epoch=0) == (0, [(A, 0)])
    assert await cut(world, "epoch_segments", stream_epoch=1) == (1, [(B, 0), (C, 0)])
    assert await cut(world, "epoch_segments", stream_epoch=2) == (2, [(D, 0), (E, 0), (C, 0)])
    assert await world.refusal("epoch_segments", stream_epoch=3) == "invalid-request"


async def test_an_epoch_that_never_was_is_refused_only_after_reading_the_head(
    world: QueryWorld,
) -> None:
    await world.folded()
    world.is_behind = True
    await world.scale([D, E, C], 0, 1)
    assert await cut(world, "epoch_segments", stream_epoch=3) == (3, [(sid(3, 5), 0)])


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [
        (0, [(A, 0)]),
        (1999, [(A, 0)]),
        (2000, [(B, 0), (C, 0)]),
        (2999, [(B, 0), (C, 0)]),
        (3000, [(D, 0), (E, 0), (C, 0)]),
        (9999, [(D, 0), (E, 0), (C, 0)]),
    ],
)
async def test_a_time_leads_to_the_epoch_that_was_current(
    world: QueryWorld, time_ms: int, expected: list[tuple[int, int]]
) -> None:
    assert (await cut(world, "segments_at_time", time_ms=time_ms))[1] == expected


@pytest.mark.parametrize(
    ("head", "time_ms", "expected"),
    [
        ([(A, 10)], 0, [(A, 10)]),
        ([(A, 10)], 2000, [(B, 0), (C, 0)]),
        ([(B, 20), (C, 30)], 0, [(B, 20), (C, 30)]),
        ([(B, 20), (C, 30)], 2000, [(B, 20), (C, 30)]),
        ([(B, 20), (C, 30)], 3000, [(D, 0), (E, 0), (C, 30)]),
        ([(D, 1), (E, 2), (C, 30)], 2000, [(D, 1), (E, 2), (C, 30)]),
        # B is not read to its end, so its successor says nothing.
        ([(B, 5), (C, 0), (D, -1)], 2000, [(B, 5), (C, 0)]),
        # A reader that finished B's lower half and has begun E: B is read, for all its keys.
        ([(C, 30), (D, -1), (E, 2)], 2000, [(D, -1), (E, 2), (C, 30)]),
    ],
)
async def test_a_time_leads_to_nothing_before_the_head(
    world: QueryWorld,
    head: Sequence[tuple[int, int]],
    time_ms: int,
    expected: list[tuple[int, int]],
) -> None:
    await world.truncate(*head)
    assert (await cut(world, "segments_at_time", time_ms=time_ms))[1] == expected


async def test_a_cut_that_is_none_is_an_answer_with_a_reason(world: QueryWorld) -> None:
    good = await world.ask("check_cut", asked.CutChecked, cut=places((B, 5), (C, 0)))
    assert (good.valid, good.reason) == (True, "")
    bad = await world.ask("check_cut", asked.CutChecked, cut=places((B, 5)))
    assert (bad.valid, bad.reason != "") == (False, True)
    long = await world.ask("check_cut", asked.CutChecked, cut=places((B, 101), (C, 0)))
    assert not long.valid


async def test_a_cut_is_called_invalid_only_after_reading_the_head(world: QueryWorld) -> None:
    await world.folded()
    world.is_behind = True
    await world.scale([D, E, C], 0, 1)
    found = await world.ask("check_cut", asked.CutChecked, cut=places((sid(3, 5), 5)))
    assert found.valid


async def test_cuts_are_compared_and_what_is_none_is_refused(world: QueryWorld) -> None:
    async def order(first: tuple[SegmentOffset, ...], second: tuple[SegmentOffset, ...]) -> str:
        found = await world.ask("compare_cuts", asked.CutsCompared, first=first, second=second)
        return found.order

    assert await order(places((A, 5)), places((B, 0), (C, 0))) == "before"
    assert await order(places((B, 1), (C, 1)), places((B, 0), (C, 2))) == "overlaps"
    assert await order(places((B, 1), (C, 1)), places((B, 1), (C, 1))) == "equal"
    invalid = {"first": places((B, 1)), "second": places((A, 0))}
    assert await world.refusal("compare_cuts", **invalid) == "invalid-cut"


def runs(found: asked.SegmentRunList) -> list[tuple[int, int, int | None, int | None]]:
    return [(r.segment_id, r.start_offset, r.end_offset, r.size) for r in found.segments]


async def test_what_lies_between_the_head_and_the_tail_is_everything(world: QueryWorld) -> None:
    await world.truncate((A, 10))
    found = await world.ask("segments_between", asked.SegmentRunList)
    assert runs(found) == [
        (A, 10, None, 100),
        (B, 0, None, 100),
        (C, 0, None, None),
        (D, 0, None, None),
        (E, 0, None, None),
    ]


async def test_what_lies_between_two_cuts_ends_at_their_offsets(world: QueryWorld) -> None:
    found = await world.ask(
        "segments_between",
        asked.SegmentRunList,
        start=places((A, 50)),
        end=places((B, 5), (C, 6)),
    )
    assert runs(found) == [(A, 50, None, 100), (B, 0, 5, 100), (C, 0, 6, None)]
    reverse = {"start": places((B, 5), (C, 6)), "end": places((A, 50))}
    assert await world.refusal("segments_between", **reverse) == "invalid-cut"


async def test_the_last_segments_of_a_sealed_stream_have_sizes(world: QueryWorld) -> None:
    await world.seal()
    found = await world.ask("segments_between", asked.SegmentRunList)
    assert [run.size for run in found.segments] == [100] * 5


async def test_runs_come_in_pages_where_asked_for(world: QueryWorld) -> None:
    first = await world.ask("segments_between", asked.SegmentRunList, page_size=3)
    second = await world.ask(
        "segments_between", asked.SegmentRunList, page_size=3, page_token=first.next_page_token
    )
    assert [r.segment_id for r in (*first.segments, *second.segments)] == [A, B, C, D, E]
    assert (first.next_page_token, second.next_page_token) == (str(C), "")


async def test_an_answer_that_is_too_large_is_refused_by_name(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ANSWER_SIZE_BYTES_MAX", 100)
    body = asked.SegmentsBetween(scope="s", stream="x").model_dump_json().encode()
    answer = await answer_query(world.desk, "segments_between", Envelope(body))
    assert queries.QueryFailed.model_validate_json(answer).error.code == "invalid-request"
