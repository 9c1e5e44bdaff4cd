"""Parts of equal load from measured cells, and the command that makes them."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.spark.pipelines import keyload
from anabranch.spark.pipelines.keyloads.plot import summed
from anabranch.spark.pipelines.keyloads.shares import (
    Cell,
    Divided,
    Segment,
    command,
    divided,
    parts_of,
    plain,
    spread_of,
)

WHOLE = Segment(0, "s/t/0.#epoch.0", KeyRange(0.0, 1.0))
BITS = 4


def cell(number: int, size: int) -> Cell:
    return Cell(number, 1, size, number / 2**BITS)


def divided_whole(cells: list[Cell], count: int, keyless: tuple[int, int] = (0, 0)) -> Divided:
    (found,) = divided([WHOLE], {0: cells}, keyless, bits=BITS, count=count, by_events=False)
    return found


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=2**BITS, max_size=2**BITS),
    count=st.integers(2, 6),
)
def test_parts_cover_the_segment_and_no_part_is_far_above_an_equal_share(
    sizes: list[int], count: int
) -> None:
    cells = [cell(number, size) for number, size in enumerate(sizes) if size]
    parts = divided_whole(cells, count).parts if cells else ()
    if len(cells) < 2:
        assert parts == ()
        return
    assert len(parts) <= count
    assert (parts[0].start, parts[-1].end) == (0.0, 1.0)
    assert all(one.end == other.start for one, other in pairwise(parts))
    assert sum(part.share for part in parts) == pytest.approx(1)
    inside = [sum(sizes[int(part.start * 16) : int(part.end * 16)]) for part in parts]
    assert [part.share for part in parts] == pytest.approx([each / sum(sizes) for each in inside])
    if count == 2 and 0 not in (sizes[0], sizes[-1]):
        assert abs(inside[0] - inside[1]) <= max(sizes)


def test_a_hot_cell_becomes_a_part_of_its_own() -> None:
    cells = [cell(number, 1000 if number == 5 else 10) for number in range(16)]
    bounds = [(part.start, part.end) for part in divided_whole(cells, 3).parts]
    assert (5 / 16, 6 / 16) in bounds


def test_events_without_a_key_are_shared_by_segments_and_parts() -> None:
    found = divided_whole([cell(3, 50), cell(9, 50)], 2, keyless=(4, 100))
    assert [part.share for part in found.parts] == [0.5, 0.5]
    assert found.share == 1.0
    (alone,) = divided([WHOLE], {}, (4, 100), bits=BITS, count=2, by_events=True)
    assert (alone.share, alone.parts) == (1.0, ())


def test_the_measure_chooses_events_or_bytes() -> None:
    cells = [Cell(1, 90, 10, 0.1), Cell(8, 10, 10, 0.5), Cell(12, 10, 80, 0.75)]
    by_bytes, by_events = (
        parts_of(spread_of(WHOLE.keys, cells, 0, BITS, by_events=by_events), 2)
        for by_events in (False, True)
    )
    assert by_bytes[0].end > 8 / 16 >= by_events[0].end


def test_the_command_names_the_segments_that_are_divided_without_exponents() -> None:
    found = divided_whole([cell(0, 1), cell(1, 1)], 2)
    tiny = 2.0**-20
    other = dataclasses.replace(found, segment_id=7, parts=())
    assert command("s/t", 3, [found, other]) == (
        "anabranch stream scale s/t --seal 0 --ranges 0-0.0625,0.0625-1 --epoch 3"
    )
    assert command("s/t", 3, [other]) == ""
    assert "e" not in plain(tiny)
    assert float(plain(tiny)) == tiny


def test_only_chosen_segments_are_divided() -> None:
    found = divided_whole([cell(0, 1), cell(1, 1)], 2)
    assert keyload.chosen([found], ()) == keyload.chosen([found], (0,)) == (found,)
    other = dataclasses.replace(found, segment_id=4)
    assert [bool(each.parts) for each in keyload.chosen([found, other], (4,))] == [False, True]
    with pytest.raises(InvalidRequest, match="no such current segment"):
        keyload.chosen([found], (9,))


@pytest.mark.parametrize("cells", [0, 1, 3, 1000, 8192])
def test_the_number_of_cells_is_a_power_of_two(cells: int) -> None:
    asked = keyload.Arguments(stream="s/t", out=Path("out"), cells=cells)
    with pytest.raises(InvalidRequest, match="power of two"):
        _ = asked.bits
    assert keyload.Arguments(stream="s/t", out=Path("out"), cells=4096).bits == 12


def test_bars_sum_cells() -> None:
    cells = [Cell(number, 1, 2000, 0.0) for number in range(1024)]
    assert summed(cells, 10, by_events=False).tolist() == [8.0] * 256
    assert summed(cells[:1], 4, by_events=True).tolist() == [1.0] + [0.0] * 15
