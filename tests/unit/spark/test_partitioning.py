"""Every byte in one partition, in order, evenly."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.partitioning import (
    Partition,
    Piece,
    dividing_lines,
    pack,
    partition_count,
)

MIB = 1024 * 1024


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[Piece], dict[int, list[int]], int]:
    """Pieces of some segments, append boundaries in some of them, a number of partitions."""
    pieces: list[Piece] = []
    boundaries: dict[int, list[int]] = {}
    for number in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, 50))
        for _ in range(draw(st.integers(1, 3))):
            size = draw(st.integers(1, 200))
            boundaries[len(pieces)] = sorted(
                draw(st.sets(st.integers(at + 1, at + size), max_size=20))
            )
            pieces.append(Piece(f"s{number}", at, at + size, skip=1, keep=2))
            at += size
    return pieces, boundaries, draw(st.integers(1, 12))


def runs_of(partitions: list[Partition]) -> list[tuple[str, int, int]]:
    return [(piece.segment, piece.start, piece.end) for part in partitions for piece in part]


@given(layouts())
def test_every_byte_is_in_one_partition_and_in_order(
    layout: tuple[list[Piece], dict[int, list[int]], int],
) -> None:
    pieces, _, _ = layout
    read = [(s, at) for s, start, end in runs_of(pack(*layout)) for at in range(start, end)]
    assert read == [(piece.segment, at) for piece in pieces for at in range(piece.start, piece.end)]


@given(layouts())
def test_no_more_partitions_than_wanted_and_each_close_to_an_even_share(
    layout: tuple[list[Piece], dict[int, list[int]], int],
) -> None:
    pieces, boundaries, count = layout
    packed = pack(*layout)
    total = sum(piece.size for piece in pieces)
    stretches = [
        after - before
        for place, piece in enumerate(pieces)
        for before, after in pairwise([piece.start, *boundaries[place], piece.end])
    ]
    assert 1 <= len(packed) <= count
    for partition in packed:
        assert sum(piece.size for piece in partition) < -(-total // count) + max(stretches)


@given(layouts())
def test_pieces_are_cut_at_append_boundaries_alone(
    layout: tuple[list[Piece], dict[int, list[int]], int],
) -> None:
    pieces, boundaries, _ = layout
    allowed = {
        (piece.segment, at)
        for place, piece in enumerate(pieces)
        for at in (piece.start, *boundaries[place])
    }
    assert {(s, start) for s, start, _ in runs_of(pack(*layout))} <= allowed


@given(layouts())
def test_what_is_left_out_of_a_piece_is_left_out_at_its_own_ends(
    layout: tuple[list[Piece], dict[int, list[int]], int],
) -> None:
    pieces, _, _ = layout
    starts = {(piece.segment, piece.start) for piece in pieces}
    ends = {(piece.segment, piece.end) for piece in pieces}
    for part in (piece for partition in pack(*layout) for piece in partition):
        assert part.skip == ((part.segment, part.start) in starts)
        assert part.keep == 2 * ((part.segment, part.end) in ends)


@given(layouts())
def test_cutting_exactly_at_the_dividing_lines_makes_even_partitions(
    layout: tuple[list[Piece], dict[int, list[int]], int],
) -> None:
    pieces, _, count = layout
    total = sum(piece.size for piece in pieces)
    sizes = [
        sum(piece.size for piece in partition)
        for partition in pack(pieces, dividing_lines(pieces, count), count)
    ]
    assert max(sizes) <= -(-total // count)


def count_of(size: int, minimum: int | None = None) -> int:
    return partition_count(size, target_bytes=64 * MIB, min_partitions=minimum, parallelism=4)


def test_as_few_partitions_as_the_target_allows_and_at_least_one_per_processor() -> None:
    assert count_of(1000 * MIB) == 16
    assert count_of(100 * MIB) == 4


def test_little_is_not_divided_unless_it_is_asked_for() -> None:
    assert (count_of(100), count_of(100, 3), count_of(2 * MIB)) == (1, 3, 2)
