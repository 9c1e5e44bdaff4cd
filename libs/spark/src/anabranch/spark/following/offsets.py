"""The offsets of a streaming query: streams → cuts, as texts in Spark's checkpoint. Pure.

    {"demo/flights": "41@ 0-2:0 3:1048576 4.1:77"}

`41` is the stream's incarnation. Segments of one epoch with consecutive numbers and the same place
are one entry; `4.1` is segment 4 of epoch 1. A place is a byte offset, `-1` of a segment that
follows another one of the cut (`FUTURE_OFFSET`), and `1048576+3` behind the third event of the
block at that offset, which only the start of a query can be.

Equal cuts are equal texts, because Spark compares them to learn whether there is something new.
Other texts are refused, so that a later release may add forms.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

from anabranch.common.errors import InvalidName, InvalidRequest
from anabranch.common.model.names import (
    SegmentId,
    StreamRef,
    epoch_of,
    number_of,
    segment_id,
    segment_name,
)
from anabranch.common.model.reader_group import PositionCut, SegmentPosition
from anabranch.common.model.stream import CUT_LENGTH_MAX, FUTURE_OFFSET
from anabranch.common.model.topics import readable_stream

_NUMBER = r"(?:0|[1-9]\d{0,18})"
_HEAD = re.compile(rf"({_NUMBER})@")
_ENTRY = re.compile(
    rf"(?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))?(?:\.(?P<epoch>{_NUMBER}))?"
    rf":(?P<offset>-1|{_NUMBER})(?:\+(?P<index>{_NUMBER}))?"
)


@dataclass(frozen=True, slots=True)
class Point:
    """A cut of one incarnation of a stream, sorted by segment."""

    incarnation: int
    cut: PositionCut

    def places(self) -> dict[int, int]:
        """Segment id → byte offset: the cut at the beginnings of its blocks."""
        return {int(at.segment_id): at.offset for at in self.cut}

    def positions(self, stream: StreamRef) -> dict[str, tuple[int, int]]:
        """Full segment name → (offset, index)."""
        return {segment_name(stream, at.segment_id): (at.offset, at.event_index) for at in self.cut}


Offset = Mapping[StreamRef, Point]
Json = dict[str, str]
"""An offset as Spark keeps it."""


def point_of(incarnation: int, places: Iterable[tuple[int, int, int]]) -> Point:
    """The point with these (segment id, offset, index), in any order."""
    cut = sorted(SegmentPosition(SegmentId(segment), *place) for segment, *place in places)
    return Point(incarnation, tuple(cut))


def to_json(offset: Offset) -> Json:
    """The canonical form: streams sorted by name."""
    return {str(stream): _text(offset[stream]) for stream in sorted(offset, key=str)}


def parse_offset(found: Mapping[str, object]) -> dict[StreamRef, Point]:
    """Inverse of `to_json`. Raises InvalidRequest for anything that it does not return."""
    offset = {_stream(name): _point(text) for name, text in found.items()}
    written: Mapping[str, object] = to_json(offset)
    if list(written.items()) != list(found.items()):
        raise _refusal(str(found))
    return offset


def _text(point: Point) -> str:
    entries = (_entry(list(run)) for _, run in groupby(enumerate(point.cut), key=_run))
    return " ".join((f"{point.incarnation}@", *entries))


def _run(placed: tuple[int, SegmentPosition]) -> tuple[int, int, int, int]:
    """The same for neighbours in the cut that one entry can name."""
    rank, at = placed
    return epoch_of(at.segment_id), number_of(at.segment_id) - rank, at.offset, at.event_index


def _entry(run: list[tuple[int, SegmentPosition]]) -> str:
    first, last = run[0][1], run[-1][1]
    epoch = epoch_of(first.segment_id)
    numbers = str(number_of(first.segment_id))
    if len(run) > 1:
        numbers += f"-{number_of(last.segment_id)}"
    index = f"+{first.event_index}" if first.event_index else ""
    return f"{numbers}{f'.{epoch}' if epoch else ''}:{first.offset}{index}"


def _stream(name: str) -> StreamRef:
    try:
        return readable_stream(name)
    except InvalidName as error:
        raise _refusal(name) from error


def _point(text: object) -> Point:
    head, *entries = text.split(" ") if isinstance(text, str) else [""]
    incarnation = _HEAD.fullmatch(head)
    if incarnation is None:
        raise _refusal(str(text))
    cut = tuple(at for entry in entries for at in _positions(entry))
    if any(one.segment_id >= other.segment_id for one, other in pairwise(cut)):
        raise _refusal(str(text))
    return Point(int(incarnation[1]), cut)


def _positions(entry: str) -> list[SegmentPosition]:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise _refusal(entry)
    first, epoch = int(found["first"]), int(found["epoch"] or 0)
    last = int(found["last"] or first)
    offset, index = int(found["offset"]), int(found["index"] or 0)
    is_sound = last - first < CUT_LENGTH_MAX and max(last, epoch) < 2**31
    if not is_sound or (offset == FUTURE_OFFSET and index):
        raise _refusal(entry)
    return [
        SegmentPosition(segment_id(epoch, number), offset, index)
        for number in range(first, last + 1)
    ]


def _refusal(found: str) -> InvalidRequest:
    return InvalidRequest(
        "the checkpoint has an offset that this release does not understand",
        remedy="update anabranch-spark, or start the query with a new checkpoint",
        found=found[:200],
    )
