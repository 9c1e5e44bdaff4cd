"""Streams as a controller knows them, made up for what tells tier 2 of them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import StreamRef, segment_id
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.controller.domain.stream.export import ShapedStream
from anabranch.controller.domain.stream.history import EpochRecord
from anabranch.controller.domain.stream.state import Stream


def shaped(
    ref: StreamRef, revision: int, state: StreamState = StreamState.ACTIVE, segments: int = 2
) -> ShapedStream:
    """The stream with evenly cut key ranges."""
    ranges = tuple(
        SegmentRange(segment_id(0, number), keys)
        for number, keys in enumerate(even_ranges(segments))
    )
    epochs = () if state is StreamState.DELETED else (EpochRecord(0, 0, 7, ranges),)
    stream = Stream(
        ref=ref, incarnation=1, status=state, segments=ranges, created_ms=7, epochs=epochs
    )
    return ShapedStream(stream, revision)


@dataclass
class ShapedStreams:
    """Answers as `Mirror.shaped_streams` does."""

    known: dict[str, ShapedStream] = field(default_factory=dict)

    def put(self, found: ShapedStream) -> str:
        """Know the stream like this from now on; returns its subject."""
        assert found.stream.ref is not None
        subject = stream_events(found.stream.ref)
        self.known[subject] = found
        return subject

    def __call__(self, subjects: Collection[str] | None) -> Iterator[ShapedStream]:
        for subject in self.known if subjects is None else subjects:
            yield self.known[subject]
