"""Gathering: selects small extents of merged segments to be rewritten as one (pure).

A segment that was in tier 2 when it was merged brings its extents along. Large ones stay unchanged.
Small ones, hundreds for each flush if many transactions are open at once, would stay separate for
the life of the target, and would fragment the bytes between them. So small extents that touch each
other or bytes to be moved are read from tier 2 and moved once more with these: after the next
flush, the bytes merged since the last one have few extents. No extent is gathered twice, because
only extents that no manifest records as the target's are considered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from anabranch.common.tier2.chunk import SparseEntry
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.container.state import AppendMark, SegmentCut, UntieredRun

Marks = tuple[AppendMark, ...]


def to_gather(segment: SegmentCut, size_max: int) -> tuple[TieredExtent, ...]:
    """The adopted extents of at most `size_max` bytes that have a neighbour to be moved with."""
    small = [
        extent
        for extent in segment.adopted
        if extent.ref.length <= size_max and extent.start >= segment.state.start
    ]
    ends = {run.end for run in segment.runs} | {_end(extent) for extent in small}
    starts = {run.start for run in segment.runs} | {extent.start for extent in small}
    return tuple(extent for extent in small if extent.start in ends or _end(extent) in starts)


def marks_of(extent: TieredExtent, entries: Sequence[SparseEntry]) -> Marks:
    """The append boundaries that the extent's chunk lists for it; the last one is its end."""
    told = [SparseEntry(0, 0, 0), *entries]
    return tuple(
        AppendMark(extent.start + at.offset, at.event_count - before.event_count, at.time_ms)
        for before, at in pairwise(told)
    )


def gathered(segment: SegmentCut, marks: Mapping[TieredExtent, Marks]) -> SegmentCut:
    """The cut with these adopted extents among its runs, which are joined where they touch."""
    parts = [(run.start, run.marks) for run in segment.runs]
    parts += [(extent.start, marks[extent]) for extent in segment.adopted if extent in marks]
    runs: list[UntieredRun] = []
    joined: list[AppendMark] = []
    start = 0
    for begin, found in sorted(parts, key=lambda part: part[0]):
        if joined and joined[-1].offset != begin:
            runs.append(UntieredRun(start, tuple(joined)))
            joined = []
        start = start if joined else begin
        joined += found
    if joined:
        runs.append(UntieredRun(start, tuple(joined)))
    adopted = tuple(extent for extent in segment.adopted if extent not in marks)
    return replace(segment, runs=tuple(runs), adopted=adopted)


def _end(extent: TieredExtent) -> int:
    return extent.start + extent.ref.length
