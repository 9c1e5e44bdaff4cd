"""The event writer against a store that misbehaves on request."""

import asyncio

import pytest

from anabranch.client import WriterSettings
from anabranch.client.settings import WRITER_BLOCK_SIZE_BYTES_MAX
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Closed,
    CorruptBlock,
    EventTooLarge,
    InvalidRequest,
    InvalidSetting,
    OutcomeUnknown,
    StreamNotFound,
    StreamSealed,
    Unavailable,
    WrongHost,
)
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    EVENT_SIZE_BYTES_MAX,
    KEY_SIZE_BYTES_MAX,
)
from anabranch.common.wire.messages import Append, Appended, Message, SetupAppend
from kit.client_bench import STREAM, bench, until, writer_settings
from kit.fake_segstore import Direction, Fault, no_faults
from kit.rng import seeded

BLOCKS = writer_settings(block_size_bytes=100)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"event %d" % number for number in range(start, start + count)]


async def test_events_of_a_key_are_stored_in_order_in_the_keys_segment() -> None:
    async with bench(segment_count=4) as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            for number in range(200):
                writer.write(b"%d" % number, key=f"key {number % 7}")
        for key, payloads in (await b.by_key()).items():
            assert payloads == [b"%d" % n for n in range(200) if f"key {n % 7}" == key]
        batches = await b.stored()
    for batch in batches:
        number = int(batch.segment.split("/")[2].split(".")[0])
        for key in batch.keys:
            assert key is not None
            assert int(routing_position(key) * 4) == number


async def test_text_timestamps_and_missing_keys_survive_the_way() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            writer.write("grüße", timestamp_ms=5)
            writer.write(b"", key="k", timestamp_ms=6)
        async with b.client.reader(STREAM, until_tail=True) as reader:
            events = [event async for event in reader]
    assert [(e.payload, e.key, e.timestamp_ms) for e in events] == [
        ("grüße".encode(), None, 5),
        (b"", "k", 6),
    ]


@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_connection_lost_at_any_step_costs_and_repeats_nothing(
    direction: Direction, step: int
) -> None:
    async with bench() as b:
        seen = 0

        def drop_once(at: Direction, message: Message) -> Fault | None:
            nonlocal seen
            seen += at == direction
            return Fault.DROP if at == direction and seen == step + 1 else None

        b.store.fault = drop_once
        async with b.client.writer(STREAM, BLOCKS) as writer:
            for number, event in enumerate(numbered(40)):
                writer.write(event, key="k")
                if number % 10 == 9:
                    await asyncio.sleep(0)
        assert seen > step, "the workload is too short for this step"
        b.store.fault = no_faults
        assert await b.payloads() == numbered(40)


async def test_many_lost_connections_cost_and_repeat_nothing() -> None:
    async with bench(segment_count=3) as b:
        rng = seeded(11)

        def drop_one_in_five(at: Direction, message: Message) -> Fault | None:
            return Fault.DROP if at == "out" and rng.random() < 0.2 else None

        b.store.fault = drop_one_in_five
        async with b.client.writer(STREAM, BLOCKS) as writer:
            for number in range(300):
                writer.write(b"%d" % number, key=str(number % 5))
                if number % 20 == 0:
                    await writer.drain()
        b.store.fault = no_faults
        assert b.store.connection_count > 5
        for key, payloads in (await b.by_key()).items():
            assert payloads == [b"%d" % n for n in range(300) if str(n % 5) == key]


@pytest.mark.parametrize(
    "refusal", [WrongHost("not mine"), Unavailable("starting"), OutcomeUnknown("maybe")]
)
async def test_a_refusal_that_passes_is_overcome(refusal: AnabranchError) -> None:
    async with bench() as b:
        left = 3

        def refuse(at: Direction, message: Message) -> AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, Append | SetupAppend) and left:
                left -= 1
                return refusal
            return None

        b.store.fault = refuse
        async with b.client.writer(STREAM, BLOCKS) as writer:
            writer.write_batch(numbered(50))
        assert left == 0
        assert await b.payloads() == numbered(50)


async def test_a_store_that_comes_back_elsewhere_is_found() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            await writer.append(b"before")
            b.controller.away = True
            await b.store.stop()
            writer.write(b"after")
            await asyncio.sleep(0.01)
            b.store.port, b.store.container_epoch = 0, 2
            await b.store.start()
            b.controller.away = False
        assert await b.payloads() == [b"before", b"after"]


async def test_a_partial_duplicate_is_rebuilt_from_the_next_event() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            (segment,) = b.segments

            def first_two_are_there(at: Direction, message: Message) -> None:
                if isinstance(message, Append):
                    segment.last_numbers.setdefault(writer.writer_id, 2)

            b.store.fault = first_two_are_there
            writer.write_batch(numbered(5))
        assert await b.payloads() == numbered(5)[2:]
        setups = [m for m in b.store.requests if isinstance(m, SetupAppend)]
        firsts = [m.first_event_number for m in b.store.requests if isinstance(m, Append)]
    assert len(setups) == 2
    assert firsts == [1, 3]


async def test_nothing_is_acknowledged_before_the_store_answers() -> None:
    async with bench() as b:
        b.store.fault = lambda _, message: Fault.HOLD if isinstance(message, Appended) else None
        async with b.client.writer(STREAM) as writer, asyncio.TaskGroup() as tasks:
            appended = tasks.create_task(writer.append(b"x"))
            await until(lambda: b.segments[0].event_count > 0)
            assert not appended.done()
            assert writer.used_bytes > 0
            b.store.fault = no_faults
            b.store.release()
            await appended
            assert writer.used_bytes == 0


async def test_a_full_buffer_refuses_and_drain_waits_for_room() -> None:
    async with bench() as b:
        settings = writer_settings(buffer_size_bytes=1000, block_size_bytes=100)
        written = 0
        async with b.client.writer(STREAM, settings) as writer:
            while written < 500:
                try:
                    writer.write(b"%05d" % written)
                    written += 1
                    assert writer.used_bytes <= 1000
                except BufferFull:
                    await writer.drain()
                    assert writer.used_bytes < 500
        assert sorted(await b.payloads()) == [b"%05d" % number for number in range(500)]


async def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    async with bench() as b:
        settings = writer_settings(buffer_size_bytes=1000)
        async with b.client.writer(STREAM, settings) as writer:
            writer.write_batch(numbered(20))
            used = writer.used_bytes
            for keys in (None, ["k"] * 30):
                with pytest.raises(BufferFull):
                    writer.write_batch(numbered(30), keys=keys)
            assert writer.used_bytes == used
            with pytest.raises(InvalidRequest):
                writer.write_batch(numbered(100))
        assert await b.payloads() == numbered(20)


async def test_batches_with_and_without_keys_keep_their_columns() -> None:
    async with bench(segment_count=2) as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            writer.write_batch(numbered(30), timestamps_ms=range(30))
            writer.write_batch(numbered(9), keys=["a", None, "b"] * 3)
        batches = await b.stored()
    rows = [
        row
        for batch in batches
        for row in zip(batch.payloads, batch.keys, batch.timestamps_ms, strict=True)
    ]
    assert {(p, t) for p, k, t in rows if t < 1000} == set(
        zip(numbered(30), range(30), strict=True)
    )
    assert sorted(p for p, k, _ in rows if k == "a") == [b"event 0", b"event 3", b"event 6"]


async def test_keyed_batches_and_single_writes_together_keep_the_order_of_every_key() -> None:
    async with bench(segment_count=3) as b:
        async with b.client.writer(STREAM, BLOCKS) as writer:
            for start in range(0, 300, 100):
                events = numbered(100, start)
                keys = [f"key {number % 7}" for number in range(start, start + 100)]
                writer.write(events[0], keys[0])
                stamps = range(start + 1, start + 99)
                writer.write_batch(events[1:99], keys[1:99], stamps)
                writer.write(events[99], keys[99])
        batches = await b.stored()
    by_key: dict[str | None, list[bytes]] = {}
    for batch in batches:
        for payload, key in zip(batch.payloads, batch.keys, strict=True):
            by_key.setdefault(key, []).append(payload)
    assert by_key == {f"key {key}": numbered(300)[key::7] for key in range(7)}


async def test_an_oversize_event_is_refused_and_disturbs_nothing() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            writer.write(b"before")
            with pytest.raises(EventTooLarge):
                writer.write(bytes(EVENT_SIZE_BYTES_MAX + 1))
            with pytest.raises(EventTooLarge):
                writer.write_batch([b"no", bytes(EVENT_SIZE_BYTES_MAX + 1)])
            writer.write(b"after")
        assert await b.payloads() == [b"before", b"after"]


async def test_an_event_of_the_greatest_size_is_taken() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            writer.write(bytes(EVENT_SIZE_BYTES_MAX))
        assert [len(payload) for payload in await b.payloads()] == [EVENT_SIZE_BYTES_MAX]


@pytest.mark.parametrize("wrong", [3, None, ["x"]])
async def test_what_is_not_bytes_or_text_is_refused(wrong: object) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        with pytest.raises(InvalidRequest):
            writer.write(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            writer.write_batch([b"x", wrong])  # type: ignore[list-item]


async def test_flush_tells_that_the_stream_was_sealed_and_what_is_left() -> None:
    async with bench() as b:
        writer = b.client.writer(STREAM)
        await writer.__aenter__()
        await writer.append(b"stored")
        b.seal()
        writer.write(b"too late")
        with pytest.raises(StreamSealed) as caught:
            await writer.flush()
        assert caught.value.fields["unacknowledged"] == 1
        assert list(writer.unacknowledged().values()) == [[b"too late"]]
        with pytest.raises(StreamSealed):
            writer.write(b"later still")
        with pytest.raises(StreamSealed):
            await b.client.writer(STREAM).__aenter__()
        assert await b.payloads() == [b"stored"]


async def test_what_was_stored_before_the_seal_is_acknowledged_after_it() -> None:
    async with bench() as b:
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "out" and isinstance(m, Appended) else None
        )
        async with b.client.writer(STREAM) as writer:
            writer.write(b"in time")
            await until(lambda: b.segments[0].event_count > 0)
            b.store.fault = no_faults
            b.seal()
            await writer.flush()
        assert await b.payloads() == [b"in time"]


async def test_an_unknown_stream_is_named_at_once() -> None:
    async with bench() as b:
        with pytest.raises(StreamNotFound):
            await b.client.writer("plant/nothing").__aenter__()


async def test_a_stream_deleted_while_writing_is_named() -> None:
    async with bench() as b:
        writer = b.client.writer(STREAM)
        await writer.__aenter__()
        b.store.segments.clear()
        del b.controller.scopes["plant"]["sensors"]
        with pytest.raises(StreamNotFound):
            await writer.append(b"x")


async def test_after_the_retry_time_every_waiting_call_hears_the_reason() -> None:
    async with bench() as b:
        settings = writer_settings(retry_timeout_s=0.05, buffer_size_bytes=1000)
        b.store.fault = lambda _, m: Fault.DROP if isinstance(m, Append) else None
        writer = b.client.writer(STREAM, settings)
        await writer.__aenter__()
        writer.write_batch(numbered(30))
        for call in (writer.flush, writer.drain, writer.flush):
            with pytest.raises(OutcomeUnknown) as caught:
                await call()
            assert caught.value.fields["unacknowledged"] == 30
        with pytest.raises(OutcomeUnknown):
            writer.write(b"x")
        with pytest.raises(OutcomeUnknown):
            await writer.append(b"x")
        await writer.close()
        await writer.close()


async def test_an_error_that_retrying_cannot_cure_surfaces_at_once() -> None:
    async with bench() as b:
        corrupt = CorruptBlock("the block is damaged")
        b.store.fault = lambda at, m: corrupt if at == "in" and isinstance(m, Append) else None
        with pytest.raises(CorruptBlock):
            async with b.client.writer(STREAM) as writer:
                await writer.append(b"x")


async def test_a_store_that_stops_acknowledging_is_given_up_and_asked_again() -> None:
    async with bench() as b:
        b.store.fault = lambda _, m: Fault.HOLD if isinstance(m, Appended) else None
        async with b.client.writer(STREAM, writer_settings(ack_timeout_s=0.05)) as writer:
            writer.write(b"x")
            await until(lambda: b.store.connection_count == 2)
            b.store.fault = no_faults
        assert await b.payloads() == [b"x"]


async def test_a_writer_that_was_not_entered_says_so() -> None:
    async with bench() as b:
        with pytest.raises(InvalidRequest):
            b.client.writer(STREAM).write(b"x")
        with pytest.raises(InvalidRequest):
            b.client.writer(STREAM).write(b"x", key="k")


async def test_leaving_the_client_ends_writers_and_readers_left_open() -> None:
    async with bench() as b:
        writer = b.client.writer(STREAM)
        await writer.__aenter__()
        await writer.append(b"x")
        reader = b.client.reader(STREAM)
        assert (await anext(reader)).payload == b"x"
    with pytest.raises(Closed):
        writer.write(b"y")
    with pytest.raises(Closed):
        await writer.append(b"y")


@pytest.mark.parametrize("timestamp_ms", [1 << 63, -(1 << 63) - 1, 1.5, "now"])
async def test_an_impossible_timestamp_is_refused_and_the_writer_goes_on(
    timestamp_ms: object,
) -> None:
    async with bench() as b, asyncio.timeout(5):
        async with b.client.writer(STREAM) as writer:
            writer.write(b"before", key="k")
            with pytest.raises(InvalidRequest):
                writer.write(b"wrong", timestamp_ms=timestamp_ms)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest):
                writer.write_batch([b"wrong"], timestamps_ms=[timestamp_ms])  # type: ignore[list-item]
            with pytest.raises(InvalidRequest):
                writer.write_batch([b"wrong"], ["k"], [timestamp_ms])  # type: ignore[list-item]
            writer.write(b"after", key="k")
        assert await b.payloads() == [b"before", b"after"]


async def test_text_that_is_not_unicode_is_refused_by_name() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        with pytest.raises(InvalidRequest):
            writer.write("\ud800")


async def test_draining_waits_for_the_room_that_was_refused() -> None:
    async with bench() as b, b.client.writer(STREAM, writer_settings(buffer_size_bytes=1000)) as w:
        b.store.fault = lambda at, message: (
            Fault.HOLD if at == "out" and isinstance(message, Appended) else None
        )
        w.write(b"x" * 400)
        with pytest.raises(BufferFull):
            w.write(b"y" * 700)
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(w.drain())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not draining.done()
            b.store.fault = no_faults
            b.store.release()
        w.write(b"y" * 700)


async def test_blocks_that_no_store_would_take_are_refused_as_a_setting() -> None:
    with pytest.raises(InvalidSetting):
        WriterSettings(block_size_bytes=BLOCK_SIZE_BYTES_MAX)
    event, key = b"x" * EVENT_SIZE_BYTES_MAX, "k" * KEY_SIZE_BYTES_MAX
    settings = WriterSettings(block_size_bytes=WRITER_BLOCK_SIZE_BYTES_MAX)
    async with bench() as b, asyncio.timeout(10), b.client.writer(STREAM, settings) as writer:
        writer.write(b"y" * (EVENT_SIZE_BYTES_MAX - 100))
        writer.write(event, key, timestamp_ms=1)
        writer.write(event, key, timestamp_ms=1)


async def test_a_client_cancelled_while_it_closes_leaves_no_task_behind() -> None:
    class Stuck:
        async def close(self) -> None:
            closing.set()
            await asyncio.Event().wait()

    closing = asyncio.Event()

    async def use() -> None:
        async with bench() as b:
            writer = await b.client.writer(STREAM).__aenter__()
            runtime = b.client._runtime
            assert runtime is not None
            runtime.open_parts.discard(writer)
            runtime.open_parts.add(Stuck())

    before = asyncio.all_tasks()
    async with asyncio.timeout(2), asyncio.TaskGroup() as group:
        using = group.create_task(use())
        await closing.wait()
        using.cancel()
    assert asyncio.all_tasks() == before
