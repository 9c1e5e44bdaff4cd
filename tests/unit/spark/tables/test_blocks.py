"""The table `blocks`: a row per block, and damage as rows; tier 2 is made by hand."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import PlanOutdated
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.names import stream_ref
from anabranch.common.tier2.names import manifest_name
from anabranch.common.tier2.streams import stream_object_name
from anabranch.common.wire.block import HEADER_SIZE_BYTES
from anabranch.common.wire.block_encoding import encode_part
from anabranch.spark.options.read import Division
from anabranch.spark.options.streams import Matching, Named, Which
from anabranch.spark.places.opening import Loop
from anabranch.spark.tables.block_reading import plan_blocks, read_task
from kit.tier2_made import (
    BASE_MS,
    HIGH,
    LOW,
    WRITER,
    Made,
    MadeTierTwo,
    block,
    blocks,
    cut_at,
    flipped,
    keys_in,
)

NAME = "demo/one"
SEGMENT = "demo/one/0.#epoch.0"
REF = stream_ref(NAME)
BLOCKS = blocks(LOW, 6)
SIZE = len(BLOCKS[0])
Row = dict[str, Any]


def read(
    storage: MemoryChunkStorage, which: Which | None = None, division: Division | None = None
) -> list[Row]:
    asked = which or Named((REF,))
    with asyncio.Runner() as runner:
        loop = Loop(runner)
        _, tasks = loop.run(plan_blocks(storage, asked, division or Division(min_partitions=1)))
        batches = [each for task in tasks for each in read_task(loop, storage, task)]
    return [row for each in batches for row in each.to_pylist()]


def one(*extents: list[bytes], start: int = 0) -> MadeTierTwo:
    """A stream of two segments; the first has these extents."""
    made = MadeTierTwo()
    made.add_stream(NAME, [Made(0, extents, keys=LOW, start=start), Made(1, keys=HIGH)])
    return made


def places(rows: list[Row]) -> list[tuple[int, int, str | None]]:
    return [(row["offset"], row["size_bytes"], row["damage"]) for row in rows]


def whole(*numbers: int) -> list[tuple[int, int, str | None]]:
    return [(number * SIZE, SIZE, None) for number in numbers]


def test_each_stored_block_is_a_row_with_its_facts() -> None:
    keys = [*keys_in(LOW, 2), None]
    data = block(4, keys, time_ms=BASE_MS + 5, zstd_level=3, size=500)
    (row,) = read(one([data]).storage())
    positions = [routing_position(key) for key in keys if key is not None]
    assert (row["scope"], row["stream"], row["segment"]) == ("demo", "one", SEGMENT)
    assert (row["offset"], row["size_bytes"], row["kind"]) == (0, len(data), "events")
    assert row["writer_id"] == WRITER.hex()
    assert (row["first_event_number"], row["event_count"]) == (4, 3)
    assert row["payload_size_bytes"] == 1500
    assert row["block_time"] == row["event_time_min"] == row["event_time_max"]
    assert row["block_time"].timestamp() == (BASE_MS + 5) / 1000
    assert (row["key_position_min"], row["key_position_max"]) == (min(positions), max(positions))
    assert (row["misplaced_event_count"], row["damage"]) == (0, None)
    assert (row["object"], row["object_offset"]) == ("c0/0000000001-0000000001", 0)


def test_keys_outside_of_the_segment_are_counted_and_events_without_a_key_are_not() -> None:
    data = block(1, [*keys_in(HIGH, 2), None, *keys_in(LOW, 1), keys_in(HIGH, 1)[0]])
    first, second = read(one([data, block(6, [None])]).storage())
    assert first["misplaced_event_count"] == 3
    assert (second["misplaced_event_count"], second["key_position_min"]) == (0, None)


@pytest.mark.parametrize("tasks", [1, 2, 5, 40])
def test_all_blocks_are_read_once_whatever_the_number_of_tasks(tasks: int) -> None:
    made = one(BLOCKS[:2], BLOCKS[2:])
    rows = read(made.storage(), division=Division(min_partitions=tasks))
    assert places(rows) == whole(*range(6))


def test_truncated_blocks_are_not_read_although_their_extent_holds_them() -> None:
    assert places(read(one(BLOCKS[:3], start=SIZE).storage())) == whole(1, 2)


@pytest.mark.parametrize("at", [HEADER_SIZE_BYTES + 30, 9, 13, 40, 65])
@pytest.mark.parametrize("tasks", [1, 6])
def test_a_flipped_bit_costs_its_block_and_no_other(at: int, tasks: int) -> None:
    made = one(BLOCKS)
    made.change(made.chunks[SEGMENT, 0], flipped(2 * SIZE + at))
    rows = read(made.storage(), division=Division(min_partitions=tasks))
    found = places(rows)
    damaged = [each for each in found if each[2] is not None]
    assert [each for each in found if each[2] is None] == whole(0, 1, 3, 4, 5)
    assert [each[:2] for each in damaged] == [(2 * SIZE, SIZE)]
    assert rows[2]["object_offset"] == 2 * SIZE


def test_after_a_damage_without_a_known_boundary_the_next_piece_continues() -> None:
    made = one(BLOCKS[:2], BLOCKS[2:])
    chunk = made.chunks[SEGMENT, 0]
    made.change(chunk, flipped(9))  # the size of the first block
    made.change(chunk, flipped(-3))  # and the footer
    found = places(read(made.storage()))
    assert [each[:2] for each in found if each[2] is not None] == [(0, 2 * SIZE)]
    assert [each for each in found if each[2] is None] == whole(2, 3, 4, 5)


def test_a_missing_chunk_is_one_row_that_names_it() -> None:
    made = one(BLOCKS[:2], BLOCKS[2:])
    made.drop(made.chunks[SEGMENT, 0])
    first, *rest = read(made.storage())
    assert (first["offset"], first["size_bytes"]) == (0, 2 * SIZE)
    assert "missing (name=c0/0000000001-0000000001)" in first["damage"]
    assert places(rest) == whole(2, 3, 4, 5)


def test_a_chunk_that_a_newer_catalog_no_longer_names_says_to_run_again() -> None:
    made, newer = one(BLOCKS), one(BLOCKS[:1])
    storage = made.storage()

    def replace_and_read() -> None:
        with asyncio.Runner() as runner:
            loop = Loop(runner)
            _, tasks = loop.run(plan_blocks(storage, Named((REF,)), Division()))
            del storage.objects[made.chunks[SEGMENT, 0]]
            storage.objects[manifest_name(0, 1)] = newer.manifest()
            list(read_task(loop, storage, tasks[0]))

    with pytest.raises(PlanOutdated, match="deleted after the read was planned"):
        replace_and_read()


@pytest.mark.parametrize("left", [0, 1])
def test_of_a_chunk_that_was_cut_off_the_whole_blocks_are_read(left: int) -> None:
    made = one(BLOCKS[:4], BLOCKS[4:])
    made.change(made.chunks[SEGMENT, 0], cut_at(2 * SIZE + left))
    found = places(read(made.storage()))
    assert [each for each in found if each[2] is None] == whole(0, 1, 4, 5)
    assert [each[:2] for each in found if each[2] is not None] == [(2 * SIZE, 2 * SIZE)]


def test_a_block_that_was_wrong_before_it_was_flushed_is_found_too() -> None:
    bad = flipped(-1)(BLOCKS[1])
    found = places(read(one([BLOCKS[0], bad, BLOCKS[2]]).storage()))
    assert found[1] == (SIZE, SIZE, "a block's checksum does not match")
    assert [found[0], found[2]] == whole(0, 2)


def test_another_valid_block_in_the_place_of_one_breaks_the_checksum_of_the_chunk() -> None:
    made = one(BLOCKS[:2])
    made.change(made.chunks[SEGMENT, 0], lambda data: BLOCKS[5] + data[SIZE:])
    damage, *rest = places(read(made.storage()))
    assert damage[:2] == (0, 0) or rest[-1][:2] == (0, 0)
    assert any("checksum of a chunk's piece" in (each[2] or "") for each in [damage, *rest])


def test_bytes_that_are_no_blocks_are_damage() -> None:
    rows = read(one([b"what a byte stream holds"]).storage())
    assert places(rows) == [(0, 24, "a block's header is truncated")]


def test_parts_of_large_events_are_rows_without_events() -> None:
    part = encode_part(b"x" * 9, writer_id=WRITER, number=1, base_timestamp_ms=BASE_MS)
    first, second = read(one([part, BLOCKS[0]]).storage())
    assert (first["kind"], first["event_count"], first["event_time_min"]) == ("part", 0, None)
    assert (second["kind"], second["offset"]) == ("events", len(part))


def test_an_unreadable_catalog_is_a_row_per_segment_and_a_description_is_a_row() -> None:
    made = one(BLOCKS)
    made.add_stream("demo/two", [Made(0, [BLOCKS])])
    made.change(stream_object_name(stream_ref("demo/two"), 3), flipped(-1))
    storage = made.storage()
    rows = read(storage, Matching(".*"))
    assert places(rows)[:6] == whole(*range(6))
    assert rows[6]["segment"] == "", "tier 2 cannot say which stream it was"
    assert "checksum" in rows[6]["damage"]
    storage.objects[manifest_name(0, 1)] = flipped(-1)(storage.objects[manifest_name(0, 1)])
    rows = read(storage)
    assert [row["segment"] for row in rows] == [SEGMENT, "demo/one/1.#epoch.0"]
    assert all("container 0" in row["damage"] for row in rows)


def test_reading_blocks_imports_no_pandas(tmp_path: Path) -> None:
    import subprocess

    url = one(BLOCKS).write_to(tmp_path / "tier2")
    program = (
        "import sys\n"
        "from anabranch.common.model.names import stream_ref\n"
        "from anabranch.spark.options.places import TierTwo\n"
        "from anabranch.spark.options.read import Division\n"
        "from anabranch.spark.options.streams import Named\n"
        "from anabranch.spark.tables.block_reading import plan, read\n"
        f"place = TierTwo({url!r})\n"
        "_, tasks = plan(place, Named((stream_ref('demo/one'),)), Division())\n"
        "assert sum(len(b) for task in tasks for b in read(place, task)) == 6\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
