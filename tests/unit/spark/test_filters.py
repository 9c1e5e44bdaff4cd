"""Pushed filters: what they leave of a read, and that no byte outside is read."""

import asyncio
from collections.abc import Sequence

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.key_range import KeyRange
from anabranch.common.tier2.names import chunk_name
from anabranch.spark.options.columns import DEFAULT, ON_REQUEST
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.read import ReadOptions
from anabranch.spark.options.streams import Named
from anabranch.spark.places.ports import SegmentBounds
from anabranch.spark.places.tier_two import TierTwoPlace
from anabranch.spark.reading.columns import record_batches
from anabranch.spark.reading.filters import ALL, Wanted, pushed
from anabranch.spark.reading.planning import plan_read
from kit.tier2_streams import REF, block, name_of, tier_two

COLUMNS = (*DEFAULT, *ON_REQUEST)
BLOCKS = [block([b"%d.%d" % (number, index) for index in range(3)]) for number in range(6)]
SIZE = len(BLOCKS[0])


def wanted_of(*filters: Filter) -> Wanted:
    return pushed(filters, COLUMNS)[0]


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (EqualTo(("segment",), "a"), Wanted(segments=frozenset("a"))),
        (In(("stream",), ("a", "b")), Wanted(streams=frozenset("ab"))),
        (EqualTo(("scope",), "a"), Wanted(scopes=frozenset("a"))),
        (IsNotNull(("offset",)), ALL),
    ],
)
def test_a_filter_that_the_plan_fulfils_is_not_applied_again(each: Filter, wanted: Wanted) -> None:
    assert pushed([each], COLUMNS) == (wanted, [])


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (EqualTo(("offset",), 5), Wanted(offset_first=5, offset_stop=6)),
        (GreaterThan(("offset",), 5), Wanted(offset_first=6)),
        (GreaterThanOrEqual(("offset",), 5), Wanted(offset_first=5)),
        (LessThan(("offset",), 5), Wanted(offset_stop=5)),
        (LessThanOrEqual(("offset",), 5), Wanted(offset_stop=6)),
        (GreaterThan(("key_position",), 0.5), Wanted(key_lowest=0.5)),
        (LessThan(("key_position",), 0.5), Wanted(key_highest=0.5)),
        (
            EqualTo(("routing_key",), "k"),
            Wanted(key_positions=frozenset((routing_position("k"),))),
        ),
        (IsNotNull(("routing_key",)), ALL),
        (EqualTo(("event_time",), 1), ALL),
        (GreaterThan(("event_time",), 1), ALL),
        (GreaterThan(("segment",), "a"), ALL),
        (GreaterThan(("key_position",), float("nan")), ALL),
        (EqualTo(("segment",), None), ALL),
        (In(("segment",), ("a", None)), ALL),
        (Not(EqualTo(("segment",), "a")), ALL),
        (EqualTo(("segment", "field"), "a"), ALL),
    ],
)
def test_a_filter_that_only_narrows_the_plan_is_applied_again(each: Filter, wanted: Wanted) -> None:
    assert pushed([each], COLUMNS) == (wanted, [each])


def test_filters_are_joined_by_and() -> None:
    assert wanted_of(
        In(("segment",), ("a", "b")), In(("segment",), ("b", "c")), GreaterThan(("offset",), 3),
        GreaterThan(("offset",), 1), LessThan(("offset",), 9), LessThan(("offset",), 7),
    ) == Wanted(segments=frozenset("b"), offset_first=4, offset_stop=7)  # fmt: skip


def test_a_filter_on_a_column_of_the_payload_is_left_to_spark() -> None:
    each = EqualTo(("segment",), "a")
    assert pushed([each], ("offset",)) == (ALL, [each])


def test_segments_are_left_out_by_their_keys_and_never_one_whose_keys_are_unknown() -> None:
    low = SegmentBounds("low", 0, 1, KeyRange(0.0, 0.5))
    high = SegmentBounds("high", 0, 1, KeyRange(0.5, 1.0))
    unknown = SegmentBounds("unknown", 0, 1)

    def admitted(*filters: Filter) -> list[str]:
        wanted = wanted_of(*filters)
        return [each.name for each in (low, high, unknown) if wanted.admits(REF, each)]

    assert admitted(LessThan(("key_position",), 0.5)) == ["low", "high", "unknown"]
    assert admitted(LessThan(("key_position",), 0.4)) == ["low", "unknown"]
    assert admitted(GreaterThanOrEqual(("key_position",), 0.5)) == ["high", "unknown"]
    key = next(f"k{n}" for n in range(99) if routing_position(f"k{n}") < 0.5)
    assert admitted(EqualTo(("routing_key",), key)) == ["low", "unknown"]


class CountingStorage(MemoryChunkStorage):
    """Notes which bytes of chunks are read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects
        self.read: list[tuple[str, int, int]] = []

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.read.append((name, offset, length))
        return await super().get_range(name, offset, length)


def read(
    storage: CountingStorage, filters: Sequence[Filter]
) -> tuple[list[bytes], list[tuple[str, int, int]]]:
    """The events that the plan leaves, and the ranges that were read."""

    async def perform() -> list[bytes]:
        streams = TierTwoPlace(storage)
        options = ReadOptions(Named((REF,)), TierTwo("memory:"))
        plan = await plan_read(streams, options, parallelism=1, wanted=wanted_of(*filters))
        events: list[bytes] = []
        for piece in (piece for partition in plan.partitions for piece in partition):
            (data,) = await streams.read_whole([piece])
            for batch in record_batches(piece.segment, data, piece.start):
                events += batch.column("event").to_pylist()
        return events

    return asyncio.run(perform()), storage.read


def test_chunks_of_other_segments_and_other_offsets_are_not_read() -> None:
    objects = tier_two({0: [BLOCKS[:2], BLOCKS[2:4]], 1: [BLOCKS[4:]]}).objects
    events, ranges = read(
        CountingStorage(objects),
        [EqualTo(("segment",), name_of(0)), GreaterThanOrEqual(("offset",), 2 * SIZE)],
    )
    assert events == [b"%d.%d" % (number, index) for number in (2, 3) for index in range(3)]
    assert ranges == [(chunk_name(0, 1, 2), 0, 2 * SIZE)]


def test_of_a_chunk_that_has_wanted_offsets_only_the_blocks_there_are_planned() -> None:
    objects = tier_two({0: [BLOCKS]}).objects
    filters = [GreaterThanOrEqual(("offset",), SIZE), LessThan(("offset",), 3 * SIZE)]
    events, _ = read(CountingStorage(objects), filters)
    assert [event[:1] for event in events[::3]] == [b"1", b"2"], "a boundary at the offset counts"
