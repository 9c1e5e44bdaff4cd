"""Writers and readers of a stream that is scaled at every moment of their conversations."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence

import pytest

from anabranch.client import EventWriter
from anabranch.common.wire.messages import Appended, Message
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.fake_segstore import Direction, Fault, FaultRule
from kit.history import KeyedHistory
from kit.scaling import Conductor, Stages, chain, merge, read_on, shift, split
from kit.thorough import one_in

WRITER = writer_settings(block_size_bytes=150, blocks_in_flight_max=3)
READER = reader_settings(wait_ms=10, read_size_bytes=400)
KEYS: Sequence[str | None] = [*(f"key {number}" for number in range(6)), None]
SCALES: Sequence[tuple[int, Stages]] = [(1, split), (2, merge), (2, shift), (1, chain)]
STEPS_MAX = 300


async def write_bursts(
    writer: EventWriter, history: KeyedHistory, bursts: int, size: int = 14
) -> None:
    """Bursts of `size` events, each begun while the last one is under way."""
    for burst in range(bursts):
        for number in range(size):
            payload, key = b"%d.%d" % (burst, number), KEYS[number % len(KEYS)]
            writer.write(payload, key, timestamp_ms=burst if number % 3 else None)
            history.wrote(payload, key)
        await asyncio.sleep(0)
        if burst % 2:
            payload = b"%d!" % burst
            history.wrote(payload, "key 1")
            await writer.append(payload, "key 1")


def lose_every(count: int) -> FaultRule:
    """Every so many acknowledgements the connection breaks instead."""
    acknowledgements = itertools.count(1)

    def fault(direction: Direction, message: Message) -> Fault | None:
        is_ack = direction == "out" and isinstance(message, Appended)
        return Fault.DROP if is_ack and next(acknowledgements) % count == 0 else None

    return fault


def starts(stride: int) -> Iterator[tuple[int, list[Conductor]]]:
    """Steps at which to begin; the test adds its conductor. Ends when all steps had their turn."""
    for start in range(0, STEPS_MAX, stride):
        conductors: list[Conductor] = []
        yield start, conductors
        if conductors[0].steps <= start:
            assert start > 10, "the workload is too short"
            return
    pytest.fail("the workload does not end")


async def everything(b: Bench) -> list[tuple[str | None, bytes]]:
    async with b.client.reader(STREAM, settings=READER) as reader:
        return await read_on(b, reader)


@pytest.mark.parametrize("every", [0, 1, 5])
@pytest.mark.parametrize(("segments", "stages"), SCALES)
async def test_a_writer_follows_a_scale_at_every_step(
    segments: int, stages: Stages, every: int
) -> None:
    for start, conductors in starts(2 * one_in(4)):
        history = KeyedHistory()
        async with bench(segments) as b:
            conductor = Conductor(b, stages(b), start, every)
            conductors.append(conductor)
            async with b.client.writer(STREAM, WRITER) as writer:
                await write_bursts(writer, history, 6)
            assert writer.used_bytes == 0
            conductor.finish()
            b.seal()
            history.check(await everything(b))


@pytest.mark.parametrize("every", [0, 1, 5])
@pytest.mark.parametrize(("segments", "stages"), SCALES)
async def test_lost_acknowledgements_around_a_seal_lose_and_double_nothing(
    segments: int, stages: Stages, every: int
) -> None:
    for start, conductors in starts(3 * one_in(3)):
        history = KeyedHistory()
        async with bench(segments) as b:
            conductor = Conductor(b, stages(b), start, every, lose_every(4))
            conductors.append(conductor)
            async with b.client.writer(STREAM, WRITER) as writer:
                await write_bursts(writer, history, 6)
            conductor.finish()
            b.seal()
            history.check(await everything(b))


@pytest.mark.parametrize("every", [0, 1, 5])
@pytest.mark.parametrize(("segments", "stages"), SCALES)
async def test_a_reader_at_the_tail_follows_a_scale_at_every_step(
    segments: int, stages: Stages, every: int
) -> None:
    for start, conductors in starts(3 * one_in(3)):
        history = KeyedHistory()
        async with bench(segments) as b, asyncio.TaskGroup() as tasks:
            conductor = Conductor(b, stages(b), start, every)
            conductors.append(conductor)
            reading = tasks.create_task(everything(b))
            async with b.client.writer(STREAM, WRITER) as writer:
                await write_bursts(writer, history, 3)
            conductor.finish()
            async with b.client.writer(STREAM, WRITER) as writer:
                writer.write(b"last", "key 1")
                history.wrote(b"last", "key 1")
            b.seal()
            history.check(await reading)


@pytest.mark.parametrize(("segments", "stages"), SCALES)
async def test_a_reader_started_anew_at_any_event_continues_with_the_next(
    segments: int, stages: Stages
) -> None:
    history = KeyedHistory()
    async with bench(segments) as b:
        async with b.client.writer(STREAM, WRITER) as writer:
            await write_bursts(writer, history, 2, size=7)
            for _ in stages(b):
                await write_bursts(writer, history, 1, size=4)
                await writer.flush()
        b.seal()
        total = sum(map(len, history.written.values()))
        for taken in range(total + 1):
            found = []
            async with b.client.reader(STREAM, settings=READER) as reader:
                for _ in range(taken):
                    event = await anext(reader)
                    found.append((event.key, event.payload))
                positions = reader.positions()
            async with b.client.reader(STREAM, positions, settings=READER) as reader:
                history.check(found + await read_on(b, reader))
