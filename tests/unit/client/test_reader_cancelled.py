"""Every call of readers, cancelled at each of its suspensions: nothing is lost or repeated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.client import Event, EventReader, EventsTruncated, Position
from anabranch.client.wire.control import A
from anabranch.common.contracts.queries import Query
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.scaling import split

READER = reader_settings(wait_ms=10, read_size_bytes=150)
CALLS_MAX = 200


@asynccontextmanager
async def truncated_bench() -> AsyncIterator[Bench]:
    """A sealed stream of two epochs, the first truncated in its middle; the controller lets the
    loop turn before it answers."""
    async with bench() as b:
        await fill(b, 0)
        for _ in split(b):
            pass
        await fill(b, 10)
        b.truncate({0: b.store.segments[f"{STREAM}/0.#epoch.0"].boundaries[4]})
        b.seal()
        ask = b.control.query

        async def query(name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
            await asyncio.sleep(0)
            return await ask(name, query, answer, timeout_s=timeout_s)

        b.control.query = query  # type: ignore[method-assign]
        yield b


async def fill(b: Bench, first: int) -> None:
    """Ten numbers, a block each."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        for number in range(first, first + 10):
            writer.write(b"%d" % number, f"key {number}")


async def next_of(reader: EventReader) -> Event | str:
    try:
        return await anext(reader)
    except StopAsyncIteration:
        return "end"
    except EventsTruncated:
        return "truncated"


async def next_rows(reader: EventReader) -> list[bytes] | str:
    try:
        batch = await reader.next_arrow(rows=3)
    except EventsTruncated:
        return "truncated"
    return "end" if batch is None else batch.column("event").to_pylist()


async def test_a_reader_goes_on_with_the_next_event_whatever_was_cancelled() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with truncated_bench() as b:
            start = {f"{STREAM}/0.#epoch.0": Position(0)}
            reader = b.client.reader(STREAM, start, settings=READER)
            found: list[str] = []
            for _ in range(CALLS_MAX):
                event = await cancelling.run(next_of(reader))
                if event is not None:
                    found.append(event if isinstance(event, str) else event.payload.decode())
                if event == "end":
                    break
            await reader.close()
        assert found[0] == "truncated"
        assert sorted(found[1:-1], key=int) == [str(number) for number in range(5, 20)]

    assert await everywhere(scenario) >= 4


async def test_batches_of_arrow_go_on_as_well() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with truncated_bench() as b:
            start = {f"{STREAM}/0.#epoch.0": Position(0)}
            reader = b.client.reader(STREAM, start, settings=READER)
            found: list[bytes] = []
            told = 0
            for _ in range(CALLS_MAX):
                rows = await cancelling.run(next_rows(reader))
                told += rows == "truncated"
                if rows == "end":
                    break
                found += rows if isinstance(rows, list) else []
            await reader.close()
        assert told == 1
        assert sorted(map(int, found)) == list(range(5, 20))

    assert await everywhere(scenario) >= 4


async def test_a_range_goes_on_as_well() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with truncated_bench() as b:
            first, *_ = await b.client.batch.segment_ranges(STREAM)
            reader = b.client.batch.read_range(first)

            async def take() -> list[bytes]:
                async for batch in reader:
                    return batch.payloads
                return [b"end"]

            found: list[bytes] = []
            for _ in range(CALLS_MAX):
                found += await cancelling.run(take()) or []
                if found[-1:] == [b"end"]:
                    break
        assert found == [*(b"%d" % number for number in range(5, 10)), b"end"]

    assert await everywhere(scenario) >= 1
