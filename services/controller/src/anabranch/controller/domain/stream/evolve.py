"""Folds domain events into a stream's state, according to its table (`MACHINE`)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, SegmentId, StreamName, StreamRef, number_of
from anabranch.common.model.stream import (
    SegmentOffset,
    SegmentRange,
    StreamState,
    fixed,
)
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream import causes, commits, events, intents
from anabranch.controller.domain.stream.commits import CommitsSeen, Outcome, OutcomeChunk
from anabranch.controller.domain.stream.events import PlannedSegment, StreamEvent
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegment
from anabranch.controller.domain.stream.intents import (
    CommitPlan,
    Intent,
    IntentKind,
    RollPlan,
    ScalePlan,
)
from anabranch.controller.domain.stream.lifecycle import accepted, ended, pending
from anabranch.controller.domain.stream.state import MACHINE, Stream
from anabranch.controller.domain.stream.truncations import configured, truncated


def evolve(stream: Stream, event: StreamEvent) -> Stream:
    """The stream after the event."""
    status = MACHINE.after(stream.status, event)
    return replace(_evolved(stream, event), status=status)


def _evolved(stream: Stream, event: StreamEvent) -> Stream:
    """Everything except the status."""
    match event:
        case events.StreamUpdated() | events.StreamUpdating() | events.StreamUpdateApplied():
            return _update(stream, event)
        case events.StreamScaling() | events.StreamSuccessorsMade() | events.StreamScaled():
            return _scale(stream, event)
        case (
            events.StreamTruncating()
            | events.StreamReleasing()
            | events.StreamCutChecked()
            | events.StreamTruncated()
            | events.StreamTruncateFailed()
            | events.StreamCutRecorded()
        ):
            return truncated(stream, event)
        case (
            events.StreamCommitStarted()
            | events.StreamRollMade()
            | events.StreamRolled()
            | events.StreamCommitFinished()
        ):
            return _commit(stream, event)
        case events.StreamAbortsNoted():
            return _with_outcomes(stream, _aborted(event.aborted))
        case events.StreamOutcomesArchived():
            return _outcomes_archived(stream, event)
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
    | events.StreamDrained
    | events.StreamSealed
    | events.StreamDeleting
    | events.StreamDeleted,
) -> Stream:
    """Events between the stream's creation and its end."""
    match event:
        case events.StreamCreating():
            return _creating(stream, event)
        case events.StreamJoinedScope():
            return replace(stream, has_joined_scope=True)
        case events.StreamCreateFailed():
            return _tombstone(ended(stream, IntentKind.CREATE, event.error))
        case events.StreamCreated():
            return ended(stream, IntentKind.CREATE)
        case events.StreamSealing():
            return accepted(stream, IntentKind.SEAL, event)
        case events.StreamDrained():
            seal = pending(stream, IntentKind.SEAL)
            drained = replace(seal, revision=event.revision, is_drained=True)
            return replace(stream, intents=intents.changed(stream.intents, drained))
        case events.StreamSealed():
            sealed = tuple(
                SealedSegment(segment.segment_id, length)
                for segment, length in zip(stream.segments, event.lengths, strict=True)
            )
            return replace(ended(stream, IntentKind.SEAL), sealed=sealed)
        case events.StreamDeleting():
            return _deleting(stream, event)
        case events.StreamDeleted():
            return _tombstone(ended(stream, IntentKind.DELETE))
        case _:
            assert_never(event)


def _creating(stream: Stream, event: events.StreamCreating) -> Stream:
    segments = _ranges(event.segments)
    created = Stream(
        ref=StreamRef(ScopeName(event.scope), StreamName(event.stream)),
        incarnation=event.incarnation,
        scope_incarnation=event.scope_incarnation,
        config=event.config or fixed(len(segments)),
        segments=segments,
        highest_number=_highest(stream, segments),
        created_ms=event.at_ms,
        head=tuple(sorted(SegmentOffset(s.segment_id, 0) for s in segments)),
        epochs=(EpochRecord(0, 0, event.at_ms, segments, cause=causes.CREATE),),
        operations=stream.operations,
    )
    return accepted(created, IntentKind.CREATE, event)


def _deleting(stream: Stream, event: events.StreamDeleting) -> Stream:
    if stream.status is StreamState.CREATING:
        stream = ended(stream, IntentKind.CREATE, event.creation_error)
    return accepted(stream, IntentKind.DELETE, event)


def _update(
    stream: Stream,
    event: events.StreamUpdated | events.StreamUpdating | events.StreamUpdateApplied,
) -> Stream:
    match event:
        case events.StreamUpdated():
            updated = configured(stream, event.config)
            return updated if event.then_scales else _satisfied(updated, event.command_id, "update")
        case events.StreamUpdating():
            return accepted(stream, IntentKind.UPDATE, event, config=event.config)
        case events.StreamUpdateApplied():
            config = pending(stream, IntentKind.UPDATE).config
            assert config is not None
            updated = configured(stream, config)
            if not event.created:
                return ended(updated, IntentKind.UPDATE)
            created = _ranges(event.created)
            sealed = tuple(map(SegmentId, event.sealed))
            plan = ScalePlan(event.stream_epoch, sealed, created, cause=causes.UPDATE)
            turned = intents.become_scale(stream.intents, plan)
            return replace(updated, intents=turned, highest_number=_highest(stream, created))


def _scale(
    stream: Stream,
    event: events.StreamScaling | events.StreamSuccessorsMade | events.StreamScaled,
) -> Stream:
    match event:
        case events.StreamScaling():
            created = _ranges(event.created)
            sealed = tuple(map(SegmentId, event.sealed))
            plan = ScalePlan(event.stream_epoch, sealed, created, cause=event.cause)
            scaling = accepted(stream, IntentKind.SCALE, event, scale=plan)
            return replace(scaling, highest_number=_highest(stream, created))
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
            kind, after = "subscribe", known.added(subscriber, standing, event.cut)
        case events.StreamSubscriberRemoved():
            standing = (event.group_incarnation, event.generation)
            kind, after = "unsubscribe", known.removed(subscriber, standing)
        case events.StreamSubscriberReleased():
            after = known.released(subscriber, event.cut)
            noted = operations.with_frequent(stream.operations, event.command_id, "release")
            return replace(stream, subscriptions=after, operations=noted)
    return _satisfied(replace(stream, subscriptions=after), event.command_id, kind)


def _scaled(stream: Stream, event: events.StreamScaled) -> Stream:
    intent = pending(stream, IntentKind.SCALE)
    plan = intent.scale
    assert plan is not None
    record = EpochRecord(
        stream_epoch=plan.stream_epoch,
        reference_epoch=plan.stream_epoch,
        created_ms=max(intent.since_ms, stream.epochs[-1].created_ms + 1),
        created=tuple(sorted(plan.created, key=lambda s: s.keys.start)),
        sealed=tuple(map(SealedSegment, plan.sealed, event.sizes)),
        cause=plan.cause,
    )
    stay = [s for s in stream.segments if s.segment_id not in plan.sealed]
    segments = tuple(sorted((*stay, *plan.created), key=lambda s: s.keys.start))
    scaled = ended(stream, IntentKind.SCALE)
    return replace(scaled, segments=segments, epochs=(*stream.epochs, record))


def _commit(
    stream: Stream,
    event: events.StreamCommitStarted
    | events.StreamRollMade
    | events.StreamRolled
    | events.StreamCommitFinished,
) -> Stream:
    match event:
        case events.StreamCommitStarted():
            plan = CommitPlan(event.reference_epoch, event.transactions, event.stream_epochs)
            batch = Intent(IntentKind.COMMIT, event.revision, event.at_ms, (), commit=plan)
            return replace(stream, intents=intents.accepted(stream.intents, batch))
        case events.StreamRollMade():
            made = RollPlan(_ranges(event.taken), event.lengths, _ranges(event.renewed))
            return _with_plan(stream, replace(_commit_plan(stream), roll=made))
        case events.StreamRolled():
            return _rolled(stream, event)
        case events.StreamCommitFinished():
            return _committed(stream, event)


def _commit_plan(stream: Stream) -> CommitPlan:
    plan = pending(stream, IntentKind.COMMIT).commit
    assert plan is not None
    return plan


def _with_plan(stream: Stream, plan: CommitPlan) -> Stream:
    intent = replace(pending(stream, IntentKind.COMMIT), commit=plan)
    return replace(stream, intents=intents.changed(stream.intents, intent))


def _rolled(stream: Stream, event: events.StreamRolled) -> Stream:
    plan, current = _commit_plan(stream), stream.epochs[-1]
    taken, renewed = commits.rolled_epochs(current, stream.segments, plan, event.sizes, event.at_ms)
    after = _with_plan(stream, replace(plan, has_rolled=True))
    pending = tuple(
        replace(intent, scale=commits.migrated(intent.scale, renewed.created, renewed.stream_epoch))
        if intent.scale is not None
        else intent
        for intent in after.intents
    )
    return replace(
        after, intents=pending, segments=renewed.created, epochs=(*stream.epochs, taken, renewed)
    )


def _committed(stream: Stream, event: events.StreamCommitFinished) -> Stream:
    plan = _commit_plan(stream)
    committed = tuple(
        Outcome(transaction, is_committed=True, stream_epoch=opened_in, ended_ms=event.at_ms)
        for transaction, opened_in in zip(plan.transactions, plan.stream_epochs, strict=True)
    )
    seen = CommitsSeen(stream.commits.count + 1, stream.stream_epoch, _ends(stream, event.ends))
    finished = replace(ended(stream, IntentKind.COMMIT), commits=seen)
    return _with_outcomes(finished, committed + _aborted(event.aborted))


def _ends(stream: Stream, ends: tuple[int, ...]) -> tuple[int, ...]:
    """The ends of batches; a batch without data in a segment moves no end back."""
    before = stream.commits
    if before.stream_epoch != stream.stream_epoch or not before.ends or not ends:
        return ends
    return tuple(max(pair) for pair in zip(before.ends, ends, strict=True))


def _aborted(found: Iterable[events.TransactionOutcome]) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(
            o.transaction_id, is_committed=False, stream_epoch=o.stream_epoch, ended_ms=o.ended_ms
        )
        for o in found
    )


def _with_outcomes(stream: Stream, outcomes: tuple[Outcome, ...]) -> Stream:
    return replace(
        stream,
        outcomes=(*stream.outcomes, *outcomes),
        outcome_count=stream.outcome_count + len(outcomes),
    )


def _outcomes_archived(stream: Stream, event: events.StreamOutcomesArchived) -> Stream:
    archived, kept = stream.outcomes[: event.count], stream.outcomes[event.count :]
    ids = [outcome.transaction_id for outcome in archived]
    ended_ms = max(outcome.ended_ms for outcome in archived)
    chunk = OutcomeChunk(event.chunk, min(ids), max(ids), ended_ms)
    remembered = [c for c in stream.outcome_chunks if c.chunk >= event.forgotten_below]
    return replace(stream, outcomes=kept, outcome_chunks=(*remembered, chunk))


def _joined(stream: Stream, event: events.StreamIntentJoined) -> Stream:
    kind = IntentKind(event.intent) if event.intent else stream.intents[0].kind
    since_ms = pending(stream, kind).since_ms
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


def _tombstone(stream: Stream) -> Stream:
    """The permanent remainder of a deleted stream."""
    return Stream(
        ref=stream.ref,
        incarnation=stream.incarnation,
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
