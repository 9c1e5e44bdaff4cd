"""What of merged segments is moved once more, and that nothing of a cut gets lost by it."""

import asyncio

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.tier2.chunk import SparseEntry
from anabranch.common.tier2.state import ChunkRef, SegmentState, TieredExtent
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.state import (
    AppendMark,
    SegmentCut,
    UntieredRun,
)
from anabranch.segstore.domain.storage.gather import gathered, marks_of, to_gather
from anabranch.segstore.shell.tiering.extent_fetch import ExtentFetch

SMALL = 10


def extent(start: int, length: int) -> TieredExtent:
    return TieredExtent(start, ChunkRef("a chunk", start, length, 0))


def cut_of(parts: str, *, start: int = 0) -> SegmentCut:
    """`parts` follow each other: r is a run, t a small extent, T a large one, . is held by the
    catalog already; each with two appends of one and two events."""
    runs, adopted, at = [], [], 0
    for part in parts:
        length = 20 if part == "T" else 10
        if part == "r":
            runs.append(UntieredRun(at, (AppendMark(at + 4, 1, 7), AppendMark(at + 10, 2, 8))))
        elif part != ".":
            adopted.append(extent(at, length))
        at += length
    state = SegmentState("a/b/0.#epoch.0", 1, Stamp(1, 1), start, at)
    return SegmentCut(state, tuple(runs), tuple(adopted))


def gather(cut: SegmentCut) -> SegmentCut:
    entries = (SparseEntry(4, 1, 7), SparseEntry(10, 3, 8))
    marks = {found: marks_of(found, entries) for found in to_gather(cut, SMALL)}
    return gathered(cut, marks)


def shape(cut: SegmentCut) -> list[tuple[int, int, bool]]:
    """(start, end, whether it is to be moved) of all that the cut brings, ascending."""
    runs = [(run.start, run.end, True) for run in cut.runs]
    extents = [(held.start, held.start + held.ref.length, False) for held in cut.adopted]
    return sorted(runs + extents)


def test_small_extents_and_what_lies_between_them_become_one_run() -> None:
    assert shape(gather(cut_of("ttrtrrt"))) == [(0, 70, True)]


def test_a_small_extent_without_a_neighbour_to_be_moved_stays() -> None:
    for parts in (".t", ".tT", "t", "Tt.", "T.t"):
        assert gather(cut_of(parts)) == cut_of(parts)


def test_large_extents_stay_and_separate_what_is_gathered() -> None:
    assert shape(gather(cut_of("trTtt"))) == [(0, 20, True), (20, 40, False), (40, 60, True)]


def test_what_is_partly_truncated_stays() -> None:
    assert shape(gather(cut_of("ttt", start=5))) == [(0, 10, False), (10, 30, True)]


@given(st.text("rtT.", max_size=12))
def test_gathering_keeps_every_byte_event_and_boundary(parts: str) -> None:
    before = cut_of(parts)
    after = gather(before)
    assert _covered(after) == _covered(before)
    moved = [mark for run in after.runs for mark in run.marks]
    assert moved == sorted(moved, key=lambda mark: mark.offset)
    small = len(before.adopted) - len(after.adopted)
    assert len(moved) == 2 * (len(before.runs) + small)
    assert sum(mark.event_count for mark in moved) == 3 * (len(before.runs) + small)
    # nothing that touches is left apart
    ends = {run.end for run in after.runs}
    assert not ends & {run.start for run in after.runs}


def _covered(cut: SegmentCut) -> set[int]:
    return {at for start, end, _ in shape(cut) for at in range(start, end)}


@given(st.integers(0, 399), st.integers(1, 400))
def test_any_part_of_a_gathered_run_is_fetched_from_where_it_is(offset: int, length: int) -> None:
    # given twenty pieces of which every second one is in tier 2, each in a chunk of its own
    content = bytes(number % 251 for number in range(400))
    storage = MemoryChunkStorage()
    extents = []
    for start in range(0, 400, 40):
        data = content[start : start + 20]
        storage.objects[f"chunk {start}"] = b"other" + data + b"other"
        extents.append(TieredExtent(start, ChunkRef(f"chunk {start}", 5, 20, crc32c(data))))
    asked: list[tuple[int, int]] = []

    async def fetch(number: int, at: int, size: int) -> bytes:
        assert number == 1
        asked.append((at, at + size))
        return content[at : at + size]

    gathered_fetch = ExtentFetch({1: extents}, storage, ChunkReader(storage), fetch)
    # when any part is fetched, then it is right, and the journal is asked for its own only
    end = min(400, offset + length)
    assert asyncio.run(gathered_fetch(1, offset, end - offset)) == content[offset:end]
    assert all(begin % 40 >= 20 and (stop - 1) % 40 >= 20 for begin, stop in asked)


def test_extents_that_lie_near_each_other_are_read_with_one_request() -> None:
    data = bytes(range(100))
    storage = CountingStorage()
    storage.objects["a chunk"] = data
    # merged in another order than they were flushed
    order = [30, 0, 90, 60, 10]
    extents = [
        TieredExtent(at * 10, ChunkRef("a chunk", offset, 10, crc32c(data[offset : offset + 10])))
        for at, offset in enumerate(order)
    ]

    async def fetch(_number: int, _at: int, _size: int) -> bytes:
        raise AssertionError

    gathered_fetch = ExtentFetch({1: extents}, storage, ChunkReader(storage), fetch)
    found = asyncio.run(gathered_fetch(1, 0, 50))
    assert found == b"".join(data[offset : offset + 10] for offset in order)
    assert storage.requests == 1


class CountingStorage(MemoryChunkStorage):
    """Counts the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.requests += 1
        return await super().get_range(name, offset, length)
