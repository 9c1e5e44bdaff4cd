"""Planning and reading straight from tier 2, whose objects are made by hand."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    CorruptChunk,
    InvalidRequest,
    PlanOutdated,
    SegmentTruncated,
    StreamNotFound,
    TopicNotFound,
)
from anabranch.common.model.names import StreamRef, segment_id, stream_ref
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.model.topics import (
    TopicName,
    backing_stream,
    partition_keys,
    rest_keys,
    segment_number,
)
from anabranch.common.tier2.names import chunk_name
from anabranch.common.tier2.streams import (
    ExportedEpoch,
    ExportedStream,
    encode_stream,
    stream_object_name,
)
from anabranch.spark.options.bounds import AtTime, Bound
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.read import Division, ReadOptions
from anabranch.spark.options.streams import Named
from anabranch.spark.partitioning import Partition
from anabranch.spark.places.tier_two import TierTwoPlace, TierTwoSource, topic_stream
from anabranch.spark.reading.columns import record_batches
from anabranch.spark.reading.planning import plan_read
from kit.tier2_streams import BASE_MS, REF, block, name_of, shared_chunk, tier_two

NAMED, MEMORY = Named((REF,)), TierTwo("memory:")
BLOCKS = [block([b"%d.%d" % (number, index) for index in range(3)]) for number in range(6)]
SIZE = len(BLOCKS[0])


async def planned(
    storage: MemoryChunkStorage, options: ReadOptions
) -> tuple[TierTwoSource, list[Partition]]:
    streams = TierTwoPlace(storage)
    assert isinstance(options.which, Named)
    plan = await plan_read(streams, options, parallelism=2)
    return streams.source(options.which.streams[0]), list(plan.partitions)


async def events_of(source: TierTwoSource, partitions: list[Partition]) -> list[bytes]:
    events: list[bytes] = []
    for piece in (piece for partition in partitions for piece in partition):
        data = await source.read(piece, piece.start)
        batches = record_batches(piece.segment, data, piece.start, skip=piece.skip, keep=piece.keep)
        events += [event for batch in batches for event in batch.column("event").to_pylist()]
    return events


def read(
    storage: MemoryChunkStorage,
    start: Bound = "head",
    end: Bound = "tail",
    partitions: int | None = None,
) -> list[bytes]:
    options = ReadOptions(NAMED, MEMORY, start, end, division=Division(min_partitions=partitions))

    async def perform() -> list[bytes]:
        return await events_of(*await planned(storage, options))

    return asyncio.run(perform())


def names(*places: tuple[int, int]) -> list[bytes]:
    """Events by (block, first index)."""
    return [b"%d.%d" % (number, index) for number, first in places for index in range(first, 3)]


def whole(*numbers: int) -> list[bytes]:
    return names(*((number, 0) for number in numbers))


@pytest.mark.parametrize("partitions", [None, 1, 2, 3, 50])
def test_all_events_are_read_once_whatever_the_partitions(partitions: int | None) -> None:
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:3]], 1: [BLOCKS[3:]]})
    assert read(storage, partitions=partitions) == whole(0, 1, 2, 3, 4, 5)


def test_a_large_piece_is_divided_between_tasks_at_append_boundaries() -> None:
    options = ReadOptions(NAMED, MEMORY, division=Division(min_partitions=3))
    _, partitions = asyncio.run(planned(tier_two({0: [BLOCKS]}), options))
    assert [[(p.start, p.end) for p in part] for part in partitions] == [
        [(0, 2 * SIZE)], [(2 * SIZE, 4 * SIZE)], [(4 * SIZE, 6 * SIZE)],
    ]  # fmt: skip


def test_what_was_truncated_is_not_read_although_its_extent_holds_it() -> None:
    storage = tier_two({0: [BLOCKS[:3]]}, starts={0: SIZE})
    assert read(storage) == whole(1, 2)
    with pytest.raises(SegmentTruncated, match="its events are gone"):
        read(storage, {name_of(0): (0, 0)})


def test_a_segment_that_was_never_flushed_has_no_events_yet() -> None:
    assert read(tier_two({0: [BLOCKS[:1]]}, segment_count=2)) == whole(0)
    assert read(tier_two({}, segment_count=2, flushed=False)) == []


def test_an_earlier_life_of_the_stream_is_not_read_as_the_present_one() -> None:
    storage = tier_two({0: [BLOCKS[:1]]}, incarnation=1, told_incarnation=2)
    assert read(storage) == []


def test_a_life_that_tier_2_does_not_tell_of_yet_is_not_mixed_up_with_the_old_one() -> None:
    with pytest.raises(PlanOutdated, match="new incarnation"):
        read(tier_two({0: [BLOCKS[:1]]}, incarnation=2, told_incarnation=1))


def test_an_unknown_stream_is_not_found() -> None:
    source = TierTwoSource(tier_two({0: [BLOCKS]}), stream_ref("demo/none"))
    with pytest.raises(StreamNotFound):
        asyncio.run(source.bounds())


def test_reading_starts_at_its_first_position_and_ends_before_its_last() -> None:
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:]]})
    first, last = {name_of(0): (SIZE, 1)}, {name_of(0): (4 * SIZE, 2)}
    assert read(storage, first, last) == [*names((1, 1)), *whole(2, 3), b"4.0", b"4.1"]
    assert read(storage, first, {name_of(0): (SIZE, 2)}) == [b"1.1"]
    assert read(storage, last, last) == []
    assert read(storage, last, partitions=3) == [b"4.2", *whole(5)]


def test_a_position_behind_the_last_event_of_a_block_is_the_next_block() -> None:
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:]]})
    assert read(storage, {name_of(0): (SIZE, 3)}, {name_of(0): (3 * SIZE, 3)}) == whole(2, 3)
    assert read(storage, {name_of(0): (4 * SIZE, 3)}) == whole(5)
    assert read(storage, {name_of(0): (5 * SIZE, 3)}) == []
    assert read(storage, {name_of(0): (SIZE, 3)}, {name_of(0): (2 * SIZE, 0)}) == []


def test_head_and_tail_may_be_said_for_either_end() -> None:
    storage = tier_two({0: [BLOCKS]})
    assert read(storage, "tail", "tail") == []
    assert read(storage, "head", "head") == []
    assert read(storage, {}, {}) == whole(*range(6))


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ({name_of(7): (0, 0)}, "tail", "names an unknown segment"),
        ({name_of(0): (6 * SIZE + 1, 0)}, "tail", "beyond the readable part"),
        ({name_of(0): (6 * SIZE, 1)}, "tail", "beyond the readable part"),
        ({name_of(0): (SIZE, 4)}, "tail", "beyond its block's events"),
        ("head", {name_of(0): (SIZE, 4)}, "beyond its block's events"),
        ({name_of(0): (SIZE + 1, 0)}, "tail", "no block starts"),
        ({name_of(0): (SIZE, 1)}, {name_of(0): (SIZE, 0)}, "start lies after the end"),
    ],
)
def test_positions_that_are_none_are_refused(start: Bound, end: Bound, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(tier_two({0: [BLOCKS]}), start, end)


def test_a_chunk_deleted_after_planning_says_to_run_again() -> None:
    storage = tier_two({0: [BLOCKS]})

    async def plan_delete_read() -> None:
        source, partitions = await planned(storage, ReadOptions(NAMED, MEMORY))
        await storage.delete(chunk_name(0, 1, 1))
        await events_of(source, partitions)

    with pytest.raises(PlanOutdated, match="deleted after the read was planned") as refused:
        asyncio.run(plan_delete_read())
    assert "run the read again" in refused.value.remedy


def refusal(storage: MemoryChunkStorage, partitions: int) -> AnabranchError:
    with pytest.raises(AnabranchError) as refused:
        read(storage, partitions=partitions)
    return refused.value


@pytest.mark.parametrize("partitions", [1, 3])
def test_no_flipped_bit_is_ever_read(partitions: int) -> None:
    good = tier_two({0: [BLOCKS]})
    name = chunk_name(0, 1, 1)
    for position in range(0, 6 * SIZE, 7):
        damaged = bytearray(good.objects[name])
        damaged[position] ^= 4
        storage = MemoryChunkStorage()
        storage.objects = {**good.objects, name: bytes(damaged)}
        assert isinstance(refusal(storage, partitions), CorruptChunk)


def test_a_block_that_was_wrong_before_it_was_flushed_is_not_read_either() -> None:
    bad = bytearray(BLOCKS[1])
    bad[-1] ^= 1
    assert isinstance(refusal(tier_two({0: [[BLOCKS[0], bytes(bad)]]}), 1), Corrupt)


def test_pieces_keep_what_a_position_leaves_out_at_the_ends_of_the_read_alone() -> None:
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:4], BLOCKS[4:]]})
    start: Bound = {name_of(0): (0, 2)}
    options = replace(ReadOptions(NAMED, MEMORY), start=start)
    _, partitions = asyncio.run(planned(storage, options))
    assert [piece.skip for part in partitions for piece in part] == [2, 0, 0]


TOPIC = TopicName("orders")


def exported(
    ref: StreamRef, created_ms: int, state: StreamState = StreamState.ACTIVE
) -> dict[str, bytes]:
    """A stream's description in tier 2."""
    keys = [partition_keys(0), rest_keys(1)]
    containers = enumerate((1024, 1025))
    segments = tuple(
        SegmentRange(segment_id(0, segment_number(ordinal, container)), part)
        for (ordinal, container), part in zip(containers, keys, strict=True)
    )
    deleted = state is StreamState.DELETED
    stream = ExportedStream(
        ref=ref, incarnation=1, revision=3, state=state, created_ms=created_ms, container_count=2,
        epochs=() if deleted else (ExportedEpoch(0, segments),),
    )  # fmt: skip
    return {stream_object_name(ref, 3): encode_stream(stream)}


async def test_the_stream_of_a_topic_is_that_of_its_newest_incarnation_that_lives() -> None:
    storage = MemoryChunkStorage()
    refs = [backing_stream(TOPIC, digit * 12) for digit in "abc"]
    other = backing_stream(TopicName("orders-2"), "d" * 12)
    told = {
        **exported(REF, 9),
        **exported(other, 9),
        **exported(refs[0], 1),
        **exported(refs[1], 2),
        **exported(refs[2], 3, StreamState.DELETED),
    }
    for name, data in told.items():
        await storage.put_new(name, [data])
    assert await topic_stream(storage, TOPIC) == refs[1]
    bounds = await TierTwoSource(storage, refs[1]).bounds()
    assert bounds.segments == (), "nothing was flushed yet"
    with pytest.raises(TopicNotFound):
        await topic_stream(storage, TopicName("order"))


async def test_damage_is_told_only_if_the_topic_may_be_behind_it() -> None:
    storage = MemoryChunkStorage()
    ref = backing_stream(TOPIC, "a" * 12)
    damaged = backing_stream(TopicName("broken"), "b" * 12)
    for name, data in {**exported(ref, 1), stream_object_name(damaged, 1): b"?"}.items():
        await storage.put_new(name, [data])
    assert await topic_stream(storage, TOPIC) == ref
    with pytest.raises(Corrupt):
        await topic_stream(storage, TopicName("broken"))


class CountingStorage(MemoryChunkStorage):
    """Notes how often bytes of chunks are asked for."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects
        self.asked: list[str] = []

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.asked.append(name)
        return await super().get_range(name, offset, length)


def test_small_pieces_of_one_chunk_are_read_with_one_request() -> None:
    storage = CountingStorage(shared_chunk(BLOCKS).objects)

    async def perform() -> list[bytes]:
        streams = TierTwoPlace(storage)
        plan = await plan_read(streams, ReadOptions(NAMED, MEMORY), parallelism=1)
        (pieces,) = plan.partitions
        assert len(pieces) == len(BLOCKS)
        return list(await streams.read_whole(pieces))

    assert asyncio.run(perform()) == BLOCKS
    assert storage.asked == [chunk_name(0, 1, 1)]


def test_one_damaged_piece_of_a_joined_request_is_refused() -> None:
    storage = shared_chunk(BLOCKS)
    name = chunk_name(0, 1, 1)
    damaged = bytearray(storage.objects[name])
    damaged[3 * SIZE + 80] ^= 1
    storage.objects[name] = bytes(damaged)

    async def perform() -> None:
        streams = TierTwoPlace(storage)
        plan = await plan_read(streams, ReadOptions(NAMED, MEMORY), parallelism=1)
        await streams.read_whole(plan.partitions[0])

    with pytest.raises(CorruptChunk) as refused:
        asyncio.run(perform())
    assert refused.value.fields["offset"] == 3 * SIZE


def timed(storage: MemoryChunkStorage, at: datetime) -> tuple[list[bytes], list[bytes]]:
    """The events before a time, and those from it on."""
    moment = AtTime(int(at.timestamp() * 1000))
    return read(storage, end=moment), read(storage, start=moment)


def test_a_time_divides_a_segment_where_the_footers_know_a_boundary() -> None:
    times = [BASE_MS + 1000 * number for number in range(6)]
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:]]}, times={0: times})
    for number in range(6):
        at = datetime.fromtimestamp(times[number] / 1000, UTC)
        assert timed(storage, at) == (whole(*range(number)), whole(*range(number, 6)))
    later = datetime.fromtimestamp(times[-1] / 1000 + 1, UTC)
    assert timed(storage, later) == (whole(*range(6)), [])


def test_an_old_extent_behind_a_young_one_is_not_before_the_time() -> None:
    young, old = BASE_MS + 9000, BASE_MS
    times = [old, old, young, young, old, old]
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:4], BLOCKS[4:]]}, times={0: times})
    at = datetime.fromtimestamp(young / 1000, UTC)
    assert timed(storage, at) == (whole(0, 1), whole(2, 3, 4, 5))


def test_parts_of_a_large_event_are_found_in_an_earlier_chunk() -> None:
    storage = tier_two({0: [BLOCKS[:2], BLOCKS[2:]]})
    source = TierTwoSource(storage, REF)

    async def perform() -> tuple[bytes, bytes]:
        first = await source.read_at(name_of(0), SIZE, 10 * SIZE)
        return first, await source.read_at(name_of(0), 2 * SIZE, SIZE)

    assert asyncio.run(perform()) == (BLOCKS[1], BLOCKS[2])
    with pytest.raises(SegmentTruncated):
        asyncio.run(source.read_at(name_of(0), 6 * SIZE, 1))
