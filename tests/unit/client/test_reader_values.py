"""Readers with a serializer: values instead of bytes, and events that are none."""

import pytest

from anabranch.client import JsonSerializer, SerializationFailed, TextSerializer
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings

READER = reader_settings(wait_ms=10)


class Fragile:
    """Fails by a bug of its own."""

    def serialize(self, value: int) -> bytes:
        return b"%d" % value

    def deserialize(self, data: bytes) -> int:
        return int(data)


async def fill(b: Bench, *events: bytes) -> None:
    async with b.client.writer(STREAM, writer_settings()) as writer:
        writer.write_batch(list(events))


async def test_events_have_the_values_of_the_serializer() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, serializer=JsonSerializer()) as writer:
            writer.write({"a": 1}, key="k")
            writer.write([None])
        async with b.client.reader(
            STREAM, until_tail=True, settings=READER, serializer=JsonSerializer()
        ) as reader:
            events = [event async for event in reader]
        assert [(event.payload, event.key) for event in events] == [({"a": 1}, "k"), ([None], None)]


@pytest.mark.parametrize("bad", [{0}, {2}, {4}, {1, 2}, {0, 4}, {0, 1, 2, 3, 4}])
async def test_an_event_that_is_no_value_is_told_of_once_and_all_others_are_read(
    bad: set[int],
) -> None:
    async with bench() as b:
        await fill(b, *[b"\xff" if number in bad else b"%d" % number for number in range(5)])
        await fill(b, b"5")
        found: list[str] = []
        told: list[object] = []
        async with b.client.reader(
            STREAM, until_tail=True, settings=READER, serializer=TextSerializer()
        ) as reader:
            while True:
                (name,) = positions = reader.positions()
                expected = positions[name].event_index
                try:
                    event = await anext(reader, None)
                except SerializationFailed as error:
                    told.append((error.fields["segment"], error.fields["index"], expected))
                else:
                    if event is None:
                        break
                    assert event.event_index == expected
                    found.append(event.payload)
        assert told == [(name, number, number) for number in sorted(bad)]
        assert found == [str(number) for number in range(6) if number not in bad]


async def test_a_bug_of_a_serializer_loses_nothing_either() -> None:
    async with bench() as b:
        await fill(b, b"1", b"no number", b"3")
        async with b.client.reader(
            STREAM, until_tail=True, settings=READER, serializer=Fragile()
        ) as reader:
            assert (await anext(reader)).payload == 1
            with pytest.raises(SerializationFailed, match="ValueError"):
                await anext(reader)
            assert [event.payload async for event in reader] == [3]


async def test_batches_keep_bytes_and_give_values_on_demand() -> None:
    async with bench() as b:
        await fill(b, b"1", b"2")
        await fill(b, b"3", b"\xff")
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            first, second = [batch async for batch in reader.batches()]
        assert first.values(TextSerializer()) == ["1", "2"]
        with pytest.raises(SerializationFailed) as failed:
            second.values(TextSerializer())
        assert failed.value.fields["offset"] == second.start.offset
        assert failed.value.fields["index"] == 1
