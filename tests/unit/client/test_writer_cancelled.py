"""Every call of a writer, cancelled at each of its suspensions: nothing is lost or repeated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import EventWriter
from anabranch.client.wire.control import A
from anabranch.common.contracts.queries import Query
from anabranch.common.errors import AnabranchError, BufferFull, Closed
from anabranch.common.wire.messages import Appended, Message
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.fake_segstore import Direction, Fault
from kit.large import events_of, small_parts

SETTINGS = writer_settings(block_size_bytes=60, buffer_size_bytes=600, large_events=True)


@asynccontextmanager
async def slow_bench() -> AsyncIterator[Bench]:
    """A controller that lets the loop turn before it answers."""
    async with bench(segment_count=2) as b:
        ask = b.control.query

        async def query(name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
            await asyncio.sleep(0)
            return await ask(name, query, answer, timeout_s=timeout_s)

        b.control.query = query  # type: ignore[method-assign]
        yield b


async def test_calls_that_wait_lose_nothing_when_they_are_cancelled() -> None:
    """Whatever was taken is stored once; what `append` had not taken is not stored."""

    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b:
            async with b.client.writer(STREAM, SETTINGS) as writer:
                await calls(writer, cancelling)
                writer.write(b"last", "k")
            await check(b, cancelling)

    with small_parts():
        assert await everywhere(scenario) >= 6


async def calls(writer: EventWriter, cancelling: Cancelling) -> None:
    """Each call that waits, through `cancelling`."""
    writer.write_batch([b"%d" % number for number in range(20)], keys=["k"] * 20)
    await cancelling.run(writer.drain())
    await cancelling.run(writer.append(b"appended", "k"))
    await cancelling.run(writer.note_time(5))
    writer.write(b"x" * 200, "k")
    await cancelling.run(awaited(writer))
    await cancelling.run(writer.append(b"y" * 300, "k"))
    await cancelling.run(writer.flush())


async def awaited(writer: EventWriter) -> None:
    await writer.acknowledgement()


async def check(b: Bench, cancelling: Cancelling) -> None:
    stored = [payload for _, payload in await events_of(b)]
    whole = [*(b"%d" % n for n in range(20)), b"appended", b"x" * 200, b"y" * 300, b"last"]
    if not cancelling.done:
        assert stored == whole
        return
    optional = {b"appended", b"y" * 300}
    assert [event for event in whole if event in stored or event not in optional] == stored


async def test_opening_and_leaving_can_be_cancelled_anywhere() -> None:
    """A writer that was not opened takes nothing; one whose leaving was cancelled is closed."""

    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b:
            before = asyncio.all_tasks()
            writer = b.client.writer(STREAM, SETTINGS)
            if await cancelling.run(writer.__aenter__()) is not None:
                writer.write(b"1", "k")
                await writer.note_time(1)
                writer.write(b"2", "k")
                await cancelling.run(writer.__aexit__(None, None, None))
                assert writer.failed
                with pytest.raises(Closed):
                    writer.write(b"3", "k")
                await writer.close()
                assert asyncio.all_tasks() == before
                assert [payload for _, payload in await events_of(b)][:1] == [b"1"]
            async with b.client.writer(STREAM, SETTINGS) as another:
                await another.append(b"after", "k")

    assert await everywhere(scenario) >= 5


async def test_a_writer_whose_program_is_cancelled_anywhere_resends_nothing_twice() -> None:
    """The whole program, over a connection that breaks now and then."""

    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b:
            sent = 0

            def drop_some(at: Direction, message: Message) -> Fault | None:
                nonlocal sent
                answered = at == "out" and isinstance(message, Appended)
                sent += answered
                return Fault.DROP if answered and sent % 3 == 2 else None

            b.store.fault = drop_some
            taken: list[bytes] = []
            await cancelling.run(program(b, taken))
            b.store.fault = lambda *_: None
            stored = [payload for _, payload in await events_of(b)]
            assert len(set(stored)) == len(stored)
            assert stored == taken[: len(stored)]
            if not cancelling.done:
                assert stored == taken

    assert await everywhere(scenario) >= 6


async def program(b: Bench, taken: list[bytes]) -> None:
    """Writes twenty events of a key and leaves."""
    async with b.client.writer(STREAM, SETTINGS) as writer:
        for number in range(20):
            event = b"%d" % number * 9
            try:
                writer.write(event, "k")
            except BufferFull:
                await writer.drain()
                writer.write(event, "k")
            taken.append(event)
            if number % 5 == 4:
                await writer.flush()


async def test_a_stream_sealed_meanwhile_is_named_by_whatever_is_called_next() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench() as b:
            writer = await b.client.writer(STREAM, SETTINGS).__aenter__()
            writer.write(b"stored", "k")
            await writer.flush()
            b.seal()
            writer.write(b"late", "k")
            try:
                await cancelling.run(writer.flush())
            except AnabranchError:
                assert writer.failed
            with pytest.raises(AnabranchError, match="sealed"):
                await writer.flush()
            assert [payload for _, payload in await events_of(b)] == [b"stored"]
            assert list(writer.unacknowledged().values()) == [[b"late"]]
            await writer.close()

    assert await everywhere(scenario) >= 1
