"""Windows of chunks, and parts of what was read."""

from itertools import pairwise

import pytest

from anabranch.common.tier2.state import ChunkRef
from anabranch.segstore.shell.memory.granule import ChunkRange, part, windows

WINDOW = 100


@pytest.mark.parametrize("offset", [0, 1, 99, 100, 150])
@pytest.mark.parametrize("length", [1, 99, 100, 101, 350])
def test_windows_cover_what_is_asked_for_and_end_where_the_objects_do(
    offset: int, length: int
) -> None:
    ref = ChunkRef("name", offset, length, 0)
    whole = list(windows(ref, 0, length, WINDOW))
    assert b"".join(bytes(found.size) for found in whole) == bytes(length)
    for start in range(0, length, 7):
        for size in range(1, length - start + 1, 13):
            found = list(windows(ref, start, size, WINDOW))
            assert set(found) <= set(whole), "all readers have the same windows"
            assert found[0].start <= start
            assert found[-1].start + found[-1].size >= start + size
            for before, after in pairwise(found):
                assert before.start + before.size == after.start
                assert (ref.offset + after.start) % WINDOW == 0


def test_without_windows_a_range_is_read_as_it_is() -> None:
    ref = ChunkRef("name", 5, 500, 0)
    assert list(windows(ref, 7, 300, 0)) == [ChunkRange(ref, 7, 300)]


def test_a_small_part_does_not_hold_the_whole() -> None:
    data = bytes(range(200))
    assert part(data, 0, 200) is data
    assert part(data, 10, 180) == data[10:180]
    assert isinstance(part(data, 10, 180), memoryview)
    assert part(data, 10, 20) == data[10:20]
    assert isinstance(part(data, 10, 20), bytes)
