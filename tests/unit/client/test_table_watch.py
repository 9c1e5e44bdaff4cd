"""Watches of tables: snapshots, changes, positions, compaction, seals."""

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client import (
    Change,
    Closed,
    InvalidPosition,
    InvalidRequest,
    JsonSerializer,
    Put,
    Remove,
    SerializationFailed,
    TableConfig,
    TablePosition,
    TextSerializer,
    Version,
    VersionCompacted,
    Watch,
)
from anabranch.client.tables.position import Place
from anabranch.common.errors import CorruptBlock
from anabranch.common.wire.messages import DescribeTable, Message, ReadSegment, Request, SegmentRead
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault
from kit.table_bench import SETTINGS, TABLE, TableBench, collected, table_bench, together

ONE = TableConfig(partition_count=1)
Seen = Change[Any, Any]


async def take(watch: Watch[Any, Any], count: int) -> list[Seen]:
    """The next changes."""
    async with asyncio.timeout(5):
        return [await anext(watch) for _ in range(count)]


def told(changes: list[Seen]) -> list[tuple[bytes, bytes | None]]:
    """(key, value) of the changes."""
    return [(change.key, change.value) for change in changes]


async def test_a_watch_from_now_on_yields_every_update_in_its_order() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("before", "x")
        async with table.watch("now") as watch:
            b.segments[0].now_ms = 77
            first = await table.put("a", "1")
            await table.put("a", "2", ttl_ms=5)
            await table.remove("a")
            changes = await take(watch, 3)
        assert told(changes) == [(b"a", b"1"), (b"a", b"2"), (b"a", None)]
        assert [change.removed for change in changes] == [False, False, True]
        assert [change.expires_ms for change in changes] == [0, 82, 0]
        assert [change.time_ms for change in changes] == [77] * 3
        assert changes[0].version == first


async def test_a_change_has_the_version_that_the_update_returned() -> None:
    async with table_bench() as b, b.table() as table:
        async with table.watch("now") as watch:
            versions = {
                *await table.put_many([(f"{n}", "x") for n in range(20)]),
                await table.remove("5"),
            }
            changes = await take(watch, 21)
        assert {change.version for change in changes} == versions


async def test_a_watch_begins_with_the_entries_and_goes_on_with_the_changes() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many([(f"{n}", "old") for n in range(20)])
        await table.remove("3")
        async with table.watch() as watch:
            entries = await take(watch, 19)
            assert {(change.key, change.value) for change in entries} == set(b.entries().items())
            assert {change.time_ms for change in entries} == {0}
            await table.put("3", "new")
            assert told(await take(watch, 1)) == [(b"3", b"new")]


async def test_a_watch_from_the_earliest_change_yields_all_that_the_log_has() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("a", "1")
        await together(table.insert("a", "refused"), table.put("b", "2"))
        await table.remove("a")
        async with table.watch("earliest") as watch:
            changes = await take(watch, 3)
        assert told(changes) == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


async def test_changes_during_the_snapshot_are_not_missed_and_not_repeated() -> None:
    async with table_bench(ONE) as b, b.table(page_size=2) as table:
        await table.put_many([(f"{n}", "old") for n in range(8)])
        async with table.watch() as watch:
            first = await take(watch, 2)
            for _ in range(5):
                await table.put("5", "newer")
            newest = await table.put("5", "newest")
            await table.remove("6")
            await table.put("0", "again")
            rest: list[Seen] = []
            while not rest or rest[-1].key != b"0":
                rest += await take(watch, 1)
        changes = first + rest
        assert len({change.version for change in changes}) == len(changes)
        final = {change.key: change.value for change in changes}
        assert {key: value for key, value in final.items() if value} == b.entries()
        last = [change for change in changes if change.key == b"5"][-1]
        assert (last.version, last.value) == (newest, b"newest")


async def test_an_older_value_never_follows_a_newer_one() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        watch = table.watch()
        await table.put("a", "1")
        described = b.segments[0].answer
        grown = False

        def growing(request: Request, payload: bytes) -> tuple[Message, bytes]:
            """Between the look at the length and the scan, the entry changes twice."""
            nonlocal grown
            answer = described(request, payload)
            if isinstance(request, DescribeTable) and not grown:
                grown = True
                for value in ("2", "3"):
                    table._parts.runtime.tasks.create_task(table.put("a", value))
            return answer

        b.segments[0].answer = growing  # type: ignore[method-assign]
        values = [change.value for change in await take(watch, 1)]
        await table.put("a", "4")
        while values[-1] != b"4":
            values += [change.value for change in await take(watch, 1)]
        assert values == sorted(values)  # type: ignore[type-var]


# --- positions ----------------------------------------------------------------------------


async def test_a_watch_continues_exactly_after_any_change() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many([(f"{n}", "x") for n in range(20)])
        await table.put_many([(f"{n}", "y") for n in range(20)])
        await table.remove("7")
        b.seal()
        changes = await collected(table.watch("earliest"))
        assert len(changes) == 41
        for at, change in enumerate(changes):
            position = TablePosition.parse(str(change.position))
            assert position == change.position
            assert hash(position) == hash(change.position)
            for start in (position, str(position)):
                rest = await collected(table.watch(start))
                expected = changes[at + 1 :]
                assert by_partition(rest) == by_partition(expected)


def by_partition(changes: list[Seen]) -> dict[int, list[tuple[Any, Any, Any]]]:
    """The changes of each partition, in their order."""
    found: dict[int, list[tuple[Any, Any, Any]]] = {}
    for change in changes:
        seen = (change.key, change.value, change.version)
        found.setdefault(change.version.segment_id, []).append(seen)
    return found


@pytest.mark.parametrize("page_size", [1, 3, 100])
async def test_a_watch_continues_within_its_snapshot(page_size: int) -> None:
    async with table_bench() as b, b.table(page_size=page_size) as table:
        await table.put_many([(f"{n}", "x") for n in range(15)])
        b.seal()
        changes = await collected(table.watch())
        assert len(changes) == 15
        for at, change in enumerate(changes):
            rest = await collected(table.watch(change.position))
            assert by_partition(rest) == by_partition(changes[at + 1 :])


async def test_the_position_of_a_watch_is_that_after_its_last_change() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        watch = table.watch("now")
        with pytest.raises(InvalidRequest):
            assert watch.position
        async with watch:
            before = watch.position
            await table.put("a", "1")
            (change,) = await take(watch, 1)
            assert watch.position == change.position != before
            assert table.watch(before).position == before
            assert "TablePosition('shop/stock'" in repr(before)
        async with table.watch(before) as again:
            assert told(await take(again, 1)) == [(b"a", b"1")]


async def test_a_position_of_another_table_or_life_is_refused() -> None:
    async with table_bench(ONE) as b:
        async with b.table() as table:
            await table.put("a", "1")
            (change,) = await take(table.watch("earliest"), 1)
            for wrong in ("", "tomorrow", "eJw=", str(change.version)):
                with pytest.raises(InvalidRequest):
                    table.watch(wrong)
            with pytest.raises(InvalidRequest):
                table.watch(TablePosition("shop/other", 1, change.position.places))
            with pytest.raises(InvalidPosition):
                table.watch(TablePosition(TABLE, 1, {}))
            negative = TablePosition(TABLE, 1, {0: Place(-1)})
            with pytest.raises(InvalidRequest):
                TablePosition.parse(str(negative))
        b.recreate(ONE)
        async with b.table() as table:
            with pytest.raises(InvalidRequest):
                table.watch(change.position)


@pytest.mark.parametrize("place", [Place(5), Place(10_000), Place(0, 3)])
async def test_a_place_that_no_change_has_is_refused(place: Place) -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put_many([("a", "1"), ("b", "2")])
        with pytest.raises(InvalidPosition):
            await take(table.watch(TablePosition(TABLE, 1, {0: place})), 1)


# --- compaction and endings ---------------------------------------------------------------


async def test_compaction_is_not_a_change() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        versions = await table.put_many([("a", "1"), ("b", "2")])
        async with table.watch("now") as watch:
            b.segments[0].compact(len(b.segments[0].data))
            await table.put("c", "3")
            assert told(await take(watch, 1)) == [(b"c", b"3")]
        async with table.watch() as watch:
            entries = await take(watch, 3)
        assert [change.version for change in entries[:2]] == list(versions)


async def test_changes_that_compaction_has_dropped_are_missed_by_name() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("a", "1")
        (change,) = await take(table.watch("earliest"), 1)
        await table.put("a", "2")
        middle = len(b.segments[0].data)
        await table.put("a", "3")
        b.segments[0].compact(middle)
        with pytest.raises(VersionCompacted) as missed:
            await take(table.watch(change.position), 1)
        fields = missed.value.fields
        assert (fields["table"], fields["partition"], fields["start"]) == (TABLE, 0, middle)
        watch = table.watch("earliest")
        assert told(await take(watch, 1)) == [(b"a", b"3")]


async def test_a_position_before_the_oldest_change_that_is_left_is_good() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put_many([("a", "1"), ("b", "1")])
        changes = await take(table.watch("earliest"), 2)
        await table.put_many([("a", "2"), ("b", "2")])
        b.segments[0].compact(b.segments[0].boundaries[0])
        again = await take(table.watch(changes[-1].position), 2)
        assert told(again) == [(b"a", b"2"), (b"b", b"2")]
        with pytest.raises(VersionCompacted):
            await take(table.watch(changes[0].position), 1)


async def test_a_failed_watch_stops_reading_the_other_partitions() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many([(f"{n}", "x") for n in range(8)])
        start = TablePosition(TABLE, 1, dict.fromkeys(range(4), Place(0)))
        b.segments[0].compact(len(b.segments[0].data))
        watch = table.watch(start)
        with pytest.raises(VersionCompacted):
            await take(watch, 20)
        await until(lambda: not watch._tasks)


async def test_a_failed_watch_stays_failed() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many([(f"{n}", "x") for n in range(8)])
        position = (await take(table.watch("earliest"), 1))[0].position
        for segment in b.segments:
            segment.compact(len(segment.data))
        watch = table.watch(TablePosition(TABLE, 1, dict.fromkeys(position.places, Place(0))))
        for _ in range(2):
            with pytest.raises(VersionCompacted):
                await take(watch, 1)


async def test_the_watch_of_a_sealed_table_ends_after_its_last_change() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many([(f"{n}", "x") for n in range(8)])
        watch = table.watch()
        assert len(await take(watch, 8)) == 8
        await table.put("last", "x")
        b.seal()
        assert told(await collected(watch)) == [(b"last", b"x")]
        assert await collected(watch) == []
        assert await collected(table.watch("now")) == []


async def test_a_watch_survives_lost_connections_and_moves() -> None:
    async with table_bench(ONE) as b, b.table() as table, table.watch("now") as watch:
        left = 3

        def lose_reads(at: Direction, message: Message) -> Fault | None:
            nonlocal left
            if at == "out" and isinstance(message, SegmentRead) and left:
                left -= 1
                return Fault.DROP
            return None

        b.fault(lose_reads)
        for n in range(12):
            await table.put("a", f"{n}")
            if n % 3 == 0:
                b.move(0)
            if n == 6:
                await b.store.restart()
            assert told(await take(watch, 1)) == [(b"a", b"%d" % n)]


async def test_damage_in_the_log_ends_a_watch() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("a", "1")
        await table.put("b", "2")
        b.segments[0].data[-1] ^= 1
        watch = table.watch("earliest")
        assert told(await take(watch, 1)) == [(b"a", b"1")]
        with pytest.raises(CorruptBlock) as damaged:
            await take(watch, 1)
        assert damaged.value.fields["offset"] == b.segments[0].boundaries[0]


async def test_a_change_that_cannot_be_deserialized_is_raised_in_its_place() -> None:
    async with table_bench(ONE) as b, b.table() as raw:
        await raw.put_many([("a", "1"), ("b", "wrong"), ("c", "3")])
        await raw.remove("a")
        async with b.client.table(
            TABLE, SETTINGS, key=TextSerializer(), value=JsonSerializer()
        ) as table:
            watch = table.watch("earliest")
            assert (await take(watch, 1))[0].value == 1
            with pytest.raises(SerializationFailed):
                await take(watch, 1)
            rest = await take(watch, 2)
            assert [(change.key, change.value, change.removed) for change in rest] == [
                ("c", 3, False), ("a", None, True),
            ]  # fmt: skip


async def test_a_batch_is_seen_whole_and_in_its_order() -> None:
    async with table_bench(ONE) as b, b.table() as table, table.watch("now") as watch:
        await table.update([Put("a", "1"), Put("b", "2"), Remove("a"), Put("a", "3")])
        changes = await take(watch, 4)
        assert told(changes) == [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"a", b"3")]


# --- life ---------------------------------------------------------------------------------


async def test_a_closed_watch_ends_the_wait_of_its_consumer() -> None:
    async with table_bench() as b:
        table = await b.table().open()
        watches = [table.watch("now") for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(together(anext(each))) for each in watches]
            await until(lambda: reads(b) >= 8)
            await watches[0].close()
            await table.close()
        for each in waiting:
            assert isinstance((await each)[0], Closed)
        for watch in watches:
            await watch.close()
            with pytest.raises(Closed):
                await anext(watch)


def reads(b: TableBench) -> int:
    """How many reads of segments arrived."""
    return sum(isinstance(each, ReadSegment) for each in b.store.requests)


async def test_a_watch_that_is_dropped_stops_reading() -> None:
    async with table_bench() as b, b.table() as table:
        tasks = len(asyncio.all_tasks())
        await table.put_many([(f"{n}", "x") for n in range(8)])
        during = 0
        async for _ in table.watch():
            during = len(asyncio.all_tasks())
            break
        gc.collect()
        await until(lambda: len(asyncio.all_tasks()) <= tasks + 4)
        assert during > tasks + 4


async def test_a_cancelled_wait_for_a_change_loses_none() -> None:
    async with table_bench(ONE) as b, b.table() as table, table.watch("now") as watch:
        for n in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(watch)
            await table.put("a", f"{n}")
            assert told(await take(watch, 1)) == [(b"a", b"%d" % n)]


async def test_a_watch_holds_no_more_than_its_share_of_changes() -> None:
    async with table_bench(ONE) as b, b.table(read_ahead_bytes=8192) as table:
        for n in range(40):
            await table.put("a", bytes(1000) + b"%d" % n)
        watch = table.watch("earliest")
        await take(watch, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert reads(b) <= 3, "one is yielded, one waits, one is under way"
        assert len(await take(watch, 39)) == 39


async def test_changes_that_were_read_are_there_without_waiting() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put_many([("a", "1"), ("b", "2")])
        watch = table.watch("earliest")
        assert watch.next_nowait() is None
        await take(watch, 1)
        change = watch.next_nowait()
        assert change is not None
        assert (change.key, watch.next_nowait()) == (b"b", None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.none() | st.sampled_from("xyz"),
            st.sampled_from(["", "", "move", "lose"]),
        ),
        max_size=20,
    ),
    st.integers(1, 3),
)
@settings(max_examples=30)
def test_a_watch_from_the_beginning_always_ends_in_the_state_of_the_table(
    steps: list[tuple[str, str | None, str]], count: int
) -> None:
    async def play() -> None:
        config = TableConfig(partition_count=count)
        async with table_bench(config) as b, b.table(page_size=2) as table:
            replica: dict[bytes, bytes] = {}
            async with asyncio.TaskGroup() as group:
                group.create_task(follow(table.watch(), replica))
                for key, value, event in steps:
                    happen(b, event)
                    if value is None:
                        await table.remove(key)
                    else:
                        await table.put(key, value)
                b.seal()
            assert replica == b.entries()

    asyncio.run(play())


def happen(b: TableBench, event: str) -> None:
    """Let something happen to the stores."""
    if event == "move":
        b.move(0)
    elif event == "lose":
        for store in (b.store, b.other):
            for connection in tuple(store.connections):
                connection.drop()


async def follow(watch: Watch[Any, Any], replica: dict[bytes, bytes]) -> None:
    """Apply every change; no change of a key comes after a newer one."""
    newest: dict[bytes, Version] = {}
    async for change in watch:
        assert newest.get(change.key, change.version) <= change.version
        newest[change.key] = change.version
        if change.removed:
            replica.pop(change.key, None)
        else:
            assert change.value is not None
            replica[change.key] = change.value
