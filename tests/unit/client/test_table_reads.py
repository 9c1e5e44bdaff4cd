"""Look-ups and scans of tables: batching, order, pages, faults, cancellation."""

import asyncio
import gc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client import (
    Closed,
    Entry,
    InvalidRequest,
    JsonSerializer,
    SerializationFailed,
    Table,
    TableConfig,
    TextSerializer,
    Unavailable,
    Version,
)
from anabranch.client.tables import reads
from anabranch.common.errors import AnabranchError, BadPacket, SegmentNotFound
from anabranch.common.wire.messages import GetEntries, Message, ScanEntries, TableRead
from anabranch.common.wire.table_columns import Row, encode_rows, in_columns
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.table_bench import (
    PAIRS,
    SETTINGS,
    TABLE,
    TableBench,
    collected,
    table_bench,
    together,
)
from kit.thorough import one_in

ONE = TableConfig(partition_count=1)


def asked(b: TableBench, kind: type[Message]) -> int:
    """How many requests of this kind arrived."""
    return sum(isinstance(each, kind) for each in b.store.requests)


def held(at: Direction, message: Message) -> Fault | None:
    """Keep back answers to reads, until they are released."""
    return Fault.HOLD if at == "out" and isinstance(message, TableRead) else None


def lose(count: int) -> Any:
    """Drop the connection instead of sending the next `count` answers to reads."""
    left = count

    def rule(at: Direction, message: Message) -> Fault | None:
        nonlocal left
        if at == "out" and isinstance(message, TableRead) and left:
            left -= 1
            return Fault.DROP
        return None

    return rule


async def filled(b: TableBench, table: Table[Any, Any], count: int) -> list[bytes]:
    """Put so many entries → their keys, sorted."""
    await table.put_many([(f"key {n}", f"{n}") for n in range(count)])
    return sorted(b.entries())


# --- look-ups -----------------------------------------------------------------------------


async def test_look_ups_of_one_turn_of_the_loop_travel_in_one_request_per_partition() -> None:
    async with table_bench() as b, b.table() as table:
        keys = await filled(b, table, 64)
        found = await together(*[table.get(key) for key in keys])
        assert [entry.key for entry in found if isinstance(entry, Entry)] == keys
        assert asked(b, GetEntries) == 4


async def test_look_ups_wait_while_requests_are_in_flight_and_then_travel_together() -> None:
    async with table_bench(ONE) as b, b.table(requests_in_flight_max=1) as table:
        keys = await filled(b, table, 20)
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            group.create_task(table.get(keys[0]))
            await until(lambda: asked(b, GetEntries) == 1)
            later = [group.create_task(table.get(key)) for key in keys]
            for _ in range(20):
                await asyncio.sleep(0)
            b.fault(no_faults)
            b.store.release()
        assert [entry.key for task in later if (entry := task.result())] == keys
        assert asked(b, GetEntries) == 2


async def test_a_look_up_whose_answer_is_lost_is_asked_again() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        keys = await filled(b, table, 3)
        b.fault(lose(3))
        assert [entry.key for entry in await table.get_many(keys) if entry] == keys


async def test_a_look_up_follows_its_partition_to_another_store() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await filled(b, table, 1)
        for _ in range(3):
            b.move(0)
            assert await table.exists("key 0")


async def test_a_store_that_lacks_a_segment_is_asked_again_while_the_table_exists() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await filled(b, table, 1)
        left = 2

        def lacking(at: Direction, message: Message) -> Fault | AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, GetEntries) and left:
                left -= 1
                return SegmentNotFound("not here yet", segment=message.segment)
            return None

        b.store.fault = lacking
        assert await table.exists("key 0")
        assert asked(b, GetEntries) == 3


async def test_an_answer_with_less_than_all_rows_is_continued() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        values = [bytes([n]) * 1_000_000 for n in range(9)]
        await table.put_many([(f"{n}", value) for n, value in enumerate(values)])
        found = await table.get_many([f"{n}" for n in range(9)])
        assert [entry.value for entry in found if entry] == values
        assert asked(b, GetEntries) == 3


async def test_many_long_keys_are_looked_up_in_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "KEYS_SIZE_BYTES_MAX", 4 * 8256)
    async with table_bench(ONE) as b, b.table() as table:
        keys = [b"%d" % n + b"k" * 8000 for n in range(10)]
        await table.put_many([(key, "x") for key in keys])
        assert [entry.key for entry in await table.get_many(keys) if entry] == keys


async def test_a_look_up_that_no_store_answers_fails_in_time() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        b.store.moved.add(b.described.partitions[0].segment)
        async with asyncio.TaskGroup() as group:
            calls = together(table.get("a"), table.get_many(["b", "c"]), table.exists("d"))
            told = group.create_task(calls)
            await until(lambda: asked(b, GetEntries) > 1)
            b.give_up()
        assert [type(each) for each in told.result()] == [Unavailable] * 3
        b.store.moved.clear()
        assert await table.get("a") is None


async def test_an_answer_that_does_not_fit_its_keys_is_refused() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        segment = b.segments[0]
        for rows in (0, 3):
            answer = (
                TableRead(segment_number=1, length=0),
                encode_rows(in_columns([Row(b"", 1, 0, b"")] * rows)),
            )
            segment.answer = lambda *_, told=answer: told  # type: ignore[method-assign]
            with pytest.raises(BadPacket):
                await table.get_many(["a", "b"])


async def test_a_cancelled_look_up_never_breaks_another_one() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with table_bench(ONE) as b, b.table() as table:
            keys = await filled(b, table, 3)
            b.fault(lose(1))
            async with asyncio.TaskGroup() as group:
                group.create_task(cancelling.run(table.get(keys[0])))
                other = group.create_task(table.get(keys[1]))
            found = other.result()
            assert found is not None
            assert found.key == keys[1]
            await cancelling.run(table.get_many(keys))
            assert len(await table.get_many(keys)) == 3

    assert await everywhere(scenario) >= 2


async def test_look_ups_wait_for_room() -> None:
    async with table_bench(ONE) as b, b.table(buffer_size_bytes=500) as table:
        keys = await filled(b, table, 50)
        found = await together(*[table.get(key) for key in keys])
        assert [entry.key for entry in found if isinstance(entry, Entry)] == keys


# --- scans --------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 3, 50, None])
async def test_a_scan_merges_the_partitions_in_the_order_of_their_keys(
    page_size: int | None,
) -> None:
    async with table_bench() as b, b.table() as table:
        keys = await filled(b, table, 100)
        entries = await collected(table.entries(page_size=page_size))
        assert [entry.key for entry in entries] == keys
        assert {entry.key: entry.value for entry in entries} == b.entries()
        found = await table.get_many(keys)
        assert entries == found
        assert await collected(table.keys(page_size=page_size)) == keys


@given(
    keys=st.sets(st.binary(min_size=1, max_size=3), max_size=40),
    page_size=st.integers(1, 7),
    count=st.integers(1, 6),
    start=st.none() | st.binary(max_size=2),
    end=st.none() | st.binary(max_size=2),
)
@settings(max_examples=40 // one_in(4))
def test_a_scan_of_any_table_is_sorted_and_complete(
    keys: set[bytes], page_size: int, count: int, start: bytes | None, end: bytes | None
) -> None:
    async def play() -> None:
        async with table_bench(TableConfig(partition_count=count)) as b, b.table() as table:
            await table.put_many([(key, key) for key in keys])
            found = await collected(table.entries(start=start, end=end, page_size=page_size))
            assert [entry.key for entry in found] == [
                key for key in sorted(keys)
                if (start is None or key >= start) and (end is None or key < end)
            ]  # fmt: skip

    asyncio.run(play())


async def test_a_scan_of_nothing_yields_nothing() -> None:
    async with table_bench() as b, b.table() as table:
        assert await collected(table.entries()) == []
        await table.put("a", "1")
        before = asked(b, ScanEntries)
        assert await collected(table.entries(end="")) == []
        assert await collected(table.keys(start="b", end="a")) == []
        assert asked(b, ScanEntries) == before
        with pytest.raises(InvalidRequest):
            table.entries(page_size=0)


async def test_a_scan_without_values_has_the_keys_and_versions() -> None:
    async with table_bench() as b, b.table() as table:
        versions = await table.put_many([("a", "1"), ("b", "2")])
        entries = await collected(table.entries(values=False))
        assert [(e.key, e.value, e.version) for e in entries] == [
            (b"a", None, versions[0]), (b"b", None, versions[1]),
        ]  # fmt: skip


async def test_a_family_is_read_from_its_partition_alone() -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        await table.put_many([((p, s), p + s) for p in "abcd" for s in "xyz"])
        before = asked(b, ScanEntries)
        entries = await collected(table.entries(primary="b", start="y"))
        assert [(e.key, e.value) for e in entries] == [
            ((b"b", b"y"), b"by"), ((b"b", b"z"), b"bz"),
        ]  # fmt: skip
        assert asked(b, ScanEntries) == before + 1
        assert [key async for key in table.keys(start=("b", "z"), end="d")] == [
            (b"b", b"z"), (b"c", b"x"), (b"c", b"y"), (b"c", b"z"),
        ]  # fmt: skip


async def test_pages_that_are_lost_are_asked_for_again() -> None:
    async with table_bench() as b, b.table() as table:
        keys = await filled(b, table, 60)
        b.fault(lose(5))
        assert await collected(table.keys(page_size=4)) == keys


async def test_a_partition_that_moves_during_a_scan_is_read_to_its_end() -> None:
    async with table_bench() as b, b.table() as table:
        keys = await filled(b, table, 60)
        found = []
        async for key in table.keys(page_size=3):
            found.append(key)
            if len(found) % 10 == 0:
                b.move(len(found) // 10 % 4)
        assert found == keys


async def test_a_scan_reads_one_page_ahead_and_no_more() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await filled(b, table, 40)
        scan = table.keys(page_size=10)
        assert await anext(scan) == b"key 0"
        await until(lambda: asked(b, ScanEntries) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        for _ in range(9):
            await anext(scan)
        assert asked(b, ScanEntries) == 2
        assert len(await collected(scan)) == 30


async def test_an_entry_that_cannot_be_deserialized_is_raised_in_its_place() -> None:
    async with table_bench() as b, b.table() as raw:
        await raw.put_many([("a", "1"), ("b", "wrong"), ("c", "3")])
        async with b.client.table(
            TABLE, SETTINGS, key=TextSerializer(), value=JsonSerializer()
        ) as table:
            scan = table.entries()
            assert (await anext(scan)).value == 1
            with pytest.raises(SerializationFailed):
                await anext(scan)
            assert [entry.key async for entry in scan] == ["c"]


async def test_a_scan_continues_after_a_failure_and_after_a_cancellation() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        keys = await filled(b, table, 9)
        scan = table.keys(page_size=3)
        found = [await anext(scan)]
        await until(lambda: asked(b, ScanEntries) == 2)
        b.store.moved.add(b.described.partitions[0].segment)
        found += [await anext(scan) for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            told = group.create_task(together(anext(scan)))
            await until(lambda: asked(b, ScanEntries) > 4)
            b.give_up()
        assert isinstance(told.result()[0], Unavailable)
        b.store.moved.clear()
        b.fault(held)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(scan)
        b.fault(no_faults)
        b.store.release()
        assert found + await collected(scan) == keys


async def test_a_scan_may_be_left_and_ends_with_its_table() -> None:
    async with table_bench() as b:
        async with b.table() as table:
            keys = await filled(b, table, 40)
            async for key in table.keys(page_size=2):
                assert key == keys[0]
                break
            scan, arrow = table.keys(page_size=2), table.scan_arrow(page_size=2)
            await anext(scan)
            await anext(arrow)
            dropped = table.keys()
            dropped.close()
            with pytest.raises(Closed):
                await anext(dropped)
        for each in (scan, arrow):
            with pytest.raises(Closed):
                await collected(each)


async def test_closing_a_table_ends_the_wait_for_a_page() -> None:
    async with table_bench() as b:
        table = await b.table().open()
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(together(anext(table.entries())))
            await until(lambda: asked(b, ScanEntries) == 4)
            gc.collect()
            await table.close()
        assert isinstance((await waiting)[0], Closed)


async def test_a_page_that_makes_no_progress_is_refused() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        answers = iter(
            [
                (TableRead(segment_number=1, length=0, more=True), encode_rows(in_columns([]))),
                *[(TableRead(segment_number=1, length=0, more=True),
                   encode_rows(in_columns([Row(b"a", 1, 0, b"")])))] * 2,
            ]
        )  # fmt: skip
        b.segments[0].answer = lambda *_: next(answers)  # type: ignore[method-assign]
        with pytest.raises(BadPacket):
            await anext(table.entries())
        with pytest.raises(BadPacket):
            await collected(table.entries())


# --- Arrow --------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [7, None])
async def test_entries_are_arrow_columns(page_size: int | None) -> None:
    async with table_bench() as b, b.table() as table:
        await filled(b, table, 50)
        await table.put("expires", "x", ttl_ms=5)
        batches = await collected(table.scan_arrow(page_size=page_size))
        whole = pa.Table.from_batches(batches)
        whole.validate(full=True)
        rows = [{**row, "version": Version(**row["version"])} for row in whole.to_pylist()]
        assert sorted(Entry(**row) for row in rows) == await collected(table.entries())
        assert len(batches) >= 4


async def test_an_arrow_scan_has_the_range_of_an_ordinary_one() -> None:
    async with table_bench() as b, b.table() as table:
        await filled(b, table, 50)
        batches = await collected(table.scan_arrow(prefix="key 1"))
        keys = [key for batch in batches for key in batch.column("key").to_pylist()]
        assert sorted(keys) == await collected(table.keys(prefix="key 1"))
        assert await collected(table.scan_arrow(end="")) == []
