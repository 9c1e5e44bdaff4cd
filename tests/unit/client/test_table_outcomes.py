"""Updates of tables that fail: their outcomes are told as exactly as they can be known."""

import asyncio

import pytest

from anabranch.client import (
    Closed,
    OutcomeUnknown,
    TableConfig,
    TableNotFound,
    TableSealed,
    Unavailable,
    Version,
)
from anabranch.client.tables.partition_writer import PartitionWriter
from anabranch.common.errors import AnabranchError, InvalidRequest, SegmentNotFound
from anabranch.common.wire.messages import REQUESTS_REMEMBERED, Message, TableUpdated, UpdateTable
from anabranch.common.wire.table import encode_update
from anabranch.common.wire.table_columns import Refusal, encode_refusals
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.table_bench import (
    SETTINGS,
    dropped,
    held,
    lose_answers,
    numbers,
    sizes,
    table_bench,
    together,
)

ONE = TableConfig(partition_count=1)
IMPATIENT = {"ack_timeout_s": 0.2}
"""Looks at the time every 50 ms."""
BEYOND = encode_refusals([Refusal(9, 0, 0)])


# --- unknown outcomes ---------------------------------------------------------------------


async def test_an_update_without_an_answer_in_time_has_an_unknown_outcome() -> None:
    async with table_bench(ONE) as b, b.table(**IMPATIENT) as table:
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(together(table.put("a", "1"), table.put("b", "2")))
            await until(lambda: sizes(b) == [2])
            b.give_up()
        assert [type(each) for each in told.result()] == [OutcomeUnknown] * 2
        b.fault(no_faults)
        b.store.release()
        entry = await table.get("a")
        assert entry is not None, "it was performed after all"


async def test_a_late_request_cannot_undo_a_newer_update() -> None:
    async with table_bench(ONE) as b, b.table(**IMPATIENT) as table:
        b.fault(dropped)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(together(table.put("a", "old")))
            await until(lambda: len(b.requests()) > 1)
            b.give_up()
        assert isinstance(told.result()[0], OutcomeUnknown)
        b.fault(no_faults)
        (late, *_) = b.requests()
        await table.put("a", "new")
        assert numbers(b)[-1] == 1 + REQUESTS_REMEMBERED
        number, client = late.request_number, late.client_id
        block = encode_update([b"a"], [b"old"], client_id=client, request_number=number)
        with pytest.raises(OutcomeUnknown):
            b.segments[0].answer(late, block)
        assert b.entries() == {b"a": b"new"}


async def test_newer_updates_wait_until_older_ones_are_settled_before_they_leave_a_gap() -> None:
    async with (
        table_bench(ONE) as b,
        b.table(**IMPATIENT, requests_in_flight_max=2) as table,
        asyncio.TaskGroup() as group,
    ):
        b.fault(held)
        first = group.create_task(together(table.put("first", "x")))
        await until(lambda: len(b.requests()) == 1)
        b.clock.skipped_s += SETTINGS.retry_timeout_s / 2
        second = group.create_task(together(table.put("second", "x")))
        await until(lambda: len(b.requests()) == 2)
        b.clock.skipped_s += SETTINGS.retry_timeout_s / 2
        assert isinstance((await first)[0], OutcomeUnknown)
        third = group.create_task(table.put("third", "x"))
        b.fault(no_faults)
        b.store.release()
        assert isinstance((await second)[0], Version)
        await third
        assert list(dict.fromkeys(numbers(b))) == [1, 2, 1 + REQUESTS_REMEMBERED]


async def test_an_update_that_no_store_took_has_failed_for_certain() -> None:
    async with table_bench(ONE) as b:
        b.controller.away = True
        async with b.table(**IMPATIENT) as table, asyncio.TaskGroup() as group:
            told = group.create_task(together(table.put("a", "1")))
            for _ in range(20):
                await asyncio.sleep(0)
            b.give_up()
            assert isinstance((await told)[0], Unavailable)
            b.controller.away = False
            await table.put("a", "2")
            assert numbers(b) == [1]


async def test_a_wrong_host_has_not_performed_anything() -> None:
    async with table_bench(ONE) as b, b.table(**IMPATIENT) as table:
        await table.put("a", "1")
        b.store.moved.add(b.described.partitions[0].segment)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(together(table.put("a", "2")))
            writer = table._open().partitions._writers[0]
            await until(lambda: len(b.requests()) > 2 and not is_awaiting(writer))
            b.give_up()
            writer._look_at_the_time()
        assert isinstance(told.result()[0], Unavailable)
        assert b.entries() == {b"a": b"1"}


def is_awaiting(writer: PartitionWriter) -> bool:
    """Whether a request has been sent and not been answered."""
    return any(request.replied is not None for request in writer._in_flight.values())


async def test_an_answer_at_the_very_deadline_is_told_to_nobody() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        wrong: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(what))
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(together(table.put("a", "1")))
            await until(lambda: sizes(b) == [1])
            writer = table._opened.partitions._writers[0]  # type: ignore[union-attr]
            (request,) = writer._in_flight.values()
            request.deadline_s = 0
            assert request.replied is not None
            request.replied.set_result((TableUpdated(segment_number=10, version=0), b""))
            writer._look_at_the_time()
        assert isinstance(told.result()[0], OutcomeUnknown)
        assert wrong == []


async def test_an_outcome_that_the_store_forgot_is_unknown() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        told = OutcomeUnknown("forgotten")
        b.store.fault = lambda at, m: told if at == "in" and isinstance(m, UpdateTable) else None
        with pytest.raises(OutcomeUnknown, match="forgotten"):
            await table.put("a", "1")
        b.store.fault = no_faults
        await table.put("a", "2")


async def test_a_store_that_stops_answering_is_connected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with table_bench(ONE) as b, b.table(ack_timeout_s=0.04) as table:
        first = True

        def silent(at: Direction, message: Message) -> Fault | None:
            nonlocal first
            if at == "out" and isinstance(message, TableUpdated) and first:
                first = False
                return Fault.HOLD
            return None

        b.fault(silent)
        await table.insert("a", "1")
        assert numbers(b) == [1, 1]
        assert b.store.connection_count == 2


async def test_a_request_that_the_store_refuses_fails_its_calls_alone() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        wrong = InvalidRequest("no")
        b.store.fault = lambda at, m: wrong if at == "in" and isinstance(m, UpdateTable) else None
        told = await together(table.put("a", "1"), table.put("b", "1"))
        assert [type(each) for each in told] == [InvalidRequest] * 2
        b.store.fault = no_faults
        await table.put("a", "1")


async def test_an_answer_that_does_not_fit_its_request_is_not_believed() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        segment, sound = b.segments[0], b.segments[0].answer
        answers = iter(
            [
                TableUpdated(segment_number=10, version=0, refused=b"cut off"),
                TableUpdated(segment_number=10, version=0, refused=BEYOND),
                TableUpdated(segment_number=10, version=-1),
            ]
        )

        def answer(request: UpdateTable, payload: bytes) -> tuple[Message, bytes]:
            told = sound(request, payload)
            return (next(answers, told[0]), b"") if isinstance(told[0], TableUpdated) else told

        segment.answer = answer  # type: ignore[method-assign, assignment]
        version = await table.insert("a", "1")
        assert version == Version(0, 10, 0)
        assert sizes(b) == [1]


# --- tables that end ----------------------------------------------------------------------


async def test_a_seal_fails_the_updates_that_were_not_performed() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        b.fault(lose_answers(1))
        async with asyncio.TaskGroup() as group:
            performed = group.create_task(table.insert("a", "1"))
            await until(lambda: sizes(b) == [1])
            b.seal()
            with pytest.raises(TableSealed):
                await table.put("b", "1")
        assert await performed == Version(0, 10, 0)


async def test_a_store_that_lacks_a_segment_is_asked_again_while_the_table_exists() -> None:
    async with table_bench(ONE) as b, b.table() as table:
        left = 2

        def lacking(at: Direction, message: Message) -> Fault | AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, UpdateTable) and left:
                left -= 1
                return SegmentNotFound("not here yet", segment=message.segment)
            return None

        b.store.fault = lacking
        await table.put("a", "1")
        assert len(b.requests()) == 3


async def test_a_deleted_table_fails_what_is_in_flight_and_what_waits() -> None:
    async with table_bench(ONE) as b, b.table(requests_in_flight_max=1) as table:
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            pending = group.create_task(together(table.put("a", "1")))
            await until(lambda: len(b.requests()) == 1)
            waiting = group.create_task(together(table.put("b", "1")))
            await asyncio.sleep(0)
            b.fault(no_faults)
            b.delete()
            for connection in tuple(b.store.connections):
                connection.drop()
        for (told,) in (await pending, await waiting):
            assert isinstance(told, TableNotFound)


async def test_a_closed_table_fails_its_pending_calls() -> None:
    async with table_bench(ONE) as b:
        table = await b.table(requests_in_flight_max=1).open()
        b.fault(held)
        async with asyncio.TaskGroup() as group:
            pending = group.create_task(together(table.put("a", "1")))
            await until(lambda: len(b.requests()) == 1)
            waiting = group.create_task(together(table.put("b", "1"), table.get("a")))
            for _ in range(3):
                await asyncio.sleep(0)
            await table.close()
        (told,) = await pending
        assert isinstance(told, OutcomeUnknown)
        assert [type(each) for each in await waiting] == [Closed, Closed]
