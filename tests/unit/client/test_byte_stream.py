"""Byte streams as files: written at the end, read from a place of their own."""

import asyncio
import os
from array import array
from collections.abc import Awaitable

import pytest

from anabranch.client import ByteStream
from anabranch.client.settings import ByteStreamSettings
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    CorruptBlock,
    EventsTruncated,
    InvalidRequest,
    InvalidSetting,
    OutcomeUnknown,
    StreamNotFound,
    StreamSealed,
)
from anabranch.common.wire.messages import Appended, ConditionalAppend, Message, ReadSegment
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.rng import seeded

SMALL = ByteStreamSettings(
    retry_timeout_s=5.0, ack_timeout_s=2.0, append_size_bytes=10, buffer_size_bytes=40,
    read_size_bytes=16,
)  # fmt: skip
TEXT = bytes(range(250))


def opened(b: Bench, settings: ByteStreamSettings = SMALL) -> ByteStream:
    return b.client.byte_stream(STREAM, settings)


def stored(b: Bench) -> bytes:
    return bytes(b.segments[0].data)


def reads(b: Bench) -> list[ReadSegment]:
    return [request for request in b.store.requests if isinstance(request, ReadSegment)]


def hold_acknowledgements(at: Direction, message: Message) -> Fault | None:
    return Fault.HOLD if at == "out" and isinstance(message, Appended) else None


async def test_a_large_write_is_cut_into_appends_and_read_back() -> None:
    async with bench() as b, opened(b) as file:
        assert await file.write(TEXT) == 250
        await file.flush()
        assert stored(b) == TEXT
        assert b.segments[0].boundaries == list(range(10, 251, 10))
        assert await file.read(7) == TEXT[:7]
        assert await file.read(100) == TEXT[7:107]
        assert file.tell() == 107
        assert await file.read() == TEXT[107:]
        assert (await file.head(), await file.tail()) == (0, 250)


async def test_small_writes_that_come_together_are_stored_together() -> None:
    async with bench() as b, opened(b, ByteStreamSettings()) as file:
        b.store.fault = hold_acknowledgements
        await file.write(b"first")
        await until(lambda: stored(b) == b"first")
        for number in range(10):
            await file.write(b"%d" % number)
        b.store.fault = no_faults
        b.store.release()
        await file.flush()
        assert stored(b) == b"first0123456789"
        assert b.segments[0].boundaries == [5, 15]


@pytest.mark.parametrize("data", [bytearray(b"abc"), memoryview(b"abc"), array("b", b"abc")])
async def test_anything_that_holds_bytes_can_be_written(data: bytes) -> None:
    async with bench() as b:
        async with opened(b) as file:
            assert await file.write(data) == 3
            assert await file.write(b"") == 0
        assert stored(b) == b"abc"


async def test_reading_into_a_buffer_fills_its_front() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(b"abcdefgh")
        await file.flush()
        target = bytearray(b"......")
        assert await file.readinto(memoryview(target)[1:4]) == 3
        assert target == b".abc.."
        numbers = array("H", [0, 0, 0])
        assert await file.readinto(numbers) == 5
        assert numbers.tobytes() == b"defgh\0"
        with pytest.raises(InvalidRequest, match="writable"):
            await file.readinto(memoryview(b"abc"))
        with pytest.raises(InvalidRequest, match="writable"):
            await file.readinto(memoryview(target)[::2])


async def test_small_reads_are_answered_from_what_was_fetched() -> None:
    async with bench() as b, opened(b, ByteStreamSettings()) as file:
        await file.write(TEXT)
        await file.flush()
        found = b"".join([await file.read(1) for _ in TEXT])
        assert found == TEXT
        assert len(reads(b)) == 1


async def test_a_place_is_sought_from_the_start_from_here_and_from_the_end() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(TEXT)
        await file.flush()
        assert await file.seek(200) == 200
        assert await file.read(2) == TEXT[200:202]
        assert await file.seek(-102, os.SEEK_CUR) == 100
        assert await file.read(2) == TEXT[100:102]
        assert await file.seek(-3, os.SEEK_END) == 247
        assert await file.read() == TEXT[247:]
        for offset, whence in ((-1, os.SEEK_SET), (251, os.SEEK_SET), (1, os.SEEK_END), (0, 7)):
            with pytest.raises(InvalidRequest):
                await file.seek(offset, whence)
        assert file.tell() == 250
        assert file.seekable()


async def test_a_read_at_the_tail_waits_for_bytes_or_for_as_long_as_it_is_told() -> None:
    async with bench() as b, opened(b) as file, asyncio.TaskGroup() as group:
        assert await file.read(10, wait_s=0.01) == b""
        reading = group.create_task(file.read(10))
        await until(lambda: len(reads(b)) == 2)
        with pytest.raises(InvalidRequest, match="another read"):
            await file.read(10)
        await file.write(b"news")
        assert await reading == b"news"


async def test_a_place_that_is_sought_while_a_read_waits_stays_sought() -> None:
    async with bench() as b, opened(b) as file, asyncio.TaskGroup() as group:
        await file.write(b"abc")
        await file.flush()
        assert await file.read(3) == b"abc"
        reading = group.create_task(file.read(10))
        await until(lambda: len(reads(b)) == 2)
        await file.seek(1)
        await file.write(b"def")
        assert await reading == b"def"
        assert await file.read(2) == b"bc"


async def test_a_sealed_stream_ends() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(b"all")
        await file.flush()
        b.seal()
        assert await file.read() == b"all"
        assert await file.read() == await file.read(5) == b""
        await file.write(b"more")
        with pytest.raises(StreamSealed):
            await file.flush()
        with pytest.raises(StreamSealed):
            await file.write(b"still more")


async def test_truncated_bytes_are_told_once_and_reading_goes_on_behind_them() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(TEXT)
        await file.flush()
        assert await file.truncate(105) == 100
        with pytest.raises(EventsTruncated) as raised:
            await file.read(5)
        assert (raised.value.fields["offset"], raised.value.fields["start"]) == (0, 100)
        assert file.tell() == 100
        assert await file.read(5) == TEXT[100:105]
        assert await file.truncate(3) == 100
        with pytest.raises(InvalidRequest):
            await file.truncate(1000)
        async with opened(b) as later:
            assert await later.read(5) == TEXT[100:105]


async def test_what_was_fetched_before_a_truncation_is_delivered_first() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(TEXT)
        await file.flush()
        assert await file.read(4) == TEXT[:4]
        await file.truncate(100)
        assert await file.read(100) == TEXT[4:16]
        with pytest.raises(EventsTruncated):
            await file.read(100)


# --- exactly once -----------------------------------------------------------------------------


async def test_lost_connections_and_restarts_cost_and_repeat_no_byte() -> None:
    async with bench() as b:
        rng = seeded(5)
        b.store.fault = lambda at, _: Fault.DROP if at == "out" and rng.random() < 0.2 else None
        async with opened(b) as file:
            for start in range(0, 250, 5):
                await file.write(TEXT[start : start + 5])
                if start == 100:
                    await b.store.restart()
        b.store.fault = no_faults
        assert stored(b) == TEXT
        assert b.store.connection_count > 3


async def test_a_write_waits_for_room_and_concurrent_writes_keep_their_order() -> None:
    async with bench() as b, opened(b) as file, asyncio.TaskGroup() as group:
        b.store.fault = hold_acknowledgements
        writing = [group.create_task(file.write(bytes([n]) * 30)) for n in range(5)]
        await until(lambda: len(stored(b)) > 0)
        assert [task.done() for task in writing] == [True, True, False, False, False]
        writing[3].cancel()
        b.store.fault = no_faults
        b.store.release()
        await asyncio.wait(writing)
        await file.flush()
        assert stored(b) == b"".join(bytes([n]) * 30 for n in (0, 1, 2, 4))


async def test_cancelling_any_call_anywhere_breaks_no_later_one() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench() as b:
            async with opened(b) as file:
                pieces = [b"a" * 45, b"b" * 15, b"c" * 25]
                for piece in pieces:
                    await cancelling.run(file.write(piece))
                await cancelling.run(file.flush())
                await cancelling.run(file.read(30))
                await cancelling.run(file.seek(0, os.SEEK_END))
                await file.write(b"END.")
                await file.flush()
                taken = stored(b)
                assert taken.endswith(b"END.")
                for letter, piece in zip(b"abc", pieces, strict=True):
                    assert taken.count(letter) in (0, len(piece))
                await file.seek(0)
                assert await file.read() == taken
            assert stored(b) == taken

    assert await everywhere(scenario) >= 4


async def test_an_unknown_outcome_ends_writing_for_good() -> None:
    impatient = ByteStreamSettings(retry_timeout_s=0.02, ack_timeout_s=0.01, append_size_bytes=4)
    async with bench() as b, opened(b, impatient) as file:
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "in" and isinstance(m, ConditionalAppend) else None
        )
        await file.write(b"lost and found")
        with pytest.raises(OutcomeUnknown):
            await file.flush()
        b.store.fault = no_faults
        for call in (file.write(b"x"), file.flush()):
            with pytest.raises(OutcomeUnknown):
                await call
        assert stored(b) == b""


# --- life -------------------------------------------------------------------------------------


async def test_closing_stores_everything_and_then_refuses() -> None:
    async with bench() as b:
        file = opened(b)
        with pytest.raises(Closed):
            await file.write(b"early")
        await file.open()
        await file.write(TEXT)
        await file.close()
        await file.close()
        assert stored(b) == TEXT
        for call in _calls(file):
            with pytest.raises(Closed):
                await call


def _calls(file: ByteStream) -> list[Awaitable[object]]:
    return [file.write(b"x"), file.flush(), file.read(1), file.seek(0), file.tail(), file.head()]


async def test_leaving_by_an_exception_waits_for_nothing() -> None:
    async with bench() as b:
        b.store.fault = hold_acknowledgements
        told: list[AnabranchError] = []

        async def write(file: ByteStream) -> None:
            try:
                await file.write(b"waits for room")
            except AnabranchError as error:
                told.append(error)

        async def fail_while_writing(group: asyncio.TaskGroup) -> None:
            async with opened(b) as file:
                await file.write(TEXT)
                group.create_task(write(file))
                await until(lambda: len(stored(b)) > 0)
                raise KeyError("of the program")

        async with asyncio.TaskGroup() as group:
            with pytest.raises(KeyError):
                await fail_while_writing(group)
        assert [type(error) for error in told] == [Closed]


async def test_a_client_that_is_left_ends_a_byte_stream_that_was_not_closed() -> None:
    async with bench() as b:
        file = opened(b)
        await file.open()
        b.store.fault = hold_acknowledgements
        await file.write(b"never acknowledged")
        await until(lambda: len(stored(b)) > 0)
    with pytest.raises(OutcomeUnknown):
        await file.write(b"x")


async def test_a_byte_stream_read_as_events_is_a_named_error() -> None:
    async with bench() as b, opened(b) as file:
        await file.write(b"these bytes are no block of events, and there are enough of them " * 3)
        await file.flush()
        with pytest.raises(CorruptBlock) as raised:
            await b.payloads()
        assert raised.value.fields["segment"] == next(iter(b.store.segments))


async def test_streams_that_cannot_be_byte_streams_are_refused() -> None:
    async with bench(segment_count=2) as b:
        with pytest.raises(InvalidRequest, match="more than one"):
            await opened(b).open()
        with pytest.raises(StreamNotFound):
            await b.client.byte_stream("plant/nothing").open()
    with pytest.raises(InvalidSetting):
        ByteStreamSettings(append_size_bytes=1 << 30)
    with pytest.raises(InvalidSetting):
        ByteStreamSettings(buffer_size_bytes=0)
    with pytest.raises(InvalidSetting):
        ByteStreamSettings(retry_timeout_s=0)
