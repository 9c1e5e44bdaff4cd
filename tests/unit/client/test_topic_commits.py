"""Named consumers: committed offsets, and two consumers of one name."""

import asyncio
from contextlib import suppress

import pytest

from anabranch.client import (
    ConsumerInUse,
    ConsumerNotFound,
    ConsumerOffset,
    InvalidRequest,
    Offset,
    PartitionNotFound,
    ReaderSettings,
    RecordEvicted,
    TooManyAttributes,
    Unavailable,
)
from anabranch.client.topics.commits import attribute_of
from anabranch.client.topics.consuming import COMMIT_S
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.messages import Done, Message, UpdateAttributes
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault
from kit.fake_topics import TOPIC, TopicBench, topic_bench

SETTINGS = ReaderSettings(wait_ms=50, retry_timeout_s=1.0)


class SteppedClock(SystemClock):
    """Sleeps of `COMMIT_S` end when `step` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.due = asyncio.Event()
        self.waiting = 0

    async def sleep(self, seconds: float) -> None:
        if seconds != COMMIT_S:
            await super().sleep(seconds)
            return
        self.waiting += 1
        try:
            await self.due.wait()
        finally:
            self.waiting -= 1

    async def step(self) -> None:
        """Let the automatic commits happen once."""
        await until(lambda: self.waiting > 0)
        self.due.set()
        await asyncio.sleep(0)
        self.due.clear()


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def committed(b: TopicBench, topic: str = TOPIC) -> dict[tuple[str, int], int]:
    """(consumer, partition) → its committed offset."""
    return {
        (row.consumer, row.partition): row.offset
        async for row in b.client.topics.consumers.list(topic)
    }


async def read(b: TopicBench, count: int, name: str = "billing", **how: object) -> list[int]:
    """The numbers of the next records that a named consumer reads, until its block ends."""
    made = b.client.topics.consumer(TOPIC, name=name, settings=SETTINGS, **how)  # type: ignore[call-overload]
    async with made as consumer:
        return [(await anext(consumer)).offset for _ in range(count)]


async def test_a_consumer_resumes_after_the_last_record_that_it_has_seen() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(10))
        assert await read(b, 4) == [0, 1, 2, 3]
        assert await committed(b) == {("billing", 0): 3}
        assert await read(b, 3) == [4, 5, 6]
        assert await read(b, 2, "shipping") == [0, 1]
        assert await committed(b) == {("billing", 0): 6, ("shipping", 0): 1}


async def test_a_consumer_that_fails_gets_the_record_in_hand_again() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(5))
        with suppress(ZeroDivisionError):
            async with b.client.topics.consumer(TOPIC, name="billing") as consumer:
                async for record in consumer:
                    _ = 1 // (2 - record.offset)
        assert await committed(b) == {("billing", 0): 1}
        assert await read(b, 1) == [2]


async def test_commits_happen_every_ten_seconds_without_the_record_in_hand() -> None:
    clock = SteppedClock()
    async with topic_bench(clock=clock) as b:
        await b.fill(numbered(5))
        consumer = b.client.topics.consumer(TOPIC, name="billing")
        async with consumer:
            for _ in range(3):
                await anext(consumer)
            await clock.step()
            await until(lambda: bool(b.segment(0).attributes))
            await until(lambda: clock.waiting > 0)
            assert await committed(b) == {("billing", 0): 1}
        assert await committed(b) == {("billing", 0): 2}


async def test_a_manual_consumer_commits_only_when_it_says_so() -> None:
    async with topic_bench(2) as b:
        await b.fill(numbered(5))
        async with b.client.topics.consumer(TOPIC, name="billing", commit="manual") as consumer:
            for _ in range(3):
                await anext(consumer)
            await consumer.commit()
            await anext(consumer)
        assert await committed(b) == {("billing", 0): 2, ("billing", 1): -1}


async def test_an_older_number_may_be_committed() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(9))
        async with b.client.topics.consumer(TOPIC, name="billing", commit="manual") as consumer:
            for _ in range(6):
                await anext(consumer)
            await consumer.commit()
            await consumer.commit({(TOPIC, 0): 1})
            with pytest.raises(PartitionNotFound):
                await consumer.commit({(TOPIC, 7): 1})
        assert await read(b, 1) == [2]


async def test_batches_count_as_seen_when_the_next_one_is_asked_for() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(4))
        with suppress(ZeroDivisionError):
            async with b.client.topics.consumer(TOPIC, name="billing", until_end=True) as consumer:
                async for batch in consumer.batches():
                    _ = 1 // (2 - batch.offset)
        assert await committed(b) == {("billing", 0): 1}


async def test_two_live_consumers_of_a_name_do_not_undo_each_other() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(10))
        how = {"name": "billing", "commit": "manual"}
        one = b.client.topics.consumer(TOPIC, **how)  # type: ignore[call-overload]
        two = b.client.topics.consumer(TOPIC, **how)  # type: ignore[call-overload]
        async with one, two:
            for _ in range(5):
                await anext(one)
            await anext(two)
            await one.commit()
            with pytest.raises(ConsumerInUse) as told:
                await two.commit()
            assert told.value.fields["offset"] == 4
            assert await committed(b) == {("billing", 0): 4}
            await anext(one)
            await one.commit()
        assert await committed(b) == {("billing", 0): 5}


async def test_an_automatic_commit_that_is_refused_ends_the_consumer() -> None:
    clock = SteppedClock()
    async with topic_bench(clock=clock) as b:
        await b.fill(numbered(10))
        async with b.client.topics.consumer(TOPIC, name="billing") as consumer:
            await anext(consumer)
            await read(b, 5)
            for _ in range(3):
                await anext(consumer)
            await clock.step()
            await until(lambda: clock.waiting == 0)
            with pytest.raises(ConsumerInUse):
                async for _ in consumer:
                    pass
            await consumer.close()
        assert await committed(b) == {("billing", 0): 4}


async def test_a_commit_whose_answer_was_lost_is_not_taken_for_another_consumers() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(10))
        lost = 0

        def lose_answers(direction: Direction, message: Message) -> Fault | AnabranchError | None:
            nonlocal lost
            if direction == "out" and isinstance(message, Done):
                lost += 1
                return Fault.DROP
            return None

        made = b.client.topics.consumer(TOPIC, name="billing", commit="manual", settings=SETTINGS)
        async with made as consumer:
            for _ in range(3):
                await anext(consumer)
            b.store.fault = lose_answers
            with pytest.raises(AnabranchError):
                await consumer.commit()
            assert lost > 1
            b.store.fault = lambda *_: None
            await anext(consumer)
            await consumer.commit()
        assert await committed(b) == {("billing", 0): 3}


async def test_a_client_that_the_store_has_forgotten_commits_all_the_same() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(10))
        async with b.client.topics.consumer(TOPIC, name="billing", commit="manual") as consumer:
            await anext(consumer)
            await consumer.commit()
            b.segment(0).last_numbers.clear()
            await anext(consumer)
            await consumer.commit()
        assert await committed(b) == {("billing", 0): 1}


async def test_absolute_numbers_and_times_win_over_the_committed_offset() -> None:
    async with topic_bench() as b:
        b.segment(0).now_ms = 5
        await b.fill(numbered(9))
        assert await read(b, 6) == list(range(6))
        assert await read(b, 1, start=2) == [2]
        assert await committed(b) == {("billing", 0): 2}
        assert await read(b, 1, start=Offset.at(0)) == [0]
        assert await read(b, 1, start=Offset.from_beginning(5)) == [1]
        assert await read(b, 1, start="end") == [2]


async def test_partitions_that_are_new_since_the_last_commit_are_read_from_the_beginning() -> None:
    async with topic_bench(1) as b:
        await b.fill(numbered(3))
        async with b.client.topics.consumer(TOPIC, name="billing", start="end"):
            pass
        assert await committed(b) == {("billing", 0): 2}
        b.controller.add_partitions(TOPIC, 1)
        await b.fill([b"later"], 0)
        await b.fill(numbered(2), 1)
        made = b.client.topics.consumer(TOPIC, name="billing", start="end", until_end=True)
        async with made as consumer:
            found = sorted([(r.partition, r.offset) async for r in consumer])
        assert found == [(0, 3), (1, 0), (1, 1)]


async def test_partitions_added_while_consuming_are_committed_too() -> None:
    async with topic_bench(1) as b:
        made = b.client.topics.consumer(TOPIC, name="billing", settings=SETTINGS)
        async with made as consumer:
            b.controller.add_partitions(TOPIC, 1)
            await b.fill(numbered(2), 1)
            for _ in range(2):
                await anext(consumer)
        assert await committed(b) == {("billing", 0): -1, ("billing", 1): 1}


async def test_offsets_do_not_outlive_the_incarnation_of_their_topic() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(5))
        assert await read(b, 5) == list(range(5))
        await b.client.topics.delete(TOPIC)
        await b.client.topics.create(TOPIC)
        assert await committed(b) == {}
        await b.fill([b"again"])
        assert await read(b, 1) == [0]


async def test_a_committed_record_whose_successor_was_evicted_is_told_of() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(9))
        assert await read(b, 2) == [0, 1]
        b.segment(0).truncate(b.segment(0).boundaries[4])
        async with b.client.topics.consumer(TOPIC, name="billing") as consumer:
            with pytest.raises(RecordEvicted) as told:
                await anext(consumer)
            assert (told.value.fields["offset"], told.value.fields["next_available"]) == (2, 5)
            assert (await anext(consumer)).offset == 5


async def test_the_list_has_a_row_per_consumer_and_partition() -> None:
    async with topic_bench(2) as b:
        await b.fill(numbered(2), 1)
        await read(b, 2)
        rows = [row async for row in b.client.topics.consumers.list()]
        assert [row[:4] for row in rows] == [("billing", TOPIC, 0, -1), ("billing", TOPIC, 1, 1)]
        assert all(isinstance(row, ConsumerOffset) and row.last_seen_ms > 0 for row in rows)
        assert [row async for row in b.client.topics.consumers.list("other")] == []


async def test_deleting_forgets_one_partition_or_the_whole_consumer() -> None:
    async with topic_bench(2) as b:
        await read(b, 0)
        consumers = b.client.topics.consumers
        await consumers.delete("billing", TOPIC, 1)
        assert await committed(b) == {("billing", 0): -1}
        with pytest.raises(ConsumerNotFound):
            await consumers.delete("billing", TOPIC, 1)
        with pytest.raises(PartitionNotFound):
            await consumers.delete("billing", TOPIC, 2)
        await consumers.delete("billing", TOPIC)
        assert b.controller.topics[TOPIC].consumers == {}
        with pytest.raises(ConsumerNotFound):
            await consumers.delete("billing", TOPIC)


async def test_a_partition_keeps_the_offsets_of_so_many_consumers() -> None:
    async with topic_bench() as b:
        b.segment(0).attributes = {number.to_bytes(16, "big"): 0 for number in range(255)}
        with pytest.raises(TooManyAttributes):
            await read(b, 0)


async def test_a_consumer_without_a_name_commits_nothing() -> None:
    async with topic_bench() as b:
        async with b.client.topics.consumer(TOPIC) as consumer:
            with pytest.raises(InvalidRequest, match="commits no offsets"):
                await consumer.commit()
        for wrong in ("", "x" * 256, "a\nb"):
            with pytest.raises(InvalidRequest):
                b.client.topics.consumer(TOPIC, name=wrong)
        assert b.segment(0).attributes == {}


async def test_an_unreachable_store_fails_no_automatic_commit() -> None:
    clock = SteppedClock()
    async with topic_bench(clock=clock) as b:
        await b.fill(numbered(3))

        def refuse(direction: Direction, message: Message) -> AnabranchError | None:
            is_commit = direction == "in" and isinstance(message, UpdateAttributes)
            return Unavailable("not now") if is_commit else None

        made = b.client.topics.consumer(TOPIC, name="billing", settings=SETTINGS)
        async with made as consumer:
            await anext(consumer)
            await anext(consumer)
            b.store.fault = refuse
            await clock.step()
            await until(lambda: clock.waiting > 0)
            b.store.fault = lambda *_: None
            assert (await anext(consumer)).offset == 2
        assert await committed(b) == {("billing", 0): 2}


def test_the_ids_of_attributes_differ_by_name_and_purpose() -> None:
    ids = {attribute_of(name, what) for name in ("a", "b") for what in ("offset", "time")}
    assert len(ids) == 4
    assert {len(each) for each in ids} == {16}
