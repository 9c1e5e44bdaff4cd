"""Watermarks in a fake store, and a random course of a stream to take them from."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch.client.reading.frontier import FUTURE, Frontier, Position, Standing
from anabranch.client.reading.times.window import Place
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, StreamRef
from anabranch.common.model.watermark import (
    MarkedSegment,
    Watermark,
    encode_watermark,
    watermark_segment,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import AppendOnce
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore
from kit.rng import Random

WRITER = bytes(range(16))
KEYS = [number / 20 + 0.01 for number in range(20)]
"""Keys in every range that a random history makes."""
LENGTH = 100
"""Bytes in every segment of a random history."""


def mark_at(
    segments: Iterable[SegmentInStream],
    offsets: Mapping[str, int],
    lower_ms: int,
    upper_ms: int | None = None,
    *,
    incarnation: int = 1,
) -> Watermark:
    """A watermark at these offsets of the segments, by name; others at 0."""
    cut = (
        MarkedSegment(
            SegmentId(each.segment_id),
            KeyRange(each.key_start, each.key_end),
            offsets.get(each.name, 0),
        )
        for each in segments
    )
    found = tuple(sorted(cut, key=lambda row: row.segment_id))
    return Watermark(incarnation, lower_ms, lower_ms if upper_ms is None else upper_ms, found)


def store_marks(store: FakeSegmentStore, stream: StreamRef, *marks: Watermark) -> FakeSegment:
    """Append them as a controller does, one block each; makes the segment if need be."""
    segment = store.segments.setdefault(watermark_segment(stream), FakeSegment())
    for mark in marks:
        number = segment.last_numbers.get(WRITER, 0) + 1
        block = encode_block(
            [encode_watermark(mark)],
            writer_id=WRITER,
            first_event_number=number,
            base_timestamp_ms=mark.upper_ms,
        )
        append = AppendOnce(
            segment=watermark_segment(stream), writer_id=WRITER, first_event_number=number, count=1
        )
        segment.append(WRITER, append, block)
    return segment


@dataclass(frozen=True)
class History:
    """All segments of a stream through its epochs; each has `LENGTH` bytes."""

    epochs: list[list[Successor]]

    def after(self, name: str) -> list[Successor]:
        """The successors of a segment."""
        known = self.known[name].segment_id
        return [new for new in self.known.values() if known in new.predecessors]

    @property
    def known(self) -> dict[str, Successor]:
        return {each.name: each for made in self.epochs for each in made}


def history_of(bounds: list[list[float]]) -> History:
    """One epoch for each list of bounds, with a segment between any two of them."""
    epochs: list[list[Successor]] = []
    for epoch, inner in enumerate(bounds):
        made = []
        for number, (start, end) in enumerate(itertools.pairwise(inner)):
            before = tuple(
                old.segment_id
                for old in (epochs[-1] if epochs else [])
                if old.key_start < end and start < old.key_end
            )
            made.append(
                Successor(
                    segment_id=epoch << 32 | number,
                    name=f"plant/sensors/{number}.#epoch.{epoch}",
                    key_start=start,
                    key_end=end,
                    predecessors=before,
                )
            )
        epochs.append(made)
    return History(epochs)


class Walker:
    """A place that moves through a history at random: of a reader, or of all writers together."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.frontier = Frontier([(new, Position(0)) for new in history.epochs[0]])

    def step(self, chance: Random) -> bool:
        """Move forward in some segment; returns whether there was anything left."""
        moving = [
            name
            for name, at in self.frontier.positions.items()
            if at.offset < LENGTH or self._history.after(name)
        ]
        for name in chance.sample(sorted(moving), len(moving)):
            at = self.frontier.positions[name]
            if at.offset < LENGTH:
                further = min(LENGTH, at.offset + 10 * chance.randint(1, 10))
                index = chance.choice((0, 0, 2)) if further < LENGTH else 0
                self.frontier.positions[name] = Position(further, index)
                return True
            if self.frontier.finish(name, self._history.after(name)):
                return True
        return False

    @property
    def standings(self) -> list[Standing]:
        return self.frontier.standings

    @property
    def places(self) -> list[Place]:
        return self.frontier.places(self.frontier.positions)

    def offsets(self) -> dict[str, int]:
        return {name: at.offset for name, at in self.frontier.positions.items()}

    def mark(self, lower_ms: int, upper_ms: int) -> Watermark:
        """A watermark here."""
        segments = [segment for segment, _ in self.standings]
        return mark_at(segments, self.offsets(), lower_ms, upper_ms)


def place_of_key(standings: Iterable[Standing], key: float) -> tuple[int, Position]:
    """Where a cut has read the key to: the oldest segment of it in the cut, and the position."""
    found = [
        (segment.segment_id, at)
        for segment, at in standings
        if segment.key_start <= key < segment.key_end
    ]
    segment, at = min(found)
    return segment, max(at, Position(0)) if at == FUTURE else at
