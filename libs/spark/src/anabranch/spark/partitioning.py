"""Divides the bytes of a read among tasks. Pure.

A read is a list of pieces, runs of bytes of segments, whose order is kept. The module lays them end
to end and divides them evenly among as few tasks as the target size and the requested minimum
allow, because even a small task costs some 30 ms. A piece that lies across a dividing line is cut
at append boundaries near it that its source knows.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from anabranch.common.tier2.state import TieredExtent


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, end) of a segment, both append boundaries.

    `skip`: the number of events to omit at the start. `keep`: the number of events to read of the
    last block (0: all). `extent` holds the bytes; None: the segment's store has them.
    """

    segment: str
    start: int
    end: int
    skip: int = 0
    keep: int = 0
    extent: TieredExtent | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


Partition = tuple[Piece, ...]
"""The pieces that one task reads, in order."""

PARTITION_BYTES_MIN = 1024 * 1024
"""A smaller partition does not get its own task unless `min_partitions` demands it."""


def partition_count(
    size: int, *, target_bytes: int, min_partitions: int | None, parallelism: int
) -> int:
    """The number of partitions for `size` bytes, ≥ 1."""
    worthwhile = min(parallelism, size // PARTITION_BYTES_MIN)
    return max(1, -(-size // target_bytes), min_partitions or worthwhile)


def dividing_lines(pieces: Sequence[Piece], count: int) -> dict[int, list[int]]:
    """The offsets at which the next of `count` partitions begins, by the piece's index."""
    starts = _starts(pieces)
    lines: dict[int, list[int]] = {}
    for partition in range(1, count):
        line = -(-partition * starts[-1] // count)
        place = bisect_left(starts, line) - 1
        if starts[place] < line < starts[place + 1]:
            lines.setdefault(place, []).append(pieces[place].start + line - starts[place])
    return lines


def pack(
    pieces: Sequence[Piece], boundaries: Mapping[int, Sequence[int]], count: int
) -> list[Partition]:
    """Put every byte of the pieces into one of at most `count` partitions, in order.

    `boundaries`: by the piece's index, ascending append boundaries at which it may be cut. The
    bytes between two boundaries go where the first of them goes, so a partition exceeds an even
    share by less than one such stretch.
    """
    starts = _starts(pieces)
    packed: list[list[Piece]] = [[] for _ in range(count)]
    for place, piece in enumerate(pieces):
        before = starts[place] - piece.start
        inside = (at for at in boundaries.get(place, ()) if piece.start < at < piece.end)
        cuts = dict.fromkeys((piece.start, *inside))
        owned = [(at, (before + at) * count // starts[-1]) for at in cuts]
        firsts = [owned[0], *(later for last, later in pairwise(owned) if later[1] != last[1])]
        ends = [*(at for at, _ in firsts[1:]), piece.end]
        for (start, owner), end in zip(firsts, ends, strict=True):
            packed[owner].append(part_of(piece, start, end))
    return [tuple(partition) for partition in packed if partition]


def part_of(piece: Piece, start: int, end: int) -> Piece:
    """The bytes [start, end) of the piece, both append boundaries."""
    return replace(
        piece,
        start=start,
        end=end,
        skip=piece.skip if start == piece.start else 0,
        keep=piece.keep if end == piece.end else 0,
    )


def _starts(pieces: Sequence[Piece]) -> list[int]:
    """The start of each piece if they are laid end to end, and the end of the last one."""
    assert all(piece.size > 0 for piece in pieces)
    return list(accumulate((piece.size for piece in pieces), initial=0))
