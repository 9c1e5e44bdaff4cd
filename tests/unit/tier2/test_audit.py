"""The audit of tier 2: nothing wrong is passed over, and nothing right is reported."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.cli.__main__ import run
from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import TierTwoNotHere
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.audit import (
    SegmentAudit,
    audit_container,
    containers_in,
    read_catalog,
)
from anabranch.common.tier2 import chunk
from anabranch.common.tier2.names import manifest_name, receipt_name
from anabranch.common.tier2.streams import stream_receipt_name
from anabranch.common.wire.block_encoding import encode_part
from kit.container_driver import SEGMENT, WRITER
from kit.tiered_driver import TieredDriver
from kit.topic_parts import partition


def written(flushes: int = 3) -> dict[str, bytes]:
    """The objects of a container with one segment of `flushes` chunks, two events in each."""
    driver = TieredDriver()
    try:
        driver.create()
        session = driver.setup()
        for number in range(flushes):
            driver.append(session, 2 * number + 1, [b"event %d" % number, b"x" * 50])
            driver.commit()
            driver.flush()
        assert isinstance(driver.storage, MemoryChunkStorage)
        return dict(driver.storage.objects)
    finally:
        driver.finish()


def test_a_wrong_record_number_is_reported_and_right_ones_are_not() -> None:
    """Of a topic's segment with three extents of two events each."""
    driver = TieredDriver()
    driver.create(partition(0))
    session = driver.setup(partition(0))
    for number in range(3):
        driver.append(session, 2 * number + 1, [b"event", b"another"])
        driver.commit()
        driver.flush()

    async def perform(numbers: list[int]) -> list[str]:
        found = await read_catalog(driver.storage, 0)
        catalog = found.catalog
        extents = {
            number: tuple(
                replace(extent, events_before=wrong)
                for extent, wrong in zip(held, numbers, strict=True)
            )
            for number, held in catalog.extents.items()
        }
        changed = replace(found, catalog=replace(catalog, extents=extents))
        (audited,) = [one async for one in audit_container(driver.storage, 0, changed)]
        return audited.faults

    assert driver.wait(perform([0, 2, 4])) == []
    assert driver.wait(perform([0, -1, 5])) == []
    (fault,) = driver.wait(perform([0, 2, 5]))
    assert "end at event 4, the catalog says 5" in fault
    driver.finish()


def audit(objects: dict[str, bytes], event_count: int | None = None) -> list[SegmentAudit]:
    """The audit of these objects; `event_count`: as if the catalog said so of each segment."""

    async def perform() -> list[SegmentAudit]:
        storage = MemoryChunkStorage()
        storage.objects = objects
        found = await read_catalog(storage, 0)
        if event_count is not None:
            states = found.catalog.segments.items()
            changed = {name: replace(state, event_count=event_count) for name, state in states}
            found = replace(found, catalog=replace(found.catalog, segments=changed))
        return [one async for one in audit_container(storage, 0, found)]

    return asyncio.run(perform())


def chunks_of(objects: dict[str, bytes]) -> list[str]:
    return [name for name in sorted(objects) if "/m/" not in name]


def test_what_is_whole_is_read_and_counted() -> None:
    [found] = audit(written())
    assert found.faults == []
    assert (found.segment.name, found.chunks, found.blocks, found.events) == (SEGMENT, 3, 3, 6)
    assert found.size_bytes == found.segment.length


def test_the_progress_of_a_segment_follows_each_of_its_extents() -> None:
    read: list[tuple[int, int]] = []
    objects = written()

    async def perform() -> None:
        storage = MemoryChunkStorage()
        storage.objects = objects
        found = await read_catalog(storage, 0)
        async for audit in audit_container(storage, 0, found, lambda *seen: read.append(seen)):
            assert sum(size_bytes for _, size_bytes in read) == audit.size_bytes

    asyncio.run(perform())
    assert [events for events, _ in read] == [2, 2, 2]


def test_parts_of_large_events_count_as_none_also_where_they_end_a_chunk() -> None:
    driver = TieredDriver()
    try:
        driver.create()
        session = driver.setup()
        for number in (1, 2, 3):
            part = encode_part(b"p" * 50, writer_id=WRITER, number=number, base_timestamp_ms=0)
            driver.append_raw(session, number, 1, part, is_block=True)
        driver.commit()
        driver.flush()
        driver.append(session, 4, [b"event"])
        driver.commit()
        driver.flush()
        assert isinstance(driver.storage, MemoryChunkStorage)
        (found,) = audit(dict(driver.storage.objects))
    finally:
        driver.finish()
    assert found.faults == []
    assert (found.blocks, found.events) == (4, 1)


def test_every_flipped_bit_of_a_chunks_data_is_a_fault() -> None:
    objects = written(1)
    [name] = chunks_of(objects)
    data = objects[name]
    size = chunk.decode_footer(data, name, len(data)).data_length
    for position in range(size):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        [found] = audit({**objects, name: bytes(damaged)})
        assert len(found.faults) == 1, position


def test_a_missing_chunk_is_a_fault_and_the_rest_is_read_all_the_same() -> None:
    objects = written()
    del objects[chunks_of(objects)[1]]
    [found] = audit(objects)
    assert len(found.faults) == 1
    assert found.events == 4


def test_fewer_events_than_the_catalog_says_are_a_fault() -> None:
    [audited] = audit(written(1), event_count=3)
    assert audited.faults == ["events: the blocks hold 2, the catalog says 3"]


async def test_the_containers_are_those_that_have_manifests() -> None:
    storage = MemoryChunkStorage()
    storage.objects = {
        "c0/m/0000000001": b"",
        "c12/m/0000000001": b"",
        "probe/x": b"",
        "c3/1-2": b"",
    }
    assert await containers_in(storage) == [0, 12]
    with pytest.raises(TierTwoNotHere):
        await read_catalog(storage, 7)


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    """A tier-2 directory with these objects in it."""
    objects = written()
    storage = LocalChunkStorage(LocalDisk(tmp_path), SeededIds(1), "test", in_threads=False)
    storage.open()

    async def fill() -> None:
        for name, data in objects.items():
            await storage.put_new(name, [data])

    asyncio.run(fill())
    return tmp_path, objects


def command(
    directory: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, list[dict[str, object]]]:
    code = run(["tier2", *words, "--url", directory.as_uri(), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_verify_ends_well_and_says_what_it_read(
    directory: tuple[Path, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, [record] = command(directory[0], capsys, "verify")
    assert code == 0
    assert (record["segments"], record["events"], record["faults"]) == (1, 6, 0)


def test_verify_names_what_is_damaged_and_ends_with_one(
    directory: tuple[Path, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, objects = directory
    damaged = root / f"{chunks_of(objects)[0]}.obj"
    damaged.write_bytes(b"\0" + damaged.read_bytes()[1:])
    code, [fault, record] = command(root, capsys, "verify")
    assert code == 1
    assert fault["damaged"] == SEGMENT
    assert record["faults"] == 1


def test_verify_names_what_receipts_say_was_there_and_is_not(
    directory: tuple[Path, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    # given a receipt of a manifest, and one of an object about a stream, without the objects
    root, _ = directory
    (root / f"{receipt_name(0, 4)}.obj").write_bytes(b"created")
    told = root / f"{stream_receipt_name(stream_ref('demo/x'), 7)}.obj"
    told.parent.mkdir(parents=True)
    told.write_bytes(b"created")
    (root / f"{manifest_name(0, 4)}.obj").unlink()
    # then both are named, and lists refuse too
    code, [container, stream, record] = command(root, capsys, "verify")
    assert (code, record["faults"]) == (1, 2)
    assert container["damaged"] == "container 0"
    assert str(stream["damaged"]).startswith("streams s/")
    for fault in (container, stream):
        assert str(fault["fault"]).startswith("tier-two-rewound")
    assert command(root, capsys, "containers")[0] == command(root, capsys, "streams")[0] != 0


def test_lists_tell_of_containers_segments_and_pieces(
    directory: tuple[Path, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, objects = directory
    _, [container] = command(root, capsys, "containers")
    _, [segment] = command(root, capsys, "segments")
    _, [piece] = command(root, capsys, "chunk", chunks_of(objects)[0])
    assert (container["container"], container["chunks"], container["manifest"]) == (0, 3, 4)
    assert (segment["segment"], segment["events"], segment["state"]) == (SEGMENT, 6, "open")
    assert (piece["segment"], piece["start"], piece["events"]) == (SEGMENT, 0, 2)


def test_a_directory_that_is_no_tier_two_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = command(tmp_path, capsys, "verify")
    assert code != 0
