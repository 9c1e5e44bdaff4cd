"""The query about a stream's watermark: request/reply as in `queries.py`.

Marks and the last watermark are stored; for how long the owner of the stream's bucket has held the
watermark back is in its memory. The controller that is asked puts the question to the others if it
is not that one.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Question
from anabranch.common.contracts.stream_queries import StreamQuery
from anabranch.common.model.stream import SegmentOffset

WRITERS_SHOWN_MAX = 200


class GetWatermarkStatus(StreamQuery):
    """→ WatermarkStatus: how far the stream's watermark is, and what holds it back.

    `only_here`: answer from this controller's memory, and without marks; do not ask others. Raises
    Unavailable.
    """

    only_here: bool = False


class LastWatermark(Contract):
    """The last watermark: at `cut`, every active writer had noted a time of at least `lower_ms`,
    and none a time above `upper_ms`."""

    lower_ms: int
    upper_ms: int
    cut: tuple[SegmentOffset, ...]


class WriterStanding(Contract):
    """A writer with a mark, noted at `noted_ms` of the clock of `WatermarkStatus.now_ms`.

    `is_later`: its time is later than the last watermark. A writer of which it is not holds the
    watermark back. `is_closed`: it was removed, and its last mark still counts.
    """

    writer_id: str
    timestamp_ms: int
    noted_ms: int
    is_later: bool
    is_closed: bool


class WatermarkStatus(Contract):
    """The state of a stream's watermark. Times without a clock of their own are writers' times."""

    ok: Literal[True] = True
    incarnation: int
    """The life of the stream."""
    held: str = ""
    """Empty: it advances. Else `no_writers`, `idle_writer`, `settling` (marks may have been lost),
    or `unwatched` (no controller has looked at the stream yet); later releases may add others."""
    held_by: str = ""
    """The active writer that has been idle for longest, if one holds the watermark back."""
    held_for_ms: int = 0
    """For how long that writer has been idle; the time-out drops it."""
    settles_in_ms: int = 0
    """For how long the watermark is still held because marks may have been lost."""
    controller: str = ""
    """The controller that looks after the stream."""
    timeout_ms: int = 0
    """The stream's aggregation time-out."""
    now_ms: int = 0
    """Unix time of the server that keeps the marks."""
    last: LastWatermark | None = None
    """None before the first one."""
    writers: tuple[WriterStanding, ...] = ()
    """Those with marks, lowest times first: at most `WRITERS_SHOWN_MAX`."""
    writer_count: int = 0
    """All writers with marks."""


QUERIES: Mapping[str, Question] = {
    "watermark_status": Question(GetWatermarkStatus, WatermarkStatus)
}
"""By name."""
