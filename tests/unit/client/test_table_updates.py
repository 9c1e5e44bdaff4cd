"""Updates of tables over lost answers, moves, restarts and slow stores: each is performed once."""

import asyncio

import pytest

from anabranch.client import (
    BufferFull,
    Insert,
    KeyExists,
    OutcomeUnknown,
    Put,
    TableConfig,
    Unavailable,
    Version,
)
from anabranch.client.tables import partition_writer
from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import Message, UpdateTable
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX
from anabranch.common.wire.table_columns import decode_numbers
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.table_bench import (
    held,
    lose_answers,
    numbers,
    sizes,
    table_bench,
    together,
)

ONE = TableConfig(partition_count=1)


# --- batching -----------------------------------------------------------------------------


async def test_calls_of_one_turn_of_the_loop_travel_in_one_request_per_partition() -> None:
    async with table_bench() as b, b.table() as table:
        versions = await together(*[table.put(f"{n}", "x") for n in range(64)])
        assert len(b.requests()) == 4
        assert len({str(version) for version in versions}) == 64
        assert len(b.entries()) == 64


async def test_each_call_is_a_unit_that_is_refused_alone() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        first = await table.put("b", "old")
        told = await together(
            table.put("a", "1"), table.insert("b", "new"), table.put("c", "3"),
            table.insert("a", "twice"),
        )  # fmt: skip
        assert [type(each) for each in told] == [Version, KeyExists, Version, KeyExists]
        assert str(told[1].fields["version"]) == str(first)  # type: ignore[union-attr]
        assert b.entries() == {b"a": b"1", b"b": b"old", b"c": b"3"}
        assert sizes(b) == [1, 2]
        assert len(decode_numbers(b.requests()[-1].units, "I")) == 4
        found = await table.get_many(["a", "c"])
        assert [entry.version for entry in found if entry] == [told[0], told[2]]


async def test_calls_wait_while_requests_are_in_flight_and_then_travel_together() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(requests_in_flight_max=2) as table,
        asyncio.TaskGroup() as group,
    ):
        b.fault(held)
        for n in range(2):
            group.create_task(table.put(f"first {n}", "x"))
            await until(lambda count=n + 1: len(b.requests()) == count)  # type: ignore[misc]
        for n in range(50):
            group.create_task(table.put(f"later {n}", "x"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert sizes(b) == [1, 1]
        b.fault(no_faults)
        b.store.release()
        await until(lambda: len(b.entries()) == 52)
        assert sizes(b) == [1, 1, 50]


async def test_waiting_calls_are_sent_when_an_answer_makes_room_and_not_by_a_timer() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(requests_in_flight_max=1, ack_timeout_s=1000, retry_timeout_s=1000) as table,
        asyncio.TaskGroup() as group,
    ):
        b.fault(held)
        group.create_task(table.put("first", "x"))
        await until(lambda: len(b.requests()) == 1)
        group.create_task(table.put("second", "x"))
        for _ in range(5):
            await asyncio.sleep(0)
        b.fault(no_faults)
        b.store.release()
        await until(lambda: len(b.entries()) == 2)


async def test_the_key_of_a_refused_batch_is_named_whatever_travels_before_it() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("there", "x")
        told = await together(
            table.update([Put("a", "1"), Put("b", "1")]),
            table.update([Put("c", "1"), Insert("there", "1"), Insert("d", "1")]),
        )
        assert isinstance(told[1], KeyExists)
        assert told[1].fields["key"] == "there"
        assert sizes(b) == [1, 2]


async def test_a_later_value_is_not_overtaken_by_an_earlier_one_of_the_same_call() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        left = 1

        def refuse_first(at: Direction, message: Message) -> Fault | AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, UpdateTable) and left:
                left -= 1
                return Unavailable("not now")
            return None

        b.store.fault = refuse_first
        others = [(f"{n}", "") for n in range(UPDATE_ENTRIES_MAX)]
        await table.put_many([("same", "first"), *others, ("same", "last")])
        assert b.entries()[b"same"] == b"last"


async def test_calls_with_other_times_to_live_go_into_requests_of_their_own() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await together(
            table.put("a", "1"), table.put("b", "1", ttl_ms=5), table.put("c", "1", ttl_ms=5),
            table.put("d", "1"),
        )  # fmt: skip
        assert sizes(b) == [1, 2, 1]
        found = await table.get_many("abcd")
        assert [entry.expires_ms for entry in found if entry] == [0, 5, 5, 0]


async def test_versions_of_several_lives_go_into_requests_of_their_own() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        present = await table.put("a", "1")
        stale = present._replace(segment_number=present.segment_number + 1)
        told = await together(
            table.put("b", "x"), table.replace("a", "2", present), table.insert("c", "x"),
            table.replace("a", "3", stale), table.put("d", "x"),
        )  # fmt: skip
        assert isinstance(told[3], AnabranchError)
        assert b.entries()[b"a"] == b"2"
        assert [(each.segment_number, len(decode_numbers(each.units, "I")) or 1)
                for each in b.requests()] == [
            (0, 1), (present.segment_number, 3), (stale.segment_number, 2)
        ]  # fmt: skip


async def test_calls_beyond_the_limits_of_a_request_begin_the_next() -> None:
    async with table_bench(ONE) as b, b.table(buffer_size_bytes=64 * 1024 * 1024) as table:
        await together(*[table.put(f"{n}", bytes(1_000_000)) for n in range(10)])
        assert sizes(b) == [8, 2]


# --- exactly once -------------------------------------------------------------------------


@pytest.mark.parametrize("losses", [1, 2, 5])
async def test_an_update_whose_answer_is_lost_is_sent_again_unchanged(losses: int) -> None:
    async with table_bench(ONE) as b, b.table() as table:
        b.fault(lose_answers(losses))
        version = await table.insert("apple", "5")
        assert numbers(b) == [1] * (losses + 1)
        assert len({each.client_id for each in b.requests()}) == 1
        assert sizes(b) == [1]
        entry = await table.get("apple")
        assert entry is not None
        assert entry.version == version


async def test_a_lost_refusal_is_refused_again() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("apple", "5")
        b.fault(lose_answers(1))
        with pytest.raises(KeyExists):
            await table.insert("apple", "6")
        assert b.entries() == {b"apple": b"5"}


async def test_all_unanswered_requests_are_resent_oldest_first() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(requests_in_flight_max=3) as table,
        asyncio.TaskGroup() as group,
    ):
        b.fault(held)
        for n in range(3):
            group.create_task(table.put(f"{n}", "x"))
            await until(lambda count=n + 1: len(b.requests()) == count)  # type: ignore[misc]
        b.fault(no_faults)
        for connection in tuple(b.store.connections):
            connection.drop()
        await until(lambda: len(b.requests()) == 6)
        assert numbers(b) == [1, 2, 3, 1, 2, 3]
    assert sizes(b) == [1, 1, 1]


async def test_a_restart_of_the_store_delays_updates_and_repeats_none() -> None:
    async with table_bench(ONE) as b, b.table() as table, asyncio.TaskGroup() as group:
        b.fault(held)
        pending = [group.create_task(table.insert(f"{n}", "x")) for n in range(5)]
        await until(lambda: len(b.requests()) == 1)
        b.fault(no_faults)
        await b.store.restart()
        assert len({await each for each in pending}) == 5
        assert sizes(b) == [5]


async def test_updates_follow_their_partition_to_another_store() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("a", "1")
        for n in range(6):
            b.move(0)
            await table.put("a", f"{n}")
        assert b.entries() == {b"a": b"5"}
        assert len(b.segments[0].updates) == 7


async def test_a_move_with_requests_in_flight_performs_each_once() -> None:
    async with table_bench(ONE) as b, b.table() as table, asyncio.TaskGroup() as group:
        b.fault(held)
        first = group.create_task(table.insert("a", "1"))
        await until(lambda: len(b.requests()) == 1)
        second = group.create_task(table.insert("b", "2"))
        await until(lambda: len(b.requests()) == 2)
        b.move(0)
        b.fault(no_faults)
        for connection in tuple(b.store.connections):
            connection.drop()
        assert {await first, await second} == {
            Version(0, 10, number) for number in (0, len(b.segments[0].data) // 2)
        }
        assert b.entries() == {b"a": b"1", b"b": b"2"}


async def test_an_update_waits_until_a_store_serves_the_partition() -> None:
    async with table_bench(ONE) as b:
        b.controller.away = True
        async with b.table() as table, asyncio.TaskGroup() as group:
            pending = group.create_task(table.put("a", "1"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not pending.done()
            b.controller.away = False
        assert b.entries() == {b"a": b"1"}


async def test_an_overloaded_store_is_asked_again() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        left = 3

        def overloaded(at: Direction, message: Message) -> Fault | AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, UpdateTable) and left:
                left -= 1
                return Unavailable("not now")
            return None

        b.store.fault = overloaded
        await table.insert("a", "1")
        assert numbers(b) == [1] * 4


# --- waiting and cancelling ---------------------------------------------------------------


async def test_calls_wait_for_room_and_take_their_turn() -> None:
    async with table_bench(ONE) as b, b.table(buffer_size_bytes=4000) as table:
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(table.put(f"{n}", bytes(1000))) for n in range(20)]
            await until(lambda: len(b.requests()) == 1)
            assert sizes(b) == [3], "no more fit into the buffer"
            b.fault(no_faults)
            b.store.release()
        assert len({str(call.result()) for call in calls}) == 20


async def test_a_large_call_waits_although_half_of_the_buffer_is_free() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(buffer_size_bytes=3000) as table,
        asyncio.TaskGroup() as group,
    ):
        b.fault(held)
        group.create_task(table.put("small", bytes(1000)))
        await until(lambda: len(b.requests()) == 1)
        large = group.create_task(table.put("large", bytes(2500)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (sizes(b), large.done()) == ([1], False)
        b.fault(no_faults)
        b.store.release()


async def test_a_call_for_which_there_is_no_room_in_time_fails() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(buffer_size_bytes=1500, retry_timeout_s=0.05) as table,
    ):
        b.fault(held)
        told = await together(*[table.put(f"{n}", bytes(1000)) for n in range(8)])
        assert isinstance(told[0], OutcomeUnknown | Unavailable)
        # A call may end, and give its room to the next one, just before that one's deadline.
        assert all(isinstance(each, BufferFull | OutcomeUnknown | Unavailable) for each in told[1:])
        assert any(isinstance(each, BufferFull) for each in told[1:])
        b.fault(no_faults)
        b.store.release()
        await together(table.put("a", bytes(1000)))


async def test_a_cancelled_call_that_was_not_sent_is_never_sent() -> None:
    async with table_bench(ONE) as b, b.table(requests_in_flight_max=1) as table:
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(table.put("first", "x"))
            await until(lambda: len(b.requests()) == 1)
            calls = [group.create_task(table.put(f"{n}", "x")) for n in range(3)]
            for _ in range(3):
                await asyncio.sleep(0)
            calls[1].cancel()
            await asyncio.sleep(0)
            b.fault(no_faults)
            b.store.release()
        assert first.done()
        assert set(b.entries()) == {b"first", b"0", b"2"}


async def test_the_room_of_cancelled_calls_is_given_back() -> None:
    async with table_bench(ONE) as b, b.table(buffer_size_bytes=3000) as table:
        for _ in range(10):
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(table.put(f"{n}", bytes(900))) for n in range(5)]
                await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
        await table.put("at last", bytes(2900))


@pytest.mark.parametrize("losses", [0, 1])
async def test_a_cancelled_call_never_breaks_another_one(losses: int) -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with table_bench(ONE) as b, b.table() as table:
            b.fault(lose_answers(losses))
            async with asyncio.TaskGroup() as group:
                group.create_task(cancelling.run(table.put("cancelled", "x")))
                other = group.create_task(table.insert("other", "y"))
            assert other.result().segment_id == 0
            await cancelling.run(table.put_many([("a", "x"), ("b", "x")]))
            await cancelling.run(table.get("other"))
            await table.insert("after", "z")
            entries = b.entries()
            assert (entries[b"other"], entries[b"after"]) == (b"y", b"z")

    assert await everywhere(scenario) >= 3


async def test_one_writer_of_a_partition_has_one_task_and_none_per_call() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        await table.put("a", "1")
        before = len(asyncio.all_tasks())

        async def put_without_task() -> None:
            await table.put("b", "2")
            assert len(asyncio.all_tasks()) == before

        await put_without_task()


async def test_an_idle_table_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with table_bench(ONE) as b, b.table(ack_timeout_s=0.02) as table:
        await table.put("a", "1")
        writer = table._opened.partitions._writers[0]  # type: ignore[union-attr]
        assert isinstance(writer, partition_writer.PartitionWriter)
        await until(lambda: writer._alarm is None)
