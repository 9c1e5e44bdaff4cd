"""What a writer does when its segments are sealed, told late, deleted, or sealed again."""

import asyncio

import pytest

from anabranch.client import EventWriter
from anabranch.common.errors import (
    OutcomeUnknown,
    SegmentNotFound,
    StreamNotFound,
    StreamSealed,
    Unavailable,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.wire.messages import Append, Appended
from kit.client_bench import STREAM, Bench, bench, until, writer_settings
from kit.fake_segstore import Fault, no_faults
from kit.fake_streams import FakeLife
from kit.history import KeyedHistory

FIRST = f"{STREAM}/0.#epoch.0"
LOW, HIGH = "sensor-0", "key1"
"""Keys of the first and of the second half of the key space."""


def complete(b: Bench, *names: str) -> None:
    """Scale to as many segments as named, at once."""
    for _ in b.scale_to(len(names)):
        pass
    assert len(b.stream.current) == len(names)


async def opened(b: Bench, **settings: float) -> EventWriter:
    return await b.client.writer(STREAM, writer_settings(**settings)).__aenter__()


async def test_a_seal_that_nobody_explains_yet_is_waited_for() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", LOW)
        asked: list[str] = []
        b.control.before_query = asked.append
        b.store.seal(FIRST)
        writer.write(b"1", LOW)
        await until(lambda: asked.count("successors") > 3)
        writer.write(b"2", LOW)
        complete(b, "a", "b")
        writer.write(b"3", LOW)
        await writer.flush()
        assert (await b.by_key())[LOW] == [b"0", b"1", b"2", b"3"]


async def test_a_seal_that_nobody_ever_explains_ends_the_writer_by_name() -> None:
    async with bench() as b:
        writer = await opened(b, retry_timeout_s=0.05)
        b.store.seal(FIRST)
        writer.write(b"lost", LOW)
        with pytest.raises(Unavailable, match="did not return the successors") as caught:
            await writer.flush()
        assert caught.value.fields["unacknowledged"] == 1
        assert writer.unacknowledged() == {FIRST: [b"lost"]}


async def test_a_controller_that_is_away_for_a_while_is_asked_again() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        left = 5

        def refuse(_: str) -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                raise Unavailable("away")

        complete(b, "a", "b")
        b.control.before_query = refuse
        await writer.append(b"0", LOW)
        assert left < 0
        assert await b.payloads() == [b"0"]


async def test_whoever_waits_for_an_acknowledgement_gets_it_from_the_successors() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer, asyncio.TaskGroup() as tasks:
        complete(b, "a", "b")
        b.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, Appended) else None
        )
        for number in range(10):
            writer.write(b"%d" % number, (LOW, HIGH)[number % 2])
        flushing = tasks.create_task(writer.flush())
        given_up = tasks.create_task(writer.flush())
        appending = tasks.create_task(writer.append(b"one", HIGH))
        await until(lambda: sum(s.event_count for s in b.segments) == 11)
        given_up.cancel()
        await asyncio.sleep(0)
        assert not flushing.done()
        assert not appending.done()
        b.store.fault = no_faults
        b.store.release()
        await flushing
        await appending


async def test_a_failure_after_the_hand_over_reaches_whoever_waited_before_it() -> None:
    async with bench() as b:
        writer = await opened(b)
        complete(b, "a", "b", "c")
        b.store.fault = lambda _, m: Fault.DROP if isinstance(m, Append) else None
        for number in range(10):
            writer.write(b"%d" % number, f"key {number}")
        async with asyncio.TaskGroup() as tasks:
            flushing = tasks.create_task(_outcome(writer))
            await until(lambda: len(writer.unacknowledged()) == 3)
            assert not flushing.done()
            b.seal()
            assert isinstance(await flushing, StreamSealed)


async def _outcome(writer: EventWriter) -> BaseException | None:
    try:
        await writer.flush()
    except StreamSealed as error:
        return error
    return None


async def test_a_predecessor_found_sealed_late_leads_past_a_successor_that_was_replaced() -> None:
    history = KeyedHistory()
    async with bench(segment_count=2) as b:
        async with b.client.writer(STREAM) as writer:

            async def append(payload: bytes, key: str) -> None:
                await writer.append(payload, key)
                history.wrote(payload, key)

            await append(b"low 0", LOW)
            await append(b"high 0", HIGH)
            for round_ in range(1, 4):
                complete(b, "merged")
                await append(b"high %d" % round_, HIGH)
                complete(b, "a", "b", "c")
                await append(b"high again %d" % round_, HIGH)
            await append(b"low 1", LOW)
        history.check([(k, p) for k, all_ in (await b.by_key()).items() for p in all_])


def truncate_to_tail(b: Bench) -> None:
    """Delete everything that was sealed."""
    b.truncate({life.segment_id: 0 for life in b.stream.current})


@pytest.mark.parametrize("connected", [True, False])
async def test_a_segment_deleted_while_nothing_was_under_way_is_passed_over(
    connected: bool,
) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", LOW)
        complete(b, "a", "b")
        truncate_to_tail(b)
        assert FIRST not in b.store.segments
        if not connected:
            await b.store.restart()
        for number in range(5):
            writer.write(b"%d" % number, LOW)
        await writer.flush()
        assert await b.payloads() == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("forgotten", [True, False])
async def test_a_segment_deleted_before_it_acknowledged_leaves_the_outcome_unknown(
    forgotten: bool,
) -> None:
    async with bench() as b:
        writer = await opened(b)
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "out" and isinstance(m, Appended) else None
        )
        writer.write(b"stored", LOW)
        await until(lambda: b.segments[0].event_count > 0)
        complete(b, "a", "b")
        truncate_to_tail(b)
        if forgotten:
            b.store.deleted.clear()
        with pytest.raises(OutcomeUnknown, match="deleted by a truncation") as caught:
            await writer.flush()
        assert caught.value.fields["unacknowledged"] == 1
        assert caught.value.fields["segment"] == FIRST
        assert sum(segment.event_count for segment in b.segments) == 0


async def test_a_stream_that_was_deleted_and_created_again_is_not_found() -> None:
    async with bench() as b:
        writer = await opened(b)
        for number in (0, 1):  # the new stream's segments have other numbers
            b.stream.lives.pop(number, None)
        b.stream.lives[7] = FakeLife(7, KeyRange(0.0, 1.0))
        b.store.segments.clear()
        with pytest.raises(StreamNotFound, match="another one was created") as caught:
            await writer.append(b"late", LOW)
        assert caught.value.fields["stream"] == str(STREAM)


async def test_a_segment_that_is_missing_although_it_should_be_open_is_named() -> None:
    async with bench() as b:
        writer = await opened(b)
        b.store.segments.clear()
        with pytest.raises(SegmentNotFound):
            await writer.append(b"x")


@pytest.mark.parametrize("truncated", [True, False])
async def test_a_stream_scaled_often_while_the_writer_was_away_is_caught_up_with(
    truncated: bool,
) -> None:
    history = KeyedHistory()
    async with bench(segment_count=2) as b:
        async with b.client.writer(STREAM, writer_settings(block_size_bytes=80)) as writer:
            await writer.append(b"start", LOW)
            history.wrote(b"start", LOW)
            b.store.fault = lambda _, __: Fault.DROP
            await b.store.restart()
            for number in range(40):
                key = f"key {number % 7}"
                writer.write(b"%d" % number, key)
                history.wrote(b"%d" % number, key)
            await until(lambda: len(b.store.requests) > 5)
            for count in (3, 1, 4, 2):
                complete(b, *"x" * count)
            if truncated:
                truncate_to_tail(b)
                history.written[LOW].remove(b"start")
            b.store.fault = no_faults
        history.check([(k, p) for k, all_ in (await b.by_key()).items() for p in all_])


async def test_a_compressed_block_in_flight_is_divided_and_compressed_again() -> None:
    history = KeyedHistory()
    async with bench() as b:
        settings = writer_settings(compression="zstd", block_size_bytes=4000)
        async with b.client.writer(STREAM, settings) as writer:
            complete(b, "a", "b", "c")
            for number in range(300):
                payload, key = b"reading %d" % number, f"key {number % 7}"
                writer.write(payload, key)
                history.wrote(payload, key)
        history.check([(k, p) for k, all_ in (await b.by_key()).items() for p in all_])


async def test_event_times_are_handed_over_with_the_events() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            complete(b, "a", "b")
            for number in range(10):
                writer.write(b"%d" % number, f"key {number}", timestamp_ms=1000 + number)
        found = {
            payload: stamp
            for batch in await b.stored()
            for payload, stamp in zip(batch.payloads, batch.timestamps_ms, strict=True)
        }
        assert found == {b"%d" % number: 1000 + number for number in range(10)}


async def test_what_is_written_while_successors_are_asked_for_stays_behind() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        written = 0

        def write_one(name: str) -> None:
            nonlocal written
            if name in ("successors", "locate"):
                writer.write(b"%d" % written, LOW)
                written += 1

        complete(b, "a", "b")
        b.control.before_query = write_one
        writer.write(b"first", LOW)
        await writer.flush()
        assert written >= 2
        b.control.before_query = lambda _: None
        await writer.flush()
        assert await b.payloads() == [b"first", *(b"%d" % number for number in range(written))]


async def test_a_writer_closed_during_the_hand_over_stops() -> None:
    async with bench() as b:
        writer = await opened(b)
        b.store.seal(FIRST)
        asked: list[str] = []
        b.control.before_query = asked.append
        writer.write(b"x", LOW)
        await until(lambda: "successors" in asked)
        await writer.close()
        complete(b, "a", "b")
        assert await b.payloads() == []
