"""Says whether watermarks are true; knows every event with its time, and every note.

It is told of notes, removals and stored watermarks in the order in which they happen. Of each
stored watermark it requires at once that its lower time is later than the last one's, and that its
cut covers the key space exactly and goes back for no key. At the end it requires that no event
behind a cut is older than the watermark, if its writer was active when the controller read the
marks: the writer had then noted, within the last time-out, a time later than the watermark of that
moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from anabranch.common.model.names import (
    StreamName,
    StreamRef,
    epoch_of,
    parse_segment_name,
)
from anabranch.common.model.stream import StreamCut
from anabranch.common.model.watermark import (
    MarkedSegment,
    Watermark,
    decode_watermark,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.wire.block import Block
from anabranch.controller.ports import SegmentStores
from anabranch.controller.projections.watermark_log import Tail, WatermarkLog
from kit.fake_writer_times import InMemoryWriterTimes, SeenTimes
from kit.sim_segments import Piece, SimSegments


@dataclass(slots=True)
class Stated:
    """A stored watermark. `decided_s`: when its controller read the marks."""

    watermark: Watermark
    stored_s: float
    decided_s: float


@dataclass(slots=True)
class Notes:
    """What a writer noted: when, and which time. `closed_s`: when it was removed."""

    rows: list[tuple[float, int]] = field(default_factory=list)
    closed_s: float = float("inf")


class WatermarkReferee:
    """See the module. `wrong`: what was found, in words."""

    def __init__(self, segments: SimSegments, clock: Clock, timeout_s: float) -> None:
        self.wrong: list[str] = []
        self.stated: dict[tuple[StreamRef, int], list[Stated]] = {}
        self.times: dict[tuple[str, int], int] = {}
        """The time of each event, by writer and number."""
        self.owners: dict[str, str] = {}
        """Who notes times for writers that have another name in transactions."""
        self._notes: dict[tuple[StreamRef, int, str], Notes] = {}
        self._decided: dict[Watermark, float] = {}
        self._segments = segments
        self._clock = clock
        self._timeout_s = timeout_s
        segments.on_block.append(self._stored)

    def noted(self, stream: StreamRef, incarnation: int, writer: str, timestamp_ms: int) -> None:
        """A note was taken."""
        notes = self._notes.setdefault((stream, incarnation, writer), Notes())
        notes.rows.append((self._clock.monotonic(), timestamp_ms))
        notes.closed_s = float("inf")

    def removed(self, stream: StreamRef, incarnation: int, writer: str) -> None:
        """A writer was removed."""
        self._notes[stream, incarnation, writer].closed_s = self._clock.monotonic()

    def decided(self, watermark: Watermark, at_s: float) -> None:
        """A controller is about to append it."""
        self._decided[watermark] = min(at_s, self._decided.get(watermark, at_s))

    def _stored(self, segment: str, block: bytes) -> None:
        internal, _ = parse_segment_name(segment)
        stream = StreamRef(internal.scope, StreamName(internal.stream.removeprefix("_MARK")))
        watermark = decode_watermark(Block(block)[0])
        rows = self.stated.setdefault((stream, watermark.incarnation), [])
        self._judge_next([one.watermark for one in rows], watermark)
        rows.append(Stated(watermark, self._clock.monotonic(), self._decided[watermark]))

    def _judge_next(self, before: Sequence[Watermark], watermark: Watermark) -> None:
        keys = sorted(marked.key_range for marked in watermark.cut)
        is_exact = bool(keys) and keys[0].start == 0.0 and keys[-1].end == 1.0
        is_exact &= all(one.end == other.start for one, other in pairwise(keys))
        self._require(is_exact, f"{watermark} does not cover the key space")
        if not before:
            return
        last = before[-1]
        self._require(watermark.lower_ms > last.lower_ms, f"{watermark} follows {last}")
        for was in last.cut:
            for now in watermark.cut:
                overlap = was.key_range.start < now.key_range.end
                if overlap and now.key_range.start < was.key_range.end:
                    goes_on = _place(was) <= _place(now)
                    self._require(goes_on, f"{watermark} goes back from {last}")

    def judge(self) -> None:
        """At the end: no watermark is ahead of an event of an active writer."""
        for (stream, incarnation), rows in self.stated.items():
            events = self._events(stream)
            for number, one in enumerate(rows):
                lower_before = [(r.stored_s, r.watermark.lower_ms) for r in rows[:number]]
                for writer, pieces in events.items():
                    notes = self._notes.get((stream, incarnation, writer))
                    if notes is not None and self._is_active(notes, one.decided_s, lower_before):
                        self._judge_events(one.watermark, writer, pieces)

    def _is_active(
        self, notes: Notes, at_s: float, lower_before: Sequence[tuple[float, int]]
    ) -> bool:
        if notes.closed_s <= at_s:
            return False
        for noted_s, timestamp_ms in notes.rows:
            if at_s - self._timeout_s < noted_s <= at_s:
                lower = [ms for stored_s, ms in lower_before if stored_s <= noted_s]
                if timestamp_ms > max(lower, default=-1):
                    return True
        return False

    def _judge_events(
        self, watermark: Watermark, writer: str, pieces: Sequence[tuple[int, int, Piece]]
    ) -> None:
        for segment, end, piece in pieces:
            timestamp_ms = self.times[piece.writer, piece.number]
            if timestamp_ms < watermark.lower_ms and not _is_before(
                segment, end, piece.key, watermark.cut
            ):
                self.wrong.append(f"{piece} of {writer} at {timestamp_ms} lies behind {watermark}")

    def _events(self, stream: StreamRef) -> dict[str, list[tuple[int, int, Piece]]]:
        """All events by who notes their times: segment, end, and the piece."""
        found: dict[str, list[tuple[int, int, Piece]]] = {}
        for name, pieces in self._segments.contents.items():
            ref, segment = parse_segment_name(name.partition("#transaction")[0])
            if ref != stream or "#transaction" in name:
                continue
            for end, piece in zip(accumulate(p.size for p in pieces), pieces, strict=True):
                if (piece.writer, piece.number) in self.times:
                    writer = self.owners.get(piece.writer, piece.writer)
                    found.setdefault(writer, []).append((segment, end, piece))
        return found

    def _require(self, holds: bool, wrong: str) -> None:
        if not holds:
            self.wrong.append(wrong)


def _place(marked: MarkedSegment) -> tuple[int, int]:
    return epoch_of(marked.segment_id), marked.offset


def _is_before(segment: int, end: int, key: float, cut: Sequence[MarkedSegment]) -> bool:
    marked = next(one for one in cut if key in one.key_range)
    if segment == marked.segment_id:
        return end <= marked.offset
    return segment < marked.segment_id


class RefereedTimes(InMemoryWriterTimes):
    """Marks of which a referee is told."""

    def __init__(self, clock: Clock, referee: WatermarkReferee) -> None:
        super().__init__(clock)
        self._referee = referee

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        await super().note(stream, incarnation, writer_id, timestamp_ms, positions)
        self._referee.noted(stream, incarnation, writer_id, timestamp_ms)

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        was_known = await super().remove(stream, incarnation, writer_id)
        if was_known:
            self._referee.removed(stream, incarnation, writer_id)
        return was_known


class RefereedLog(WatermarkLog):
    """Watermarks of which a referee is told before they are appended."""

    def __init__(
        self, stores: SegmentStores, ids: IdSource, seen: SeenTimes, referee: WatermarkReferee
    ) -> None:
        super().__init__(stores, ids)
        self._seen = seen
        self._referee = referee

    async def append(
        self, stream: StreamRef, tail: Tail, watermark: Watermark, now_ms: int
    ) -> Tail:
        """See `WatermarkLog.append`."""
        at_s = self._seen.at_s[stream, watermark.incarnation]
        self._referee.decided(watermark, at_s)
        return await super().append(stream, tail, watermark, now_ms)
