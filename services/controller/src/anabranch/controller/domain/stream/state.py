"""A stream's state and how events change it.

    ┌──────────┬───────────────────────────────┬──────────┬───────────────────┐
    │ from     │ event                         │ to       │ then next_step    │
    ├──────────┼───────────────────────────────┼──────────┼───────────────────┤
    │ (none)   │ StreamCreating                │ CREATING │ join_scope        │
    │ DELETED  │ StreamCreating (incarnation+1)│ CREATING │ join_scope        │
    │ CREATING │ StreamJoinedScope             │ CREATING │ create_segments   │
    │ CREATING │ StreamCreateFailed            │ DELETED  │ –                 │
    │ CREATING │ StreamCreated                 │ ACTIVE   │ –                 │
    │ ACTIVE   │ StreamSealing                 │ SEALING  │ seal_segments     │
    │ SEALING  │ StreamSealed                  │ SEALED   │ –                 │
    │ SEALED   │ StreamDeleting                │ DELETING │ delete_segments   │
    │ DELETING │ StreamDeleted                 │ DELETED  │ –                 │
    └──────────┴───────────────────────────────┴──────────┴───────────────────┘

`StreamIntentJoined` (in CREATING, SEALING, DELETING) and `StreamCommandSatisfied` (in SEALED)
note a command and leave the state. DELETED is the tombstone: it keeps the incarnation, the
highest segment number ever planned and the operations, and creating the name again is a
compare-and-set on it; segment names therefore never repeat.
"""

import itertools
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from pydantic import TypeAdapter

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    ScopeName,
    SegmentId,
    StreamName,
    StreamRef,
    number_of,
    segment_name,
)
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.controller.domain import operations
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.events import StreamEvent


class StreamStep(StrEnum):
    """What the workflows of a stream may have to do."""

    JOIN_SCOPE = "join_scope"
    CREATE_SEGMENTS = "create_segments"
    SEAL_SEGMENTS = "seal_segments"
    DELETE_SEGMENTS = "delete_segments"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream. `status` None: the name was never used.

    `segments`: those of the present stream epoch, sorted by key; `highest_number`: the highest
    segment number ever planned under this name, -1 before the first; `pending`: the commands of
    the intent that is being performed; `intent_revision`: at which the last intent was decided.
    """

    ref: StreamRef | None = None
    incarnation: int = 0
    status: StreamState | None = None
    scope_incarnation: int = 0
    has_joined_scope: bool = False
    stream_epoch: int = 0
    segments: tuple[SegmentRange, ...] = ()
    highest_number: int = -1
    created_ms: int = 0
    pending: tuple[str, ...] = ()
    intent_revision: int = 0
    operations: Operations = ()

    @property
    def is_live(self) -> bool:
        """The name is taken, though the stream may be half-created or half-deleted."""
        return self.status not in (None, StreamState.DELETED)

    def segment_names(self) -> tuple[str, ...]:
        """Full names of the present segments, in key order."""
        assert self.ref is not None
        return tuple(segment_name(self.ref, s.segment_id) for s in self.segments)


def evolve(stream: Stream, event: StreamEvent) -> Stream:
    """The stream after the event."""
    match event:
        case events.StreamCreating():
            return _creating(stream, event)
        case events.StreamJoinedScope():
            return replace(stream, has_joined_scope=True)
        case events.StreamCreateFailed():
            return replace(_rested(stream, StreamState.DELETED, event.error), segments=())
        case events.StreamCreated():
            return _rested(stream, StreamState.ACTIVE)
        case events.StreamSealing():
            return _intent(stream, StreamState.SEALING, event)
        case events.StreamSealed():
            return _rested(stream, StreamState.SEALED)
        case events.StreamDeleting():
            return _intent(stream, StreamState.DELETING, event)
        case events.StreamDeleted():
            return replace(_rested(stream, StreamState.DELETED), segments=())
        case events.StreamIntentJoined():
            return replace(
                stream,
                pending=(*stream.pending, event.command_id),
                operations=operations.with_started(stream.operations, event.command_id),
            )
        case events.StreamCommandSatisfied():
            noted = operations.with_satisfied(stream.operations, event.command_id)
            return replace(stream, operations=noted)
        case _:
            assert_never(event)


def _creating(stream: Stream, event: events.StreamCreating) -> Stream:
    segments = tuple(
        SegmentRange(SegmentId(s.segment_id), KeyRange(s.key_start, s.key_end))
        for s in event.segments
    )
    return Stream(
        ref=StreamRef(ScopeName(event.scope), StreamName(event.stream)),
        incarnation=event.incarnation,
        status=StreamState.CREATING,
        scope_incarnation=event.scope_incarnation,
        segments=segments,
        highest_number=max(number_of(s.segment_id) for s in segments),
        created_ms=event.at_ms,
        pending=(event.command_id,),
        intent_revision=event.revision,
        operations=operations.with_started(stream.operations, event.command_id),
    )


def _intent(
    stream: Stream, status: StreamState, event: events.StreamSealing | events.StreamDeleting
) -> Stream:
    return replace(
        stream,
        status=status,
        pending=(event.command_id,),
        intent_revision=event.revision,
        operations=operations.with_started(stream.operations, event.command_id),
    )


def _rested(stream: Stream, status: StreamState, error: ErrorBody | None = None) -> Stream:
    ended = operations.with_finished(stream.operations, stream.pending, error)
    return replace(stream, status=status, pending=(), operations=ended)


def next_step(stream: Stream) -> StreamStep | None:
    """What must be done next, if anything."""
    match stream.status:
        case StreamState.CREATING:
            if stream.has_joined_scope:
                return StreamStep.CREATE_SEGMENTS
            return StreamStep.JOIN_SCOPE
        case StreamState.SEALING:
            return StreamStep.SEAL_SEGMENTS
        case StreamState.DELETING:
            return StreamStep.DELETE_SEGMENTS
        case _:
            return None


_MOVES: frozenset[tuple[StreamState | None, StreamState | None]] = frozenset(
    {
        (None, StreamState.CREATING),
        (StreamState.DELETED, StreamState.CREATING),
        (StreamState.CREATING, StreamState.CREATING),
        (StreamState.CREATING, StreamState.DELETED),
        (StreamState.CREATING, StreamState.ACTIVE),
        (StreamState.ACTIVE, StreamState.SEALING),
        (StreamState.SEALING, StreamState.SEALING),
        (StreamState.SEALING, StreamState.SEALED),
        (StreamState.SEALED, StreamState.SEALED),
        (StreamState.SEALED, StreamState.DELETING),
        (StreamState.DELETING, StreamState.DELETING),
        (StreamState.DELETING, StreamState.DELETED),
    }
)


def check(before: Stream, after: Stream) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in _MOVES, "a stream moves only as its table says"
    is_new = not before.is_live
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "an incarnation begins only by creation, and by one"
    assert after.intent_revision >= before.intent_revision, "stamps of requests never fall"
    assert after.highest_number >= before.highest_number, "segment numbers are never reused"
    if is_new:
        lowest = min(number_of(s.segment_id) for s in after.segments)
        assert lowest > before.highest_number, "a new life's segments have new numbers"
    if after.is_live:
        _check_cover(after.segments)
    assert bool(after.pending) == (next_step(after) is not None), "an intent is what is pending"
    assert len(after.operations) <= operations.OPERATION_COUNT_MAX, "operations are bounded"
    if after.status is StreamState.ACTIVE:
        assert after.has_joined_scope, "a stream lives only in a scope that was seen open"


def _check_cover(segments: tuple[SegmentRange, ...]) -> None:
    assert segments, "a live stream has segments"
    assert segments[0].keys.start == 0.0, "the key space is covered from its start"
    assert segments[-1].keys.end == 1.0, "the key space is covered to its end"
    for left, right in itertools.pairwise(segments):
        assert left.keys.end == right.keys.start, "key ranges touch and do not overlap"


STREAM: Aggregate[Stream, StreamEvent] = Aggregate(
    kind="stream",
    initial=Stream(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[StreamEvent]),
    states=TypeAdapter(Stream),
)
