"""A stream's memory for its retention policy: cuts of its tail, and past releases. Pure.

A *recorded cut* says where the stream ended at a time: everything before it was written by then.
Recorded cuts follow each other in time and place, so a later one lies, for every key, at or after
an earlier one. Sizes count from an arbitrary point; only differences between them mean something.

The set is bounded, because the whole of it is in every snapshot of the stream. A stream without a
retention policy has none.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import PlainSerializer, TypeAdapter

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.controller.domain.stream.rows import OffsetRow, SegmentOffsets, reading

CUTS_MAX = 128
CUTS_MIN = 4
"""That a stream keeps however many segments it has."""
CUT_PLACES_MAX = 4_000
"""Of all recorded cuts together; a place takes some 27 bytes of a snapshot."""
RELEASES_KEPT = 16


@dataclass(frozen=True, slots=True)
class RecordedCut:
    """Where the stream ended at `at_ms` (Unix ms); `size_bytes`: up to there, from some point."""

    at_ms: int
    size_bytes: int
    cut: StreamCut


_CutRow = tuple[int, int, list[OffsetRow]]


def _cut_rows(cuts: tuple[RecordedCut, ...]) -> list[_CutRow]:
    return [(c.at_ms, c.size_bytes, [(p.segment_id, p.offset) for p in c.cut]) for c in cuts]


def _cut_of(row: _CutRow) -> RecordedCut:
    return RecordedCut(row[0], row[1], tuple(SegmentOffset(*place) for place in row[2]))


RecordedCuts = Annotated[
    tuple[RecordedCut, ...],
    reading(TypeAdapter(list[_CutRow]), _cut_of),
    PlainSerializer(_cut_rows),
]
"""Oldest first; rows of time, size and places in JSON."""


@dataclass(frozen=True, slots=True)
class Release:
    """Bytes that retention gave up, decided at `at_ms`, and the rule by which. The rule is an open
    word: nothing decides by it."""

    at_ms: int
    bytes: int
    rule: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A cut at which a segment store refused to truncate, and its reason."""

    at_ms: int
    cut: SegmentOffsets
    error: ErrorBody


@dataclass(frozen=True, slots=True)
class RetentionSet:
    """The memory.

    cuts             recorded, oldest first; their times increase, their sizes never decrease
    releases         the last truncations by retention, oldest first
    release_count    how many there ever were
    released_bytes   of all of them
    refusal          the last one, if a store refused it
    """

    cuts: RecordedCuts = ()
    releases: tuple[Release, ...] = ()
    release_count: int = 0
    released_bytes: int = 0
    refusal: Refusal | None = None

    @property
    def newest(self) -> RecordedCut | None:
        """The cut recorded last."""
        return self.cuts[-1] if self.cuts else None

    def recorded(self, cut: RecordedCut, dropped: frozenset[int]) -> "RetentionSet":
        """One more cut; those of the times `dropped` are forgotten."""
        kept = (one for one in self.cuts if one.at_ms not in dropped)
        return replace(self, cuts=(*kept, cut))

    def passed(self, through_ms: int) -> "RetentionSet":
        """The stream begins at or after the cuts recorded up to that time."""
        return replace(self, cuts=tuple(one for one in self.cuts if one.at_ms > through_ms))

    def released(self, release: Release) -> "RetentionSet":
        """Retention gave something up."""
        return replace(
            self,
            releases=(*self.releases, release)[-RELEASES_KEPT:],
            release_count=self.release_count + 1,
            released_bytes=self.released_bytes + release.bytes,
            refusal=None,
        )


NO_RETENTION_SET = RetentionSet()
