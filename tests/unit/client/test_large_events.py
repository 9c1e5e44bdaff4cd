"""Events over the size of a block: written as parts and a reference, exactly once, in order."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from crc32c import crc32c

from anabranch.client import TransactionSettings
from anabranch.client.reading.large_events import fetch_large
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES
from anabranch.common.errors import (
    AnabranchError,
    CorruptBlock,
    EventsTruncated,
    EventTooLarge,
    InvalidSetting,
    OutcomeUnknown,
    Overloaded,
    SegmentTruncated,
    SessionEnded,
)
from anabranch.common.wire.block import FLAG_LARGE, FLAG_PARTS_BEFORE, Block, LargeReference
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.common.wire.messages import (
    Appended,
    AppendLarge,
    AppendOnce,
    CreateTransient,
    DeleteSegment,
    Message,
    Sealed,
    SealSegment,
)
from kit.client_bench import STREAM, bench, reader_settings, until, writer_settings
from kit.fake_segstore import Direction, Fault, no_faults
from kit.history import KeyedHistory
from kit.large import LARGE_FROM, events_in, events_of, small_parts
from kit.scaling import Conductor, merge, shift, split

SETTINGS = writer_settings(block_size_bytes=60, large_events=True)
STEPS_MAX = 120


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with small_parts():
        yield


def mixed(count: int) -> list[bytes]:
    """Every third event is large, each of another size."""
    return [
        b"%d:" % number + b"x" * ((LARGE_FROM + 37 * number) * (number % 3 == 1))
        for number in range(count)
    ]


@dataclass
class DropAt:
    """A fault that drops the connection at one message of a direction, counted from 0."""

    direction: Direction
    step: int
    seen: int = 0

    def __call__(self, at: Direction, _: Message) -> Fault | None:
        if at != self.direction:
            return None
        self.seen += 1
        return Fault.DROP if self.seen == self.step + 1 else None


async def test_large_and_small_events_are_stored_in_the_order_of_writing() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            for event in mixed(9):
                writer.write(event, "k", timestamp_ms=7)
            assert writer.used_bytes > sum(map(len, mixed(9)))
        assert writer.used_bytes == 0
        (segment,) = b.segments
        assert await events_in(segment) == [("k", event) for event in mixed(9)]
        assert segment.event_count == 9


async def test_batches_with_large_events_are_taken_whole_with_and_without_keys() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            writer.write_batch(mixed(9), timestamps_ms=range(9))
            writer.write_batch(mixed(9), keys=["k", None, "k"] * 3)
            await writer.append(mixed(5)[4])
        stored = await events_of(b)
    assert [event for _, event in stored] == [*mixed(9), *mixed(9), mixed(5)[4]]
    assert [key for key, _ in stored[9:12]] == ["k", None, "k"]


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_connection_lost_at_any_step_costs_and_repeats_nothing(
    direction: Direction,
) -> None:
    for step in range(STEPS_MAX):
        async with bench() as b:
            b.store.fault = dropping = DropAt(direction, step)
            async with b.client.writer(STREAM, SETTINGS) as writer:
                writer.write_batch(mixed(6), keys=["k"] * 6)
            (segment,) = b.segments
            assert await events_in(segment) == [("k", event) for event in mixed(6)], step
            if dropping.seen <= step:
                return
    raise AssertionError("the conversation does not end")


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_transaction_whose_connection_is_lost_at_any_step_has_every_event_once(
    direction: Direction,
) -> None:
    for step in range(STEPS_MAX):
        async with bench() as b:
            dropping = DropAt(direction, step)
            async with b.client.writer(STREAM, SETTINGS) as writer:
                await writer.append(b"before", "k")
                b.store.fault = dropping
                async with writer.transaction(TransactionSettings(short=False)) as txn:
                    await txn.flush()
                    txn.write_batch(mixed(6), keys=["k"] * 6)
            (segment,) = b.segments
            expected = [("k", event) for event in (b"before", *mixed(6))]
            assert await events_in(segment) == expected, step
            if dropping.seen <= step:
                return
    raise AssertionError("the conversation does not end")


async def test_a_stream_scaled_at_any_step_gets_every_event_once_and_in_order() -> None:
    for start in range(STEPS_MAX):
        async with bench(segment_count=2) as b:
            stages = (stage for scale in (split, merge, shift) for stage in scale(b))
            conductor = Conductor(b, stages, start, every=3)
            history = KeyedHistory()
            async with b.client.writer(STREAM, SETTINGS) as writer:
                for number, event in enumerate(mixed(9)):
                    key = f"key {number % 4}"
                    writer.write(event, key)
                    history.wrote(event, key)
                    await asyncio.sleep(0)
            reached = bool(conductor.performed)
            conductor.finish()
            history.check(await events_of(b))
            if not reached:
                return
    raise AssertionError("the conversation does not end")


@pytest.mark.parametrize("kind", [CreateTransient, AppendOnce, SealSegment, AppendLarge])
@pytest.mark.parametrize("refusal", [Overloaded("wait"), OutcomeUnknown("maybe")])
async def test_an_upload_that_is_refused_for_now_is_begun_anew(
    kind: type[Message], refusal: AnabranchError
) -> None:
    async with bench() as b:
        left = 2

        def refuse(at: Direction, message: Message) -> AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, kind) and left:
                left -= 1
                return refusal
            return None

        b.store.fault = refuse
        async with b.client.writer(STREAM, SETTINGS) as writer:
            writer.write_batch(mixed(6))
        assert left == 0
        assert [event for _, event in await events_of(b)] == mixed(6)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_large_event_whose_answer_is_lost_has_its_parts_once(is_taken: bool) -> None:
    async with bench() as b:
        lost: list[Message] = []

        def lose(_: Direction, message: Message) -> Fault | None:
            wanted = Appended if is_taken else AppendLarge
            # the parts' own appends are answered without a session
            if not lost and isinstance(message, wanted) and message.session:
                lost.append(message)
                return Fault.DROP
            return None

        async with b.client.writer(STREAM, SETTINGS) as writer:
            b.store.fault = lose
            writer.write(b"x" * 200, "k")
            writer.write(b"behind", "k")
        (segment,) = b.segments
        assert lost
        assert await events_in(segment) == [("k", b"x" * 200), ("k", b"behind")]
        assert segment.event_count == 2
        assert bytes(segment.data).count(b"x" * 40) == 5, "the parts are there once"


async def test_a_session_that_ends_behind_an_upload_leaves_no_transient_segment() -> None:
    async with bench() as b:
        refused: list[Message] = []

        def refuse(at: Direction, message: Message) -> AnabranchError | None:
            if at == "in" and isinstance(message, AppendLarge) and len(refused) < 3:
                refused.append(message)
                return SessionEnded("another setup")
            return None

        b.store.fault = refuse
        async with b.client.writer(STREAM, SETTINGS) as writer:
            writer.write_batch(mixed(6))
        assert [event for _, event in await events_of(b)] == mixed(6)
        assert len(refused) == 3
        assert len(b.store.segments) == 1


async def test_blocks_before_a_large_event_go_on_and_those_behind_it_wait() -> None:
    async with bench() as b:
        b.store.fault = lambda at, m: Fault.HOLD if at == "out" and isinstance(m, Sealed) else None
        async with b.client.writer(STREAM, SETTINGS) as writer:
            writer.write(b"before", "k")
            writer.write(b"x" * 200, "k")
            writer.write(b"behind", "k")
            await until(lambda: any(isinstance(m, SealSegment) for m in b.store.requests))
            assert await events_in(b.segments[0]) == [("k", b"before")]
            b.store.fault = no_faults
            b.store.release()
        stored = [payload for _, payload in await events_of(b)]
    assert stored == [b"before", b"x" * 200, b"behind"]


async def test_an_upload_that_is_given_up_leaves_no_transient_segment() -> None:
    async with bench() as b:
        b.store.fault = lambda at, m: Fault.HOLD if at == "out" and isinstance(m, Sealed) else None
        writer = await b.client.writer(STREAM, SETTINGS).__aenter__()
        writer.write(b"x" * 200)
        await until(lambda: any(isinstance(m, SealSegment) for m in b.store.requests))
        await writer.close()
        await until(lambda: any(isinstance(m, DeleteSegment) for m in b.store.requests))
        assert len(b.store.segments) == 1


async def test_bytes_in_flight_are_bounded_with_parts_too() -> None:
    async with bench(segment_count=3) as b:
        settings = writer_settings(
            block_size_bytes=60, large_events=True, in_flight_bytes_max=150, blocks_in_flight_max=8
        )
        async with b.client.writer(STREAM, settings) as writer:
            b.store.fault = lambda _, __: _check_bound(writer._in_flight.used)
            for number, event in enumerate(mixed(30)):
                writer.write(event, f"{number % 5}")
        assert sorted(event for _, event in await events_of(b)) == sorted(mixed(30))


async def test_a_large_event_is_not_kept_waiting_by_busy_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.client.writing.uploads.PART_SIZE_BYTES_MAX", 300)
    async with bench(segment_count=3) as b:
        settings = writer_settings(
            block_size_bytes=60, large_events=True, in_flight_bytes_max=400, ack_timeout_s=1.0
        )
        busy = ["sensor-0", "key1"]
        async with b.client.writer(STREAM, settings) as writer:
            writer.write(b"x" * 400, "k")
            large = writer.acknowledgement()
            assert isinstance(large, asyncio.Future)
            number = 0
            while not large.done():
                for _ in range(20):
                    writer.write(b"%d" % number * 9, busy[number % 2])
                    number += 1
                await writer.drain()
                assert number < 20_000, "the upload starves"


def _check_bound(used: int) -> None:
    assert used <= 250, "the bound, or one larger block"


async def test_a_large_event_is_refused_unless_it_was_allowed_and_says_how() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM) as writer:
            with pytest.raises(EventTooLarge) as caught:
                writer.write(b"x" * (LARGE_FROM + 1))
            assert "large_events=True" in caught.value.remedy
        settings = writer_settings(large_events=True, event_size_bytes_max=300)
        async with b.client.writer(STREAM, settings) as writer:
            with pytest.raises(EventTooLarge) as caught:
                writer.write(b"x" * 301)
            assert caught.value.fields["limit"] == 300
            await writer.append(b"x" * 300)
        settings = writer_settings(large_events=True, buffer_size_bytes=200, block_size_bytes=50)
        async with b.client.writer(STREAM, settings) as writer:
            with pytest.raises(EventTooLarge, match="buffer"):
                writer.write(b"x" * 300)
    with pytest.raises(InvalidSetting):
        writer_settings(event_size_bytes_max=(1 << 30) + 1)


async def test_an_event_of_the_greatest_size_that_is_set_is_taken_and_a_larger_one_is_not() -> None:
    async with bench() as b:
        settings = writer_settings(event_size_bytes_max=40)
        async with b.client.writer(STREAM, settings) as writer:
            for key in (None, "key"):
                keys = None if key is None else [key] * 2
                writer.write(b"x" * 40, key)
                writer.write_batch([b"x" * 40] * 2, keys)
                with pytest.raises(EventTooLarge):
                    writer.write(b"x" * 41, key)
                with pytest.raises(EventTooLarge):
                    writer.write_batch([b"x" * 40, b"x" * 41], keys)
            assert writer.used_bytes == 6 * (40 + EVENT_OVERHEAD_BYTES) + 3 * len("key")
        assert await b.payloads() == [b"x" * 40] * 6


async def test_a_large_event_that_is_not_acknowledged_is_given_back_whole() -> None:
    async with bench() as b:
        writer = await b.client.writer(STREAM, SETTINGS).__aenter__()
        b.store.fault = lambda _, m: Fault.DROP if isinstance(m, AppendLarge) else None
        writer.write(b"x" * 200, "k")
        writer.write(b"y", "k")
        await asyncio.sleep(0.01)
        assert list(writer.unacknowledged().values()) == [[b"x" * 200, b"y"]]
        await writer.close()


# --- reading -----------------------------------------------------------------------------------


def stored_parts(pieces: list[bytes], first: int = 1, writer_id: bytes = bytes(16)) -> bytes:
    return b"".join(
        encode_part(piece, writer_id=writer_id, number=number, base_timestamp_ms=0)
        for number, piece in enumerate(pieces, first)
    )


EVENT = [b"one", b"two!", b"three"]
PARTS = stored_parts(EVENT)
REFERENCE = LargeReference(5, len(PARTS), 12, crc32c(b"".join(EVENT)))


async def fetched(data: bytes, reference: LargeReference = REFERENCE, size: int = 1 << 20) -> bytes:
    async def read(offset: int, size_max: int) -> bytes:
        return (b"12345" + data)[offset : offset + min(size, size_max)]

    return await fetch_large(read, reference)


@pytest.mark.parametrize("size", [1, 67, 68, 100, 1000])
async def test_an_event_is_put_together_however_its_parts_are_read(size: int) -> None:
    assert await fetched(PARTS + b"what follows", size=size) == b"onetwo!three"


@pytest.mark.parametrize(
    "data",
    [
        PARTS[:-1],
        PARTS[:100],
        stored_parts([b"one", b"two!"]) + stored_parts([b"three"], 4),
        stored_parts([b"one", b"two!"]) + stored_parts([b"three"], 3, b"x" * 16),
        stored_parts([b"one", b"two?", b"three"]),
        PARTS[:80] + b"?" + PARTS[81:],
    ],
)
async def test_parts_that_do_not_make_the_event_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        await fetched(data)


async def test_parts_that_were_truncated_are_told_as_truncated_events() -> None:
    async def read(offset: int, size: int) -> bytes:
        raise SegmentTruncated("gone", start=77)

    with pytest.raises(EventsTruncated) as caught:
        await fetch_large(read, REFERENCE)
    assert caught.value.fields == {"offset": 5, "start": 77}


async def test_a_reader_yields_large_events_among_the_others_and_continues_anywhere() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            for number, event in enumerate(mixed(9)):
                writer.write(event, "k", timestamp_ms=number)
        async with b.client.reader(STREAM, until_tail=True) as reader:
            events = [event async for event in reader]
        assert [event.payload for event in events] == mixed(9)
        assert {event.key for event in events} == {"k"}
        assert [event.timestamp_ms for event in events] == list(range(9))
        for number, read in enumerate(events):
            start = {read.segment: read.position}
            async with b.client.reader(STREAM, start, until_tail=True) as reader:
                assert [again.payload async for again in reader] == mixed(9)[number:]


async def test_a_slow_reader_keeps_one_large_event_of_a_segment() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            for number in range(5):
                await writer.append(b"%d" % number * 3000)
        async with b.client.reader(
            STREAM, until_tail=True, settings=reader_settings(read_ahead_bytes=1 << 20)
        ) as reader:
            await asyncio.sleep(0.05)
            (opening,) = reader._intake._open.values()
            assert opening.fetcher._held_bytes < 4000
            assert [event.payload async for event in reader] == [
                b"%d" % number * 3000 for number in range(5)
            ]


async def test_a_large_event_whose_parts_were_truncated_is_named_with_what_lies_behind_it() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            await writer.append(b"x" * 200)
        (segment,) = b.segments
        segment.start = segment.boundaries[-2]
        start = {b.every_segment()[0].name: (segment.start, 0)}
        async with b.client.reader(STREAM, start, until_tail=True) as reader:
            with pytest.raises((SegmentTruncated, EventsTruncated)) as caught:
                await anext(reader)
        assert caught.value.fields["start"] == segment.boundaries[-1]


async def test_a_large_event_whose_parts_are_damaged_is_named_with_its_place() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, SETTINGS) as writer:
            await writer.append(b"x" * 200)
        (segment,) = b.segments
        reference = segment.boundaries[-2]
        block = Block(bytes(segment.data), reference)
        found = LargeReference.parse(block[0])
        wrong = LargeReference(0, found.length, found.size, found.crc ^ 1)
        segment.data[reference:] = encode_block(
            [wrong.encode()], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0,
            flags=FLAG_LARGE | FLAG_PARTS_BEFORE,
        )  # fmt: skip
        async with b.client.reader(STREAM, until_tail=True) as reader:
            with pytest.raises(CorruptBlock) as caught:
                await anext(reader)
        assert caught.value.fields["offset"] == reference
