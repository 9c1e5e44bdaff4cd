"""Selects the streams to export to tier 2, and their content. Pure.

A stream's *shape* is the part that its readers need: incarnation, state, stream epoch and segments.
A message that only notes a command leaves the shape unchanged, and needs no export. Exported are
the states that a reader can use: not CREATING, when nothing can be read yet, and not DELETING, when
the last export is still the best answer. Internal streams are not exported, except those of topics.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.common.model.names import StreamRef, is_internal
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import is_backing
from anabranch.common.tier2.streams import EarlierSegment, ExportedEpoch, ExportedStream
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream

_TOLD = frozenset({StreamState.ACTIVE, StreamState.SEALED, StreamState.DELETED})
KEPT_COUNT = 2
"""The number of objects about one stream that stay: a reader that listed the last but one can still
read it.
"""


class ShapedStream(NamedTuple):
    """A stream and the revision at which its shape last changed."""

    stream: Stream
    revision: int


def is_exported(stream: StreamRef) -> bool:
    """Whether readers of tier 2 may read the stream: a stream of a user, or of a topic."""
    return not is_internal(stream.stream) or is_backing(stream.stream)


def has_same_shape(before: Stream, after: Stream) -> bool:
    """Whether the difference needs no export."""
    return _shape(before) == _shape(after)


def _shape(stream: Stream) -> tuple[object, ...]:
    return stream.incarnation, stream.status, stream.stream_epoch, stream.segments


def decide_exports(
    told: Mapping[StreamRef, int], streams: Iterable[ShapedStream]
) -> Sequence[ShapedStream]:
    """The streams whose shape is newer than their export, in the given order.

    `told`: the exported revision of each stream; a missing stream has none. A deleted stream is
    exported even if it is missing: another controller may be about to export it as live.
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
    """The exported content of the stream: the same for the same shape and revision.

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
    """The objects about one stream that may be deleted; `names` are sorted by revision."""
    return names[:-KEPT_COUNT]
