"""Materialised views by the client, on a controller and stores in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.client import (
    Closed,
    Event,
    InvalidRequest,
    InvalidSetting,
    JsonSerializer,
    ReaderGroupNotFound,
    ReaderSettings,
    StreamState,
    TableConfig,
    TableNotFound,
    TableSettings,
    View,
    ViewMismatch,
    ViewSettings,
)
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.times.window import Place
from anabranch.client.views.goal import has_reached
from anabranch.common.contracts.queries import SegmentInStream
from kit.blocking_bench import blocking_bench
from kit.client_bench import READER, STREAM, Bench, bench

GROUP, TABLE = "plant/counters", "plant/counts"
SETTINGS = ViewSettings(
    reading=READER, table=TableSettings(retry_timeout_s=5.0, ack_timeout_s=2.0, wait_ms=50)
)


def view(b: Bench, **changes: Any) -> View[Any, str, int]:
    """A view that counts the events of each key."""
    given: dict[str, Any] = {
        "group": GROUP,
        "table": TABLE,
        "key": lambda event: event.key,
        "fold": lambda row, _: (row or 0) + 1,
        "value": JsonSerializer(),
        "create": True,
        "settings": SETTINGS,
    }
    return b.client.view(STREAM, **(given | changes))


async def write(b: Bench, *keys: str) -> None:
    """One event for each key."""
    async with b.client.writer(STREAM) as writer:
        for key in keys:
            writer.write(b"1", key=key)


async def rows(b: Bench, table: str = TABLE) -> Mapping[str, Any]:
    async with b.client.table(table, value=JsonSerializer()) as opened:
        return {entry.key.decode(): entry.value async for entry in opened.entries()}


async def test_a_view_counts_the_events_of_each_key_and_goes_on_where_it_was() -> None:
    async with bench(2) as b:
        await write(b, *"abacab")
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
            assert await rows(b) == {"a": 3, "b": 2, "c": 1}
            await write(b, *"ad")
            await counts.run(until_caught_up=True)
        await write(b, *"ab")
        async with view(b, create=False) as counts:
            await counts.run(until_caught_up=True)
            status = await counts.status()
        assert await rows(b) == {"a": 5, "b": 3, "c": 1, "d": 1}
        assert (status.lag.bytes, status.folded, status.saved, status.skipped) == (0, 2, 2, 0)
        assert status.conflicts == 0


async def test_a_view_of_an_empty_stream_is_caught_up_at_once() -> None:
    async with bench() as b, view(b) as counts:
        await counts.run(until_caught_up=True)
        assert await rows(b) == {}


async def test_a_view_runs_until_it_is_cancelled() -> None:
    async with bench() as b, view(b) as counts, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(counts.run())
        await write(b, *"ab")
        while await rows(b) != {"a": 1, "b": 1}:
            assert not running.done()
            await asyncio.sleep(0)
        running.cancel()


async def test_a_view_of_a_sealed_stream_ends() -> None:
    async with bench(2) as b, view(b) as counts:
        await write(b, *"abc")
        b.store.seal(*b.controller.segment_names("plant", "sensors"))
        b.stream.state = StreamState.SEALED
        await counts.run()
        assert await rows(b) == {"a": 1, "b": 1, "c": 1}


async def test_a_view_follows_a_scale() -> None:
    async with bench() as b, view(b) as counts:
        await write(b, *"aabbcc")
        for _ in b.scale_to(3):
            pass
        await write(b, *"abcd")
        await counts.run(until_caught_up=True)
        assert await rows(b) == {"a": 3, "b": 3, "c": 3, "d": 1}


async def test_serializers_are_those_of_payloads_keys_and_rows() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, serializer=JsonSerializer()) as writer:
            for number in range(5):
                writer.write({"of": number % 2, "n": number})
        await b.client.tables.create(TABLE, TableConfig(secondary_key_size=None))

        def fold(row: list[int] | None, event: Event[dict[str, int]]) -> list[int]:
            return [*(row or []), event.payload["n"]]

        numbers = view(
            b,
            key=lambda event: ("parity", event.payload["of"]),
            fold=fold,
            serializer=JsonSerializer(),
            key_serializer=JsonSerializer(),
        )
        async with numbers:
            await numbers.run(until_caught_up=True)
        async with b.client.table(TABLE, key=JsonSerializer(), value=JsonSerializer()) as table:
            found = {entry.key: entry.value async for entry in table.entries()}
        assert found == {("parity", 0): [0, 2, 4], ("parity", 1): [1, 3]}


async def test_rows_are_bytes_without_a_serializer() -> None:
    async with bench() as b:
        await write(b, *"aa")
        async with view(b, value=None, fold=lambda row, _: (row or b"") + b".") as dots:
            await dots.run(until_caught_up=True)
        async with b.client.table(TABLE) as table:
            found = await table.get("a")
            assert found is not None
            assert found.value == b".."


async def test_a_reset_to_an_earlier_place_changes_no_row() -> None:
    async with bench(2) as b:
        await write(b, *"abcab")
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
            await b.client.reader_groups.reset(GROUP)
            await write(b, "a")
            await counts.run(until_caught_up=True)
            assert (await counts.status()).skipped == 5
        assert await rows(b) == {"a": 3, "b": 2, "c": 1}


async def test_a_reset_while_a_view_runs_lets_it_join_again() -> None:
    async with bench() as b, view(b) as counts, asyncio.TaskGroup() as tasks:
        await write(b, "a")
        running = tasks.create_task(counts.run())
        while not await rows(b):
            assert not running.done()
        await b.client.reader_groups.reset(GROUP)
        assert (await b.client.reader_group(GROUP).status()).generation == 1  # tells the readers
        await write(b, "a")
        while (await rows(b)) != {"a": 2}:
            assert not running.done()
            await asyncio.sleep(0)
        running.cancel()


async def test_a_group_that_is_created_again_changes_no_row() -> None:
    async with bench() as b:
        await write(b, *"aab")
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
        await b.client.reader_groups.delete(GROUP)
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
        assert await rows(b) == {"a": 2, "b": 1}


async def test_a_table_without_the_view_is_refused_once_the_group_has_read() -> None:
    async with bench() as b:
        await write(b, *"aab")
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
        with pytest.raises(ViewMismatch):
            await view(b, table="plant/another").__aenter__()
        async with view(b, table="plant/another", group="plant/another") as counts:
            await counts.run(until_caught_up=True)
        assert await rows(b, "plant/another") == {"a": 2, "b": 1}


async def test_a_view_that_began_and_never_ran_begins_again() -> None:
    async with bench() as b:
        async with view(b):
            pass
        await write(b, "a")
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
        assert await rows(b) == {"a": 1}


async def test_a_group_of_another_stream_is_refused() -> None:
    async with bench() as b:
        await b.client.streams.create("plant/other")
        await b.client.reader_groups.create(GROUP, streams=["plant/other"])
        with pytest.raises(InvalidRequest, match="does not read the stream"):
            await view(b).__aenter__()


async def test_nothing_is_created_unless_it_is_asked_for() -> None:
    async with bench() as b:
        with pytest.raises(TableNotFound):
            await view(b, create=False).__aenter__()
        await b.client.tables.create(TABLE)
        with pytest.raises(ReaderGroupNotFound):
            await view(b, create=False).__aenter__()


async def test_an_error_of_the_fold_ends_the_run_and_a_corrected_one_continues() -> None:
    def fold(row: int | None, event: Event) -> int:
        return (row or 0) + 1 // (event.key != "b")

    async with bench() as b:
        await write(b, *"aab")
        async with view(b, fold=fold) as counts:
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    await counts.run()
        async with view(b) as counts:
            await counts.run(until_caught_up=True)
        assert await rows(b) == {"a": 2, "b": 1}


async def test_a_view_runs_once_at_a_time_and_only_while_it_is_open() -> None:
    async with bench() as b:
        counts = view(b)
        with pytest.raises(Closed):
            await counts.run()
        async with counts, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(counts.run())
            await asyncio.sleep(0)
            with pytest.raises(InvalidRequest, match="running already"):
                await counts.run()
            running.cancel()
        with pytest.raises(Closed):
            await counts.run()


async def test_a_view_that_is_closed_ends_its_run() -> None:
    async with bench() as b, view(b) as counts, run_of(counts) as running:
        while not await b.client.reader_group(GROUP).readers():
            assert not running.done()
        await counts.close()
        with pytest.raises(Closed):
            await running


@asynccontextmanager
async def run_of(counts: View[Any, str, int]) -> AsyncIterator[asyncio.Future[None]]:
    """The view's run, whose error is for the test."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await counts.run()
        except Closed as error:
            ended.set_exception(error)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        yield ended
        task.cancel()


@pytest.mark.parametrize(
    "wrong", [{"round_events": 0}, {"cache_size_bytes": 0}, {"save_interval_s": 0.0}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ViewSettings(**wrong)


def test_the_settings_of_reading_and_of_the_table_are_those_of_the_client() -> None:
    assert (ViewSettings().reading, ViewSettings().table) == (ReaderSettings(), TableSettings())


# --- caught up -----------------------------------------------------------------------------------


def segment(segment_id: int, start: float, end: float) -> SegmentInStream:
    return SegmentInStream(segment_id=segment_id, name="", key_start=start, key_end=end)


TAIL = [(segment(2, 0.0, 0.5), Position(100)), (segment(3, 0.5, 1.0), Position(0))]


@pytest.mark.parametrize(
    ("places", "is_reached"),
    [
        ([Place(2, 0.0, 0.5, 100), Place(3, 0.5, 1.0, 0)], True),
        ([Place(2, 0.0, 0.5, 100, 3), Place(3, 0.5, 1.0, 700)], True),
        ([Place(2, 0.0, 0.5, 99, 3), Place(3, 0.5, 1.0, 0)], False),
        ([Place(2, 0.0, 0.5, 100), Place(1, 0.5, 1.0, 10_000)], False),
        ([Place(1, 0.0, 1.0, 10_000)], False),
        ([Place(4, 0.0, 1.0, 0)], True),
        ([Place(2, 0.0, 0.5, 100), Place(3, 0.5, 1.0, 5), Place(4, 0.0, 1.0, -1)], True),
        ([Place(2, 0.0, 0.5, 50), Place(3, 0.5, 1.0, 5), Place(4, 0.0, 1.0, -1)], False),
    ],
)
def test_places_at_or_behind_a_tail_for_every_key_have_reached_it(
    places: list[Place], is_reached: bool
) -> None:
    assert has_reached(places, TAIL) == is_reached


def test_a_blocking_view_runs_until_it_is_caught_up() -> None:
    with blocking_bench() as bench, bench.client.writer(STREAM) as writer:
        for key in "aab":
            writer.append(b"1", key=key)
        with bench.client.view(
            STREAM, group=GROUP, table=TABLE, create=True, settings=SETTINGS,
            key=lambda event: event.key, fold=lambda row, _: (row or 0) + 1, value=JsonSerializer(),
        ) as counts:  # fmt: skip
            counts.run(until_caught_up=True)
            assert counts.status().folded == 3
        with bench.client.table(TABLE, value=JsonSerializer()) as table:
            assert table.get("a").value == 2
