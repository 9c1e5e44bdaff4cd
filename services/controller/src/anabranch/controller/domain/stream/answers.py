"""Answers to queries that follow from a stream's present state. Pure.

Writers and readers already know segments that a pending scale or roll has created, before their
epoch becomes current: `planned` finds them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypedDict

from anabranch.common.contracts import queries
from anabranch.common.contracts import stream_queries as asked
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, StreamRef, epoch_of, segment_name
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.stream.state import Stream, next_step


class Where(TypedDict):
    """The fields of `SegmentInStream`."""

    segment_id: int
    name: str
    key_start: float
    key_end: float


def where(ref: StreamRef, segment: SegmentId, keys: KeyRange) -> Where:
    """The fields that name a segment in answers."""
    return Where(
        segment_id=segment,
        name=segment_name(ref, segment),
        key_start=keys.start,
        key_end=keys.end,
    )


def in_stream(ref: StreamRef, segments: Iterable[SegmentRange]) -> list[queries.SegmentInStream]:
    """The segments in the given order."""
    return [queries.SegmentInStream(**where(ref, s.segment_id, s.keys)) for s in segments]


def ref_of(stream: Stream) -> StreamRef:
    """The name of a stream that was created."""
    assert stream.ref is not None
    return stream.ref


def described(stream: Stream, revision: int) -> queries.StreamDescription:
    """The description of a live stream."""
    ref, state, current = ref_of(stream), stream.state, stream.epochs[-1]
    assert state is not None
    return queries.StreamDescription(
        scope=ref.scope,
        stream=ref.stream,
        incarnation=stream.incarnation,
        revision=revision,
        state=state,
        segment_count=len(stream.segments),
        stream_epoch=current.stream_epoch,
        created_ms=stream.created_ms,
        config=stream.config,
        reference_epoch=current.reference_epoch,
        last_scaled_ms=current.created_ms if current.stream_epoch else None,
        has_head_cut=any(p.offset or epoch_of(p.segment_id) for p in stream.head),
        intents=_pending(stream),
    )


def _pending(stream: Stream) -> tuple[queries.PendingIntent, ...]:
    step = next_step(stream)
    return tuple(
        queries.PendingIntent(
            kind=intent.kind.value,
            since_ms=intent.since_ms,
            step=step.value if step is not None and not position else "",
        )
        for position, intent in enumerate(stream.intents)
    )


def current_segments(stream: Stream) -> queries.SegmentList:
    """The segments of the current epoch of a live stream."""
    state = stream.state
    assert state is not None
    return queries.SegmentList(
        incarnation=stream.incarnation,
        state=state,
        stream_epoch=stream.stream_epoch,
        segments=tuple(in_stream(ref_of(stream), stream.segments)),
    )


def scale_checked(stream: Stream, stream_epoch: int) -> asked.ScaleChecked:
    """Whether the scale that began at that epoch has ended. Raises InvalidRequest."""
    if stream_epoch > stream.stream_epoch:
        raise InvalidRequest(
            "the stream has not reached that epoch",
            stream_epoch=stream.stream_epoch,
            asked=stream_epoch,
        )
    assert stream.state is not None
    return asked.ScaleChecked(
        status="in_progress" if stream_epoch == stream.stream_epoch else "done",
        state=stream.state,
        stream_epoch=stream.stream_epoch,
    )


class Change(NamedTuple):
    """Segments that are about to be sealed, and their replacements, which already exist."""

    sealed: Sequence[SegmentRange]
    created: Sequence[SegmentRange]


def planned(stream: Stream) -> Sequence[Change]:
    """The changes whose new segments exist, although their epochs have not begun, in order."""
    found: list[Change] = []
    for intent in stream.intents:
        if intent.scale is not None and intent.scale.is_made:
            sealed = set(intent.scale.sealed)
            replaced = [s for s in stream.segments if s.segment_id in sealed]
            found.append(Change(replaced, intent.scale.created))
        plan = intent.commit
        if plan is not None and plan.roll is not None and not plan.has_rolled:
            found.append(Change(stream.segments, plan.roll.taken))
            found.append(Change(plan.roll.taken, plan.roll.renewed))
    return found
