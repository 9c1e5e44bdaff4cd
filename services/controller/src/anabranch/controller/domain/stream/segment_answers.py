"""Answers to queries about single segments, from a stream's state and history. Pure.

    ┌───────────────────────────────────────────────┬───────────────┬──────────────────────────┐
    │ the segment                                   │ status        │ successors               │
    ├───────────────────────────────────────────────┼───────────────┼──────────────────────────┤
    │ was sealed by a scale                         │ followed      │ of the epoch after it    │
    │ is about to be: the new segments exist        │ followed      │ the planned ones         │
    │ is about to be: the new segments may not exist│ open          │                          │
    │ is new: it exists, its epoch has not begun    │ open          │                          │
    │ was taken over by a roll that is not done yet │ followed      │ the renewed ones         │
    │ is one of a sealed stream's last              │ stream_sealed │                          │
    │ is any other of the current epoch             │ open          │                          │
    └───────────────────────────────────────────────┴───────────────┴──────────────────────────┘

A truncation removes no segment from the history, so deleted segments are followed too.
"""

from collections.abc import Callable, Sequence

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import SegmentNotFound
from anabranch.common.model.names import SegmentId, epoch_of
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.answers import Change, planned, ref_of, where
from anabranch.controller.domain.stream.history import History, SegmentLife, overlaps
from anabranch.controller.domain.stream.state import Stream

_ENDED = frozenset({StreamState.SEALED, StreamState.DELETING})


def successors(stream: Stream, history: History, segment: SegmentId) -> asked.SuccessorsFound:
    """The successors of a segment, and its status. Raises SegmentNotFound."""
    life = history.lives.get(segment)
    if life is not None and life.sealed_epoch is not None:
        after = history.successors(segment)
        return _followed(stream, [(s, history.predecessors(s.segment_id)) for s in after])
    for change in planned(stream):
        found = next((s for s in change.sealed if s.segment_id == segment), None)
        if found is not None:
            return _followed(stream, _replacing(change, found))
    if life is None:
        _new_segment(stream, segment)
        return _without(stream, "open")
    return _without(stream, "stream_sealed" if stream.status in _ENDED else "open")


def segment_described(
    stream: Stream,
    history: History,
    segment: SegmentId,
    locate: Callable[[str], SegmentLocation],
) -> asked.SegmentDescription:
    """A segment and its location, which `locate` finds by name. Raises SegmentNotFound."""
    life = history.lives.get(segment)
    if life is None:
        life = _as_life(_new_segment(stream, segment))
    is_deleted = cuts.frontier(history, stream.head).is_past(life)
    named = where(ref_of(stream), segment, life.keys)
    location = locate(named["name"])
    return asked.SegmentDescription(
        **named,
        state="deleted" if is_deleted else "active" if life.size is None else "sealed",
        stream_epoch=epoch_of(segment),
        sealed_epoch=life.sealed_epoch,
        size=life.size,
        container=location.container,
        node_id=location.node_id,
    )


def _replacing(
    change: Change, segment: SegmentRange
) -> list[tuple[SegmentLife, list[SegmentLife]]]:
    """The successors of a segment that the change seals, with all their predecessors."""
    new = [s for s in change.created if overlaps(s.keys, segment.keys)]
    return [
        (_as_life(s), [_as_life(old) for old in change.sealed if overlaps(old.keys, s.keys)])
        for s in sorted(new, key=lambda s: s.keys.start)
    ]


def _new_segment(stream: Stream, segment: SegmentId) -> SegmentRange:
    for change in planned(stream):
        for created in change.created:
            if created.segment_id == segment:
                return created
    raise SegmentNotFound(
        "the stream does not have this segment", stream=str(ref_of(stream)), segment=segment
    )


def _as_life(segment: SegmentRange) -> SegmentLife:
    return SegmentLife(segment.segment_id, segment.keys)


def _without(stream: Stream, status: str) -> asked.SuccessorsFound:
    return asked.SuccessorsFound.model_validate(
        {"incarnation": stream.incarnation, "status": status}
    )


def _followed(
    stream: Stream, found: Sequence[tuple[SegmentLife, Sequence[SegmentLife]]]
) -> asked.SuccessorsFound:
    ref = ref_of(stream)
    return asked.SuccessorsFound(
        incarnation=stream.incarnation,
        status="followed",
        successors=tuple(
            asked.Successor(
                **where(ref, s.segment_id, s.keys),
                predecessors=tuple(before.segment_id for before in befores),
            )
            for s, befores in found
        ),
    )
