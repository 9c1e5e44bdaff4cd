"""An append by itself is sent at once; appends of many callers share their blocks."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from anabranch.client import EventWriter
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.messages import Append
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, bench

CALLERS = 8


@contextmanager
def sent() -> Iterator[list[int]]:
    """The number of events in each append that a client sends."""
    counts: list[int] = []
    send = SegmentStoreConnection.send_append

    def noted(connection: SegmentStoreConnection, append: Append, payload: bytes) -> None:
        counts.append(append.count)
        send(connection, append, payload)

    with patch.object(SegmentStoreConnection, "send_append", noted):
        yield counts


def begin_and_give_up(writer: EventWriter, event: bytes) -> None:
    """Run an append up to its first suspension, and end it there."""
    call = writer.append(event)
    call.send(None)
    call.close()


async def test_a_lone_append_is_sent_before_the_loop_turns_also_after_one_that_was_given_up() -> (
    None
):
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"1")
        with sent() as counts:
            begin_and_give_up(writer, b"2")
            assert counts == [1]
            await writer.flush()
            begin_and_give_up(writer, b"3")
            assert counts == [1, 1]
        await writer.flush()
        assert await b.payloads() == [b"1", b"2", b"3"]


async def test_events_written_before_an_append_travel_with_it() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"1")
        with sent() as counts:
            writer.write(b"2")
            await writer.append(b"3")
            assert counts == [2]


async def test_callers_whose_appends_are_acknowledged_together_send_the_next_ones_together() -> (
    None
):
    rounds = 10

    async def append(writer: EventWriter) -> None:
        for number in range(rounds):
            await writer.append(b"%d" % number)

    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"first")
        with sent() as counts:
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(append(writer))
        assert sum(counts) == CALLERS * rounds
        assert len(counts) <= rounds + 2


async def test_a_refused_lone_append_leaves_the_writer_as_it_was() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"1")
        with pytest.raises(InvalidRequest):
            await writer.append(5)  # type: ignore[arg-type]
        writer.write(b"2")
        await writer.flush()
        assert await b.payloads() == [b"1", b"2"]


async def test_a_lone_append_cancelled_at_any_wait_is_stored_once_and_holds_nobody_up() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench() as b:
            async with b.client.writer(STREAM) as writer:
                for number in range(3):
                    await cancelling.run(writer.append(b"%d" % number))
                with sent() as counts:
                    await writer.flush()
                    await writer.append(b"last")
                    assert counts[-1] == 1
            stored = await b.payloads()
            assert stored == [b"0", b"1", b"2", b"last"]
            assert writer.used_bytes == 0

    assert await everywhere(scenario) >= 3
