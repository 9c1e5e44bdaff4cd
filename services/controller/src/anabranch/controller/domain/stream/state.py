"""A stream's state and how events change it.

    ┌──────────┬───────────────────────────────┬──────────┬────────────────────────────┐
    │ from     │ event                         │ to       │ then next_step             │
    ├──────────┼───────────────────────────────┼──────────┼────────────────────────────┤
    │ (none)   │ StreamCreating                │ CREATING │ join_scope                 │
    │ DELETED  │ StreamCreating (incarnation+1)│ CREATING │ join_scope                 │
    │ CREATING │ StreamJoinedScope             │ CREATING │ create_segments            │
    │ CREATING │ StreamCreateFailed            │ DELETED  │ –                          │
    │ CREATING │ StreamCreated                 │ ACTIVE   │ –                          │
    │ CREATING │ StreamDeleting                │ DELETING │ delete_segments            │
    │ ACTIVE   │ StreamUpdated                 │ ACTIVE   │ –                          │
    │ ACTIVE   │ StreamScaling                 │ ACTIVE   │ make_successors            │
    │ ACTIVE   │ StreamSuccessorsMade          │ ACTIVE   │ seal_predecessors          │
    │ ACTIVE   │ StreamScaled                  │ ACTIVE   │ –                          │
    │ ACTIVE   │ StreamTruncating              │ ACTIVE   │ truncate_segments          │
    │ ACTIVE   │ StreamTruncated               │ ACTIVE   │ –                          │
    │ ACTIVE   │ StreamTruncateFailed          │ ACTIVE   │ –                          │
    │ ACTIVE   │ StreamSealing                 │ ACTIVE   │ seal_segments              │
    │ ACTIVE   │ StreamSealed                  │ SEALED   │ –                          │
    │ SEALED   │ StreamDeleting                │ DELETING │ delete_segments            │
    │ DELETING │ StreamDeleted                 │ DELETED  │ –                          │
    └──────────┴───────────────────────────────┴──────────┴────────────────────────────┘

An active stream may have several intents, one of each kind; the first accepted is performed first,
and what it is doing shows as its `state` (SCALING, TRUNCATING, SEALING). Sealing is the last: when
it is pending, nothing else is accepted. `StreamIntentJoined` and `StreamCommandSatisfied` note a
command and leave the rest. A stream without intents that keeps more epochs than it should has
`archive_history` to do, which ends in `StreamHistoryArchived` (`archive.py`).

DELETED is the tombstone: it keeps the incarnation, the highest segment number ever planned and the
operations, and creating the name again is a compare-and-set on it; segment names therefore never
repeat.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    ScopeName,
    SegmentId,
    StreamName,
    StreamRef,
    number_of,
    segment_name,
)
from anabranch.common.model.stream import (
    SegmentOffset,
    SegmentRange,
    StreamConfig,
    StreamState,
    fixed,
)
from anabranch.controller.domain import operations
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.stream import archive, events, intents
from anabranch.controller.domain.stream.events import PlannedSegment, StreamEvent
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegment, SealedSegments
from anabranch.controller.domain.stream.intents import (
    Intent,
    IntentKind,
    Intents,
    ScalePlan,
    TruncationPlan,
)
from anabranch.controller.domain.stream.rows import SegmentOffsets, SegmentRanges
from anabranch.controller.domain.stream.subscriptions import NO_SUBSCRIPTIONS, Subscriptions

UNCONFIGURED = StreamConfig()


class StreamStep(StrEnum):
    """What the workflows of a stream may have to do."""

    JOIN_SCOPE = "join_scope"
    CREATE_SEGMENTS = "create_segments"
    MAKE_SUCCESSORS = "make_successors"
    SEAL_PREDECESSORS = "seal_predecessors"
    TRUNCATE_SEGMENTS = "truncate_segments"
    SEAL_SEGMENTS = "seal_segments"
    DELETE_SEGMENTS = "delete_segments"
    ARCHIVE_HISTORY = "archive_history"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream. `status` None: the name was never used.

    `segments`: those of the current stream epoch, sorted by key; `highest_number`: the highest
    segment number ever planned under this name, -1 before the first; `head`: where the stream
    begins; `epochs`: those that no history chunk holds, the
    current one last; `archived_epochs`: how many the chunks hold; `sealed`: the lengths of the
    current segments once the stream is sealed.
    """

    ref: StreamRef | None = None
    incarnation: int = 0
    status: StreamState | None = None
    scope_incarnation: int = 0
    has_joined_scope: bool = False
    config: StreamConfig = UNCONFIGURED
    segments: SegmentRanges = ()
    highest_number: int = -1
    created_ms: int = 0
    head: SegmentOffsets = ()
    epochs: tuple[EpochRecord, ...] = ()
    archived_epochs: int = 0
    archived_chunks: int = 0
    sealed: SealedSegments = ()
    subscriptions: Subscriptions = NO_SUBSCRIPTIONS
    intents: Intents = ()
    operations: Operations = ()

    @property
    def is_live(self) -> bool:
        """The name is taken, though the stream may be half-created or half-deleted."""
        return self.status not in (None, StreamState.DELETED)

    @property
    def state(self) -> StreamState | None:
        """What it is doing, as everybody sees it."""
        if self.status is not StreamState.ACTIVE or not self.intents:
            return self.status
        return _DOING[self.intents[0].kind]

    @property
    def stream_epoch(self) -> int:
        """The number of the current epoch; 0 where there is none."""
        return self.epochs[-1].stream_epoch if self.epochs else 0

    def segment_names(self) -> tuple[str, ...]:
        """Full names of the current segments, in key order."""
        return self.names_of(s.segment_id for s in self.segments)

    def names_of(self, segments: Iterable[SegmentId]) -> tuple[str, ...]:
        """Full names of segments of this stream."""
        assert self.ref is not None
        return tuple(segment_name(self.ref, segment) for segment in segments)


_DOING = {
    IntentKind.SCALE: StreamState.SCALING,
    IntentKind.TRUNCATE: StreamState.TRUNCATING,
    IntentKind.SEAL: StreamState.SEALING,
}


def evolve(stream: Stream, event: StreamEvent) -> Stream:
    """The stream after the event."""
    match event:
        case events.StreamUpdated():
            updated = replace(stream, config=event.config)
            return updated if event.then_scales else _satisfied(updated, event.command_id, "update")
        case events.StreamScaling() | events.StreamSuccessorsMade() | events.StreamScaled():
            return _scale(stream, event)
        case events.StreamTruncating() | events.StreamTruncated() | events.StreamTruncateFailed():
            return _truncate(stream, event)
        case events.StreamIntentJoined():
            return _joined(stream, event)
        case events.StreamCommandSatisfied():
            return _satisfied(stream, event.command_id)
        case (
            events.StreamSubscriberAdded()
            | events.StreamSubscriberRemoved()
            | events.StreamSubscriberReleased()
        ):
            return _subscribed(stream, event)
        case events.StreamHistoryArchived():
            kept = tuple(e for e in stream.epochs if e.stream_epoch >= event.through_epoch)
            return replace(
                stream,
                epochs=kept,
                archived_epochs=event.through_epoch,
                archived_chunks=event.chunk + 1,
            )
        case _:
            return _live(stream, event)


def _live(
    stream: Stream,
    event: events.StreamCreating
    | events.StreamJoinedScope
    | events.StreamCreateFailed
    | events.StreamCreated
    | events.StreamSealing
    | events.StreamSealed
    | events.StreamDeleting
    | events.StreamDeleted,
) -> Stream:
    """From its creation to its end."""
    match event:
        case events.StreamCreating():
            return _creating(stream, event)
        case events.StreamJoinedScope():
            return replace(stream, has_joined_scope=True)
        case events.StreamCreateFailed():
            return _tombstone(_ended(stream, IntentKind.CREATE, event.error))
        case events.StreamCreated():
            return replace(_ended(stream, IntentKind.CREATE), status=StreamState.ACTIVE)
        case events.StreamSealing():
            return _accepted(stream, IntentKind.SEAL, event)
        case events.StreamSealed():
            sealed = tuple(
                SealedSegment(segment.segment_id, length)
                for segment, length in zip(stream.segments, event.lengths, strict=True)
            )
            ended = _ended(stream, IntentKind.SEAL)
            return replace(ended, status=StreamState.SEALED, sealed=sealed)
        case events.StreamDeleting():
            return _deleting(stream, event)
        case events.StreamDeleted():
            return _tombstone(_ended(stream, IntentKind.DELETE))
        case _:
            assert_never(event)


def _creating(stream: Stream, event: events.StreamCreating) -> Stream:
    segments = _ranges(event.segments)
    created = Stream(
        ref=StreamRef(ScopeName(event.scope), StreamName(event.stream)),
        incarnation=event.incarnation,
        status=StreamState.CREATING,
        scope_incarnation=event.scope_incarnation,
        config=event.config or fixed(len(segments)),
        segments=segments,
        highest_number=_highest(stream, segments),
        created_ms=event.at_ms,
        head=tuple(sorted(SegmentOffset(s.segment_id, 0) for s in segments)),
        epochs=(EpochRecord(0, 0, event.at_ms, segments),),
        operations=stream.operations,
    )
    return _accepted(created, IntentKind.CREATE, event)


def _deleting(stream: Stream, event: events.StreamDeleting) -> Stream:
    if stream.status is StreamState.CREATING:
        stream = _ended(stream, IntentKind.CREATE, event.creation_error)
    deleting = replace(stream, status=StreamState.DELETING)
    return _accepted(deleting, IntentKind.DELETE, event)


def _scale(
    stream: Stream,
    event: events.StreamScaling | events.StreamSuccessorsMade | events.StreamScaled,
) -> Stream:
    match event:
        case events.StreamScaling():
            created = _ranges(event.created)
            plan = ScalePlan(event.stream_epoch, tuple(map(SegmentId, event.sealed)), created)
            accepted = _accepted(stream, IntentKind.SCALE, event, scale=plan)
            return replace(accepted, highest_number=_highest(stream, created))
        case events.StreamSuccessorsMade():
            made = tuple(
                replace(intent, scale=replace(intent.scale, is_made=True))
                if intent.scale is not None
                else intent
                for intent in stream.intents
            )
            return replace(stream, intents=made)
        case events.StreamScaled():
            return _scaled(stream, event)


def _truncate(
    stream: Stream,
    event: events.StreamTruncating | events.StreamTruncated | events.StreamTruncateFailed,
) -> Stream:
    match event:
        case events.StreamTruncating():
            plan = TruncationPlan(event.cut)
            return _accepted(stream, IntentKind.TRUNCATE, event, truncation=plan)
        case events.StreamTruncated():
            done = _pending(stream, IntentKind.TRUNCATE).truncation
            assert done is not None
            return replace(_ended(stream, IntentKind.TRUNCATE), head=done.cut)
        case events.StreamTruncateFailed():
            return _ended(stream, IntentKind.TRUNCATE, event.error)


def _subscribed(
    stream: Stream,
    event: events.StreamSubscriberAdded
    | events.StreamSubscriberRemoved
    | events.StreamSubscriberReleased,
) -> Stream:
    known, subscriber = stream.subscriptions, event.subscriber
    match event:
        case events.StreamSubscriberAdded():
            standing = (event.group_incarnation, event.generation)
            kind, after = "subscribe", known.added(subscriber, standing)
        case events.StreamSubscriberRemoved():
            standing = (event.group_incarnation, event.generation)
            kind, after = "unsubscribe", known.removed(subscriber, standing)
        case events.StreamSubscriberReleased():
            after = known.released(subscriber, event.cut)
            noted = operations.with_frequent(stream.operations, event.command_id, "release")
            return replace(stream, subscriptions=after, operations=noted)
    return _satisfied(replace(stream, subscriptions=after), event.command_id, kind)


def _scaled(stream: Stream, event: events.StreamScaled) -> Stream:
    intent = _pending(stream, IntentKind.SCALE)
    plan = intent.scale
    assert plan is not None
    record = EpochRecord(
        stream_epoch=plan.stream_epoch,
        reference_epoch=plan.stream_epoch,
        created_ms=max(intent.since_ms, stream.epochs[-1].created_ms + 1),
        created=tuple(sorted(plan.created, key=lambda s: s.keys.start)),
        sealed=tuple(map(SealedSegment, plan.sealed, event.sizes)),
    )
    stay = [s for s in stream.segments if s.segment_id not in plan.sealed]
    segments = tuple(sorted((*stay, *plan.created), key=lambda s: s.keys.start))
    ended = _ended(stream, IntentKind.SCALE)
    return replace(ended, segments=segments, epochs=(*stream.epochs, record))


def _accepted(
    stream: Stream,
    kind: IntentKind,
    event: events.StreamCreating
    | events.StreamScaling
    | events.StreamTruncating
    | events.StreamSealing
    | events.StreamDeleting,
    *,
    scale: ScalePlan | None = None,
    truncation: TruncationPlan | None = None,
) -> Stream:
    intent = Intent(kind, event.revision, event.at_ms, (event.command_id,), scale, truncation)
    return replace(
        stream,
        intents=(*stream.intents, intent),
        operations=operations.with_started(
            stream.operations, event.command_id, kind.value, event.at_ms
        ),
    )


def _joined(stream: Stream, event: events.StreamIntentJoined) -> Stream:
    kind = IntentKind(event.intent) if event.intent else stream.intents[0].kind
    since_ms = _pending(stream, kind).since_ms
    return replace(
        stream,
        intents=intents.joined(stream.intents, kind, event.command_id),
        operations=operations.with_started(
            stream.operations, event.command_id, kind.value, since_ms
        ),
    )


def _satisfied(stream: Stream, command_id: str, kind: str = "") -> Stream:
    noted = operations.with_satisfied(stream.operations, command_id, kind)
    return replace(stream, operations=noted)


def _pending(stream: Stream, kind: IntentKind) -> Intent:
    found = intents.find(stream.intents, kind)
    assert found is not None, f"an event ends the {kind} that nobody asked for"
    return found


def _ended(stream: Stream, kind: IntentKind, error: ErrorBody | None = None) -> Stream:
    found = _pending(stream, kind)
    ended = operations.with_finished(stream.operations, found.commands, error)
    return replace(stream, intents=intents.without(stream.intents, kind), operations=ended)


def _tombstone(stream: Stream) -> Stream:
    """What stays of a stream for ever."""
    return Stream(
        ref=stream.ref,
        incarnation=stream.incarnation,
        status=StreamState.DELETED,
        scope_incarnation=stream.scope_incarnation,
        has_joined_scope=stream.has_joined_scope,
        highest_number=stream.highest_number,
        created_ms=stream.created_ms,
        operations=stream.operations,
    )


def _ranges(planned: Iterable[PlannedSegment]) -> tuple[SegmentRange, ...]:
    return tuple(
        SegmentRange(SegmentId(s.segment_id), KeyRange(s.key_start, s.key_end)) for s in planned
    )


def _highest(stream: Stream, segments: Iterable[SegmentRange]) -> int:
    return max(stream.highest_number, *(number_of(s.segment_id) for s in segments))


def next_step(stream: Stream) -> StreamStep | None:
    """What must be done next, if anything."""
    if not stream.intents:
        return StreamStep.ARCHIVE_HISTORY if archive.due_chunk(stream.epochs) else None
    intent = stream.intents[0]
    match intent.kind:
        case IntentKind.CREATE if not stream.has_joined_scope:
            return StreamStep.JOIN_SCOPE
        case IntentKind.CREATE:
            return StreamStep.CREATE_SEGMENTS
        case IntentKind.SCALE:
            assert intent.scale is not None
            is_made = intent.scale.is_made
            return StreamStep.SEAL_PREDECESSORS if is_made else StreamStep.MAKE_SUCCESSORS
        case IntentKind.TRUNCATE:
            return StreamStep.TRUNCATE_SEGMENTS
        case IntentKind.SEAL:
            return StreamStep.SEAL_SEGMENTS
        case IntentKind.DELETE:
            return StreamStep.DELETE_SEGMENTS
        case _:
            assert_never(intent.kind)
