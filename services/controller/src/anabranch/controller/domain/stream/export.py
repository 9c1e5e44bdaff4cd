"""What tier 2 is to be told of streams. Pure.

A stream's *shape* is what its readers must know: incarnation, state, stream epoch and segments.
A message that only notes a command leaves the shape alone, and there is nothing to tell. Told
are the states that a reader can use: not CREATING, when nothing can be read yet, and not
DELETING, when what was told before is still the best answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.tier2.streams import EarlierSegment, ExportedEpoch, ExportedStream
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream

_TOLD = frozenset({StreamState.ACTIVE, StreamState.SEALED, StreamState.DELETED})
KEPT_COUNT = 2
"""Objects about one stream that stay: whoever listed the last but one can still read it."""


class ShapedStream(NamedTuple):
    """A stream and the revision at which its shape changed last."""

    stream: Stream
    revision: int


def has_same_shape(before: Stream, after: Stream) -> bool:
    """Whether readers need not be told of the difference."""
    return _shape(before) == _shape(after)


def _shape(stream: Stream) -> tuple[object, ...]:
    return stream.incarnation, stream.status, stream.stream_epoch, stream.segments


def decide_exports(
    told: Mapping[StreamRef, int], streams: Iterable[ShapedStream]
) -> Sequence[ShapedStream]:
    """The streams of which tier 2 tells less than is known, in the order given.

    `told`: the revision that tier 2 tells of each stream; of a stream that is missing, nothing.
    A deleted stream is told of even if it is missing: another controller may be about to tell
    that it lives.
    """
    return [
        shaped
        for shaped in streams
        if shaped.stream.status in _TOLD
        and shaped.stream.ref is not None
        and shaped.revision > told.get(shaped.stream.ref, 0)
    ]


def exported_stream(
    shaped: ShapedStream, history: History | None, container_count: int
) -> ExportedStream:
    """What is written of the stream: the same for the same shape and revision, whoever asks.

    `history` is the stream's; None for a deleted one, which has none.
    """
    stream = shaped.stream
    assert stream.ref is not None
    assert stream.status is not None
    is_deleted = stream.status is StreamState.DELETED
    assert is_deleted == (history is None), "whoever lives has a history"
    return ExportedStream(
        ref=stream.ref,
        incarnation=stream.incarnation,
        revision=shaped.revision,
        state=stream.status,
        created_ms=stream.created_ms,
        container_count=container_count,
        epochs=() if is_deleted else (ExportedEpoch(stream.stream_epoch, stream.segments),),
        earlier=() if history is None else _earlier(history),
    )


def _earlier(history: History) -> tuple[EarlierSegment, ...]:
    found = [
        EarlierSegment(life.segment_id, life.keys, life.sealed_epoch, life.size)
        for life in history.lives.values()
        if life.sealed_epoch is not None and life.size is not None
    ]
    return tuple(sorted(found, key=lambda segment: segment.segment_id))


def superseded(names: Sequence[str]) -> Sequence[str]:
    """Of the objects about one stream, sorted by revision, those that may be deleted."""
    return names[:-KEPT_COUNT]
