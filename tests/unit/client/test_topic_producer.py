"""The producer against a store that misbehaves on request."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.client import (
    InvalidRequest,
    JsonSerializer,
    OutcomeUnknown,
    PartitionNotFound,
    RecordMetadata,
    TopicNotFound,
    WriterSettings,
)
from anabranch.client.topics.partitioner import partition_of
from anabranch.common.model.objects import Compression, Computed, TopicSpec
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Appended, ConditionalAppend, Message
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault
from kit.fake_topics import TOPIC, topic_bench

SETTINGS = WriterSettings(retry_timeout_s=5.0, ack_timeout_s=2.0)


async def test_records_with_keys_go_to_the_partitions_of_their_keys() -> None:
    async with topic_bench(3) as b:
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(30):
                producer.write(b"%d" % number, key=f"k{number % 5}")
        for record in await b.stored():
            assert record.key is not None
            assert record.partition == partition_of(record.key.encode(), 3)
        assert sorted(int(r.value) for r in await b.stored()) == list(range(30))


async def test_batches_without_keys_take_turns_among_the_partitions() -> None:
    async with topic_bench(3) as b:
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(6):
                producer.write_batch([b"%d" % number] * 2)
                await producer.flush()
        found = await b.values()
        assert sorted(map(len, found.values())) == [4, 4, 4]
        turns = {int(value): partition for partition, values in found.items() for value in values}
        assert [(turns[n + 1] - turns[n]) % 3 for n in range(5)] == [1] * 5


async def test_a_partition_without_a_leader_gets_no_records_without_keys() -> None:
    async with topic_bench(3) as b:
        b.controller.topics[TOPIC].without_leader.add(1)
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(6):
                producer.write(b"%d" % number)
                await producer.flush()
        found = await b.values()
        assert sorted(found) == [0, 2]
        assert [len(values) for values in found.values()] == [3, 3]


async def test_if_no_partition_has_a_leader_they_all_take_turns() -> None:
    async with topic_bench(2) as b:
        b.controller.topics[TOPIC].without_leader |= {0, 1}
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(4):
                producer.write(b"%d" % number)
                await producer.flush()
        assert [len(values) for values in (await b.values()).values()] == [2, 2]


async def test_a_chosen_partition_takes_records_in_every_form() -> None:
    async with topic_bench(3) as b:
        table = pa.table({"value": [b"e", b"f"], "key": ["x", None]})
        async with b.client.topics.producer(TOPIC, replace(SETTINGS, block_size_bytes=40)) as p:
            p.write(b"a", partition=2)
            p.write(b"b", key="k", partition=2)
            p.write_batch([b"c"] * 9, partition=2)
            p.write_batch([b"d", b"d"], keys=["k", None], partition=2)
            p.write_arrow(table, key="key", partition=2)
            await p.append(b"g", partition=2)
            assert (await p.send(b"h", partition=2)).partition == 2
        found = await b.stored()
        assert {record.partition for record in found} == {2}
        assert b"".join(record.value for record in found) == b"abcccccccccddefgh"
        assert [r.key for r in found if r.key] == ["k", "k", "x"]


async def test_after_a_chosen_partition_keys_decide_again() -> None:
    async with topic_bench(2) as b:
        async with b.client.topics.producer(TOPIC) as producer:
            producer.write(b"a", key="1", partition=1)
            producer.write(b"b", key="1")
        assert [(r.partition, r.value) for r in sorted(await b.stored())] == [(0, b"b"), (1, b"a")]


async def test_a_partition_that_does_not_exist_is_refused_and_nothing_is_written() -> None:
    async with topic_bench(2) as b, b.client.topics.producer(TOPIC) as producer:
        for wrong in (2, -1):
            with pytest.raises(PartitionNotFound):
                producer.write(b"a", partition=wrong)
            with pytest.raises(PartitionNotFound):
                await producer.send(b"a", partition=wrong)
        assert await b.stored() == []


async def test_values_keys_and_times_are_stored_as_they_were_given() -> None:
    async with topic_bench() as b:
        made = b.client.topics.producer(TOPIC, serializer=JsonSerializer())
        async with made as producer:
            producer.write({"a": 1}, key=b"k", timestamp_ms=7)
        async with b.client.topics.consumer(
            TOPIC, until_end=True, serializer=JsonSerializer()
        ) as consumer:
            record = await anext(consumer)
        assert (record.value, record.key, record.timestamp_ms) == ({"a": 1}, "k", 7)


async def test_new_partitions_take_records_after_a_refresh() -> None:
    async with topic_bench(1) as b, b.client.topics.producer(TOPIC) as producer:
        producer.write(b"a", key="4")
        await b.client.topics.add_partitions(TOPIC)
        with pytest.raises(PartitionNotFound):
            producer.write(b"b", partition=1)
        assert await producer.refresh() == 2
        producer.write(b"c", key="4")
        await producer.flush()
        assert [(r.partition, r.value) for r in sorted(await b.stored())] == [(0, b"a"), (1, b"c")]


async def test_a_topic_deleted_during_a_write_ends_the_producer() -> None:
    async with topic_bench(1) as b:
        producer = b.client.topics.producer(TOPIC)
        await producer.__aenter__()
        await b.client.topics.delete(TOPIC)
        producer.write(b"a")
        with pytest.raises(TopicNotFound):
            await producer.flush()
        with pytest.raises(TopicNotFound):
            producer.write(b"b")
        with pytest.raises(TopicNotFound):
            await producer.refresh()
        await producer.close()


async def test_another_topic_of_the_name_is_not_written_to() -> None:
    async with topic_bench(1) as b:
        producer = b.client.topics.producer(TOPIC)
        await producer.__aenter__()
        await b.client.topics.delete(TOPIC)
        await b.client.topics.create(TOPIC)
        with pytest.raises(TopicNotFound, match="another one was created"):
            await producer.refresh()
        await producer.close()


async def test_a_missing_topic_is_told_at_the_beginning() -> None:
    async with topic_bench() as b:
        with pytest.raises(TopicNotFound):
            await b.client.topics.producer("other").__aenter__()


async def test_the_topics_codec_is_used_and_others_are_refused() -> None:
    spec = TopicSpec(replicas=Computed(1), compression=Compression.ZSTD)
    async with topic_bench(spec=spec) as b:
        with pytest.raises(InvalidRequest, match="does not match with topic level compression"):
            await b.client.topics.producer(TOPIC, compression="none").__aenter__()
        async with b.client.topics.producer(TOPIC) as producer:
            producer.write_batch([b"alike " * 50] * 20)
            await producer.flush()
            await producer.send(b"alike " * 500)
        data, at = bytes(b.segment(0).data), 0
        codecs = []
        while at < len(data):
            header = Block(data, at).header
            codecs.append(header.codec)
            at += header.size
        assert codecs == [1, 1]
        assert len(await b.stored()) == 21


async def test_a_lost_connection_stores_nothing_twice() -> None:
    async with topic_bench(2) as b:
        dropped = 0

        def fault(direction: Direction, message: Message) -> Fault | None:
            nonlocal dropped
            if direction == "out" and isinstance(message, Appended) and dropped < 2:
                dropped += 1
                return Fault.DROP
            return None

        b.store.fault = fault
        async with b.client.topics.producer(TOPIC, SETTINGS) as producer:
            for number in range(20):
                producer.write(b"%d" % number, partition=number % 2)
        assert dropped == 2
        assert await b.values() == {
            partition: [b"%d" % number for number in range(partition, 20, 2)]
            for partition in (0, 1)
        }


# --- send -----------------------------------------------------------------------------------------


async def test_a_sent_record_knows_its_partition_and_number() -> None:
    async with topic_bench(2) as b, b.client.topics.producer(TOPIC) as producer:
        await b.fill([b"x", b"y"], partition=1)
        assert await producer.send(b"a", key="4") == RecordMetadata(1, 2)
        assert await producer.send(b"b", key="4") == RecordMetadata(1, 3)
        assert await producer.send(b"c", key="1") == RecordMetadata(0, 0)
        places = {(r.partition, r.offset): r.value for r in await b.stored()}
        assert (places[1, 2], places[1, 3], places[0, 0]) == (b"a", b"b", b"c")


async def test_sends_that_wait_together_travel_together_and_get_their_own_numbers() -> None:
    async with topic_bench() as b, b.client.topics.producer(TOPIC) as producer:
        async with asyncio.TaskGroup() as group:
            sends = [group.create_task(producer.send(b"%d" % number)) for number in range(50)]
        found = [sent.result() for sent in sends]
        assert sorted(each.offset for each in found) == list(range(50))
        stored = {record.offset: int(record.value) for record in await b.stored()}
        assert {each.offset: number for number, each in enumerate(found)} == stored
        assert len(b.segment(0).boundaries) < 10
        assert producer.used_bytes == 0


@pytest.mark.parametrize("tells_numbers", [True, False])
async def test_numbers_are_exact_beside_other_producers(tells_numbers: bool) -> None:
    async with topic_bench() as b:
        b.store.tells_numbers = tells_numbers
        async with b.client.topics.producer(TOPIC) as one, b.client.topics.producer(TOPIC) as two:
            for number in range(20):
                two.write(b"other")
                mine = await one.send(b"%d" % number)
                await two.flush()
                stored = {record.offset: record.value for record in await b.stored()}
                assert stored[mine.offset] == b"%d" % number


@pytest.mark.parametrize("tells_numbers", [True, False])
async def test_a_repeated_send_has_the_number_of_its_only_record(tells_numbers: bool) -> None:
    async with topic_bench() as b:
        b.store.tells_numbers = tells_numbers
        async with b.client.topics.producer(TOPIC, SETTINGS) as producer:
            await producer.send(b"first")
            lost = asyncio.Event()

            def fault(direction: Direction, message: Message) -> Fault | None:
                if direction == "out" and isinstance(message, Appended) and not lost.is_set():
                    lost.set()
                    return Fault.DROP
                return None

            b.store.fault = fault
            async with asyncio.TaskGroup() as tasks:
                sent = tasks.create_task(producer.send(b"mine"))
                await lost.wait()
                b.segment(0).append(bytes(16), _append(b"other"), _block(b"other"))
            assert sent.result() == RecordMetadata(0, 1)
        assert [record.value for record in await b.stored()] == [b"first", b"mine", b"other"]


def _append(value: bytes) -> ConditionalAppend:
    return ConditionalAppend(segment="", writer_id=bytes(16), first_event_number=1, count=1)


def _block(value: bytes) -> bytes:
    return encode_block([value], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


async def test_a_send_to_a_deleted_topic_fails_in_the_words_of_topics() -> None:
    async with topic_bench() as b, b.client.topics.producer(TOPIC, SETTINGS) as producer:
        await b.client.topics.delete(TOPIC)
        with pytest.raises(TopicNotFound):
            await producer.send(b"a")


async def test_closing_ends_the_sends_under_way() -> None:
    async with topic_bench() as b:
        producer = b.client.topics.producer(TOPIC, SETTINGS)
        await producer.__aenter__()
        b.store.fault = lambda _, message: Fault.HOLD if isinstance(message, Appended) else None
        async with asyncio.TaskGroup() as tasks:
            sent = tasks.create_task(_outcome(producer.send(b"a")))
            await until(lambda: bool(b.segment(0).data))
            await producer.close()
        assert isinstance(sent.result(), OutcomeUnknown)


async def _outcome(send: object) -> object:
    try:
        return await send  # type: ignore[misc]
    except OutcomeUnknown as error:
        return error
