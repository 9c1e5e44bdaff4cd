"""What a writer tells when it is asked: of acknowledgements, and of time."""

import asyncio

import pytest

from anabranch.client import EventWriter
from anabranch.common.errors import Closed, InvalidRequest, StreamSealed, Unavailable
from anabranch.common.wire.messages import Appended, SetupAppend
from kit.client_bench import STREAM, Bench, bench, until, writer_settings
from kit.fake_segstore import Fault, no_faults

LOW, HIGH = "sensor-0", "key1"
"""Keys of the first and of the second half of the key space."""


def hold_acks(at: str, message: object) -> Fault | None:
    return Fault.HOLD if at == "out" and isinstance(message, Appended) else None


# --- acknowledgements --------------------------------------------------------------------------


async def test_an_acknowledgement_waits_for_the_last_write_and_what_was_before_it() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        b.store.fault = hold_acks
        writer.write(b"1", LOW)
        first = writer.acknowledgement()
        writer.write(b"2", HIGH)
        second = writer.acknowledgement()
        writer.write_batch([b"3", b"4"], keys=[LOW, HIGH])
        both = writer.acknowledgement()
        await until(lambda: sum(segment.event_count for segment in b.segments) == 4)
        assert writer.used_bytes > 0
        b.store.fault = no_faults
        b.store.release()
        await both
        await first
        await second
        assert writer.used_bytes == 0


async def test_an_acknowledgement_of_one_segment_does_not_wait_for_another() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", HIGH)
        b.store.fault = lambda at, m: (
            Unavailable("not now") if at == "in" and isinstance(m, SetupAppend) else None
        )
        writer.write(b"1", LOW)
        writer.write(b"2", HIGH)
        await writer.acknowledgement()
        assert [segment.event_count for segment in b.segments] == [0, 2]
        b.store.fault = no_faults


async def test_nothing_written_is_acknowledged_at_once() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.acknowledgement()
        await writer.append(b"x")
        await writer.acknowledgement()


async def test_an_acknowledgement_comes_from_the_successors_of_a_sealed_segment() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", LOW)
        for _ in b.scale_to(2):
            pass
        writer.write_batch([b"1", b"2"], keys=[LOW, HIGH])
        asked_before = writer.acknowledgement()
        await asked_before
        assert await b.by_key() == {LOW: [b"0", b"1"], HIGH: [b"2"]}
        await writer.acknowledgement()


async def test_an_acknowledgement_asked_for_after_the_hand_over_waits_all_the_same() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", LOW)
        for _ in b.scale_to(2):
            pass
        b.store.fault = hold_acks
        writer.write(b"1", LOW)
        await until(lambda: any(segment.event_count for segment in b.segments[1:]))
        asked = writer.acknowledgement()
        for _ in range(20):
            await asyncio.sleep(0)
        assert isinstance(asked, asyncio.Future)
        assert not asked.done()
        b.store.fault = no_faults
        b.store.release()
        await asked


async def test_an_acknowledgement_that_will_not_come_says_why_to_everybody() -> None:
    async with bench() as b:
        writer = await b.client.writer(STREAM).__aenter__()
        await writer.append(b"stored")
        b.seal()
        writer.write(b"too late")
        asked = [writer.acknowledgement(), writer.acknowledgement()]
        told = []
        for each in asked:
            with pytest.raises(StreamSealed) as caught:
                await each
            told.append(caught.value)
        assert told[0] is not told[1]
        with pytest.raises(StreamSealed):
            writer.acknowledgement()


async def test_a_closed_writer_says_that_it_is_closed() -> None:
    async with bench() as b:
        writer = await b.client.writer(STREAM).__aenter__()
        writer.write(b"x")
        await writer.close()
        for call in (writer.acknowledgement, lambda: writer.write(b"y")):
            with pytest.raises(Closed):
                call()
        with pytest.raises(Closed):
            await writer.note_time(1)


# --- time --------------------------------------------------------------------------------------


async def marked(b: Bench, writer: EventWriter) -> tuple[int, dict[int, int]]:
    """The writer's mark, the only one: its time, and segment → position."""
    (mark,) = await b.client.streams.writer_marks(STREAM)
    assert mark.writer_id == writer.writer_id.hex()
    assert list(mark.positions) == sorted(mark.positions)
    return mark.timestamp_ms, {place.segment_id: place.offset for place in mark.positions}


async def test_a_noted_time_says_where_what_was_written_before_it_lies() -> None:
    async with bench(segment_count=3) as b:
        async with b.client.writer(STREAM) as writer:
            writer.write_batch([b"1", b"22"], keys=[LOW, LOW])
            await writer.note_time(1000)
            first = {0: len(b.segments[0].data)}
            assert await marked(b, writer) == (1000, first)
            writer.write(b"3", "key1")
            await writer.note_time(1000)
            ends = [len(segment.data) for segment in b.segments]
            assert await marked(b, writer) == (1000, {n: end for n, end in enumerate(ends) if end})
            with pytest.raises(InvalidRequest) as caught:
                await writer.note_time(999)
            assert caught.value.fields["noted_ms"] == 1000
            for wrong in (-1, 1 << 53, "now"):
                with pytest.raises(InvalidRequest):
                    await writer.note_time(wrong)  # type: ignore[arg-type]
        assert await b.client.streams.writer_marks(STREAM) == (), "who left holds nothing back"


async def test_positions_of_sealed_segments_stay_and_lost_answers_are_made_up_for() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        await writer.append(b"0", LOW)
        end = len(b.segments[0].data)
        for _ in b.scale_to(2):
            pass
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "out" and isinstance(m, Appended) else None
        )
        writer.write(b"1", LOW)
        await until(lambda: any(segment.event_count for segment in b.segments[1:]))
        b.store.fault = no_faults
        await writer.note_time(5)
        (_, positions) = await marked(b, writer)
        low, *_ = (each for each in b.every_segment() if each.segment_id)
        assert positions == {0: end, low.segment_id: len(b.store.segments[low.name].data)}


async def test_positions_of_the_oldest_segments_are_left_out_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.client.writing.time_notes.SEGMENT_COUNT_MAX", 2)
    async with bench() as b, b.client.writer(STREAM) as writer:
        for _ in range(4):
            await writer.append(b"x", LOW)
            for _ in b.scale_to(1):
                pass
        await writer.append(b"x", LOW)
        await writer.note_time(5)
        newest = sorted(each.segment_id for each in b.every_segment())[-2:]
        assert list((await marked(b, writer))[1]) == newest


async def test_a_segment_that_was_truncated_away_is_left_out() -> None:
    async with bench() as b, b.client.writer(STREAM, writer_settings()) as writer:
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "out" and isinstance(m, Appended) else None
        )
        writer.write(b"1", LOW)
        await until(lambda: b.segments[0].event_count > 0)
        b.store.fault = no_faults
        await writer.flush()
        for _ in b.scale_to(1):
            pass
        await writer.append(b"2", LOW)
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        await writer.note_time(5)
        (_, positions) = await marked(b, writer)
        assert list(positions) == [life.segment_id for life in b.stream.current]
