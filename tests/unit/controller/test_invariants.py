"""Every invariant of scopes and streams stops a decision that would break it."""

import itertools
from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import OperationState
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    SegmentOffset,
    SegmentRange,
    StreamState,
    fixed,
)
from anabranch.controller.domain.operations import OPERATION_COUNT_MAX, Operation
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeStatus
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegment
from anabranch.controller.domain.stream.intents import Intent, IntentKind, ScalePlan
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.retention_set import (
    CUTS_MAX,
    RecordedCut,
    Release,
    RetentionSet,
)
from anabranch.controller.domain.stream.state import Stream

WHOLE = KeyRange(0.0, 1.0)
LOW, HIGH = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)


def stream(*stored: events.StreamEvent) -> Stream:
    return STREAM.apply(Stream(), stored)


CREATING = stream(
    events.StreamCreating(
        command_id="c",
        revision=1,
        scope="s",
        stream="x",
        incarnation=1,
        scope_incarnation=1,
        segments=(events.PlannedSegment(segment_id=0, key_start=0.0, key_end=1.0),),
        at_ms=1000,
    )
)
ACTIVE = STREAM.apply(CREATING, [events.StreamJoinedScope(), events.StreamCreated()])
SCALING = STREAM.apply(
    ACTIVE,
    [
        events.StreamScaling(
            command_id="s",
            revision=4,
            stream_epoch=1,
            sealed=(0,),
            created=(
                events.PlannedSegment(segment_id=segment_id(1, 1), key_start=0.0, key_end=0.5),
                events.PlannedSegment(segment_id=segment_id(1, 2), key_start=0.5, key_end=1.0),
            ),
            at_ms=2000,
        )
    ],
)
SCALED = STREAM.apply(SCALING, [events.StreamScaled(sizes=(5,))])
FIRST, SECOND = SCALED.epochs
CUT = (SegmentOffset(SegmentId(0), 5),)
TRUNCATING = STREAM.apply(
    ACTIVE, [events.StreamTruncating(command_id="t", revision=4, cut=CUT, at_ms=2000)]
)
CHECKED = STREAM.apply(TRUNCATING, [events.StreamCutChecked()])
TRUNCATED = STREAM.apply(CHECKED, [events.StreamTruncated()])
SEALED = STREAM.apply(
    ACTIVE,
    [events.StreamSealing(command_id="e", revision=4), events.StreamSealed(lengths=(5,))],
)
TOMBSTONE = STREAM.apply(
    SEALED, [events.StreamDeleting(command_id="d", revision=6), events.StreamDeleted()]
)
RUNNING = Operation("x")
RETAINED = replace(
    ACTIVE, config=replace(ACTIVE.config, retention=RetentionPolicy(RetentionType.TIME_MS, 1))
)
RECORDED, SMALLER = RecordedCut(1000, 5, CUT), RecordedCut(2000, 4, CUT)
GOING = STREAM.apply(SEALED, [events.StreamDeleting(command_id="d", revision=6)])
GAVE_UP = replace(ACTIVE, retention=RetentionSet(released_bytes=5))
SEALING = STREAM.apply(ACTIVE, [events.StreamSealing(command_id="e", revision=4)])
BATCH = STREAM.apply(
    SCALED,
    [
        events.StreamCommitStarted(
            revision=6, reference_epoch=0, transactions=("1" * 32,), stream_epochs=(0,), at_ms=2500
        )
    ],
)
ROLLING = STREAM.apply(
    BATCH,
    [
        events.StreamRollMade(
            taken=(events.PlannedSegment(segment_id=segment_id(2, 0), key_start=0.0, key_end=1.0),),
            lengths=(9,),
            renewed=tuple(
                events.PlannedSegment(
                    segment_id=segment_id(3, number), key_start=start, key_end=start + 0.5
                )
                for number, start in ((1, 0.0), (2, 0.5))
            ),
        )
    ],
)
ROLLED = STREAM.apply(ROLLING, [events.StreamRolled(sizes=(3, 4), at_ms=2600)])
TAKEN, RENEWED = ROLLED.epochs[2:]
ENDED = STREAM.apply(ROLLED, [events.StreamCommitFinished(ends=(), at_ms=2700)])


def many_cuts(count: int) -> list[RecordedCut]:
    return [RecordedCut(1000 + n, 5, CUT) for n in range(count)]


def set_of(*cuts: RecordedCut) -> RetentionSet:
    return RetentionSet(cuts=cuts)


def planned(scale: ScalePlan) -> Stream:
    (intent,) = SCALING.intents
    numbers = [segment.segment_id & 0xFFFFFFFF for segment in scale.created]
    return replace(
        SCALING, intents=(replace(intent, scale=scale),), highest_number=max(numbers, default=0)
    )


def rolled_as(taken: EpochRecord | None = None, renewed: EpochRecord | None = None) -> Stream:
    """As it should be after the roll, but for these."""
    return replace(ROLLED, epochs=(*SCALED.epochs, taken or TAKEN, renewed or RENEWED))


def renumbered(rolled: Stream) -> Stream:
    """Rolled to segments of other numbers."""
    created = tuple(
        replace(s, segment_id=segment_id(3, 7 + at)) for at, s in enumerate(RENEWED.created)
    )
    epochs = (*SCALED.epochs, TAKEN, replace(RENEWED, created=created))
    return replace(rolled, segments=created, epochs=epochs, highest_number=8)


def rebatched(batch: Stream, transaction: str) -> Stream:
    """The same, with another transaction in the batch."""
    (pending,) = batch.intents
    assert pending.commit is not None
    plan = replace(pending.commit, transactions=(transaction,))
    return replace(batch, intents=(replace(pending, commit=plan),))


def drained(revision: int) -> Intent:
    """The seal that `SEALING` has, later."""
    (pending,) = SEALING.intents
    return replace(pending, revision=revision, is_drained=True)


def plan(epoch: int, *created: SegmentRange, sealed: int = 0) -> ScalePlan:
    return ScalePlan(epoch, (SegmentId(sealed),), created)


def intent(kind: IntentKind, revision: int) -> Intent:
    return Intent(kind, revision, 0, ())


def test_what_really_happens_breaks_none() -> None:
    lives = [Stream(), CREATING, ACTIVE, SCALING, SCALED, BATCH, ROLLING, ROLLED, ENDED]
    for before, after in [*itertools.pairwise(lives), (ACTIVE, ACTIVE), (ACTIVE, SEALING)]:
        STREAM.check(before, after)


def test_a_seal_that_waits_for_batches_does_not_count_by_its_revision() -> None:
    committing = replace(SEALING, intents=(intent(IntentKind.COMMIT, 5), *SEALING.intents))

    STREAM.check(SEALING, committing)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (1, ACTIVE, replace(ACTIVE, status=StreamState.DELETED)),
        (1, SEALED, ACTIVE),
        (1, TOMBSTONE, TOMBSTONE),
        (2, ACTIVE, replace(ACTIVE, incarnation=2)),
        (2, TOMBSTONE, CREATING),
        (3, ACTIVE, replace(ACTIVE, highest_number=-1)),
        (3, TOMBSTONE, replace(CREATING, incarnation=2)),
        (3, ACTIVE, planned(plan(1, SegmentRange(segment_id(1, 0), WHOLE)))),
        (
            3,
            ACTIVE,
            planned(
                plan(1, SegmentRange(segment_id(1, 1), LOW), SegmentRange(segment_id(2, 1), HIGH))
            ),
        ),
        (4, ACTIVE, replace(ACTIVE, segments=())),
        (4, ACTIVE, replace(ACTIVE, segments=(SegmentRange(SegmentId(0), HIGH),))),
        (4, ACTIVE, replace(ACTIVE, segments=(SegmentRange(SegmentId(0), LOW),))),
        (4, ACTIVE, planned(plan(1, SegmentRange(segment_id(1, 1), LOW)))),
        (5, CREATING, replace(CREATING, intents=(), operations=())),
        (5, ACTIVE, replace(ACTIVE, intents=(intent(IntentKind.DELETE, 4),))),
        (5, ACTIVE, replace(ACTIVE, intents=(intent(IntentKind.SEAL, 4),) * 2)),
        (
            5,
            ACTIVE,
            replace(ACTIVE, intents=(intent(IntentKind.SEAL, 4), intent(IntentKind.TRUNCATE, 5))),
        ),
        (
            6,
            ACTIVE,
            replace(
                ACTIVE,
                operations=(Operation("o", OperationState.SUCCEEDED),) * (OPERATION_COUNT_MAX + 1),
            ),
        ),
        (7, CREATING, replace(ACTIVE, has_joined_scope=False)),
        (8, ACTIVE, planned(plan(1, SegmentRange(segment_id(1, 1), WHOLE), sealed=7))),
        (8, ACTIVE, planned(plan(2, SegmentRange(segment_id(2, 1), WHOLE)))),
        (8, ACTIVE, planned(plan(1, SegmentRange(segment_id(3, 1), WHOLE)))),
        (9, ACTIVE, replace(SCALED, epochs=ACTIVE.epochs)),
        (
            9,
            ACTIVE,
            replace(SCALED, epochs=(*SCALED.epochs, replace(SECOND, stream_epoch=2))),
        ),
        (
            9,
            ACTIVE,
            replace(SCALED, epochs=(FIRST, replace(SECOND, created_ms=1000))),
        ),
        (
            10,
            ACTIVE,
            replace(SCALED, epochs=(FIRST, replace(SECOND, sealed=()))),
        ),
        (
            11,
            ACTIVE,
            replace(ACTIVE, intents=(intent(IntentKind.TRUNCATE, 5), intent(IntentKind.COMMIT, 5))),
        ),
        (11, SEALING, replace(SEALING, intents=(intent(IntentKind.TRUNCATE, 5), drained(5)))),
        (12, ACTIVE, replace(ACTIVE, operations=(*ACTIVE.operations, RUNNING))),
        (12, CREATING, replace(CREATING, operations=())),
        (13, ACTIVE, replace(ACTIVE, config=fixed(2))),
        (14, SCALED, replace(SCALED, epochs=())),
        (14, SCALED, replace(SCALED, epochs=SCALED.epochs[1:])),
        (14, SCALED, replace(SCALED, archived_epochs=1)),
        (15, ACTIVE, replace(SEALED, sealed=())),
        (15, ACTIVE, replace(SEALED, sealed=(SealedSegment(SegmentId(7), 5),))),
        (18, SEALING, replace(SEALING, intents=(*BATCH.intents, drained(7)))),
        (23, ACTIVE, replace(ACTIVE, retention=set_of(RECORDED))),
        (23, GOING, replace(TOMBSTONE, retention=RetentionSet(release_count=1))),
        (23, RETAINED, replace(RETAINED, retention=set_of(*many_cuts(CUTS_MAX + 1)))),
        (24, RETAINED, replace(RETAINED, retention=set_of(RECORDED, RECORDED))),
        (24, RETAINED, replace(RETAINED, retention=set_of(*reversed(many_cuts(2))))),
        (24, RETAINED, replace(RETAINED, retention=set_of(RECORDED, SMALLER))),
        (25, ACTIVE, replace(ACTIVE, retention=RetentionSet((), (Release(1, 2, "r"),)))),
        (25, ACTIVE, replace(ACTIVE, retention=RetentionSet(released_bytes=5))),
        (25, GAVE_UP, replace(GAVE_UP, retention=RetentionSet())),
        (22, ACTIVE, replace(ACTIVE, head=CUT)),
        (22, TRUNCATING, STREAM.apply(TRUNCATING, [events.StreamTruncated()])),
        (22, CHECKED, replace(TRUNCATED, head=(SegmentOffset(SegmentId(0), 9),))),
        (4, ROLLING, rolled_as(taken=replace(TAKEN, created=()))),
        (19, ROLLING, rolled_as(renewed=replace(RENEWED, sealed=()))),
        (19, ROLLING, rolled_as(renewed=replace(RENEWED, reference_epoch=0))),
        (19, ROLLING, rolled_as(taken=replace(TAKEN, reference_epoch=1))),
        (19, ROLLING, renumbered(ROLLED)),
        (20, ENDED, replace(ENDED, outcome_count=0)),
        (20, ROLLED, replace(ENDED, outcome_count=3)),
        (20, ENDED, replace(ENDED, outcomes=(replace(ENDED.outcomes[0], ended_ms=1),))),
        (21, ROLLED, replace(ENDED, outcomes=(), outcome_count=0)),
        (21, ROLLED, replace(ENDED, outcomes=(replace(ENDED.outcomes[0], is_committed=False),))),
        (21, BATCH, rebatched(BATCH, "2" * 32)),
    ],
)
def test_a_decision_that_breaks_an_invariant_of_streams_is_stopped(
    number: int, before: Stream, after: Stream
) -> None:
    with pytest.raises(AssertionError, match=f"^STREAM-{number}:"):
        STREAM.check(before, after)


OPEN = Scope(name="s", incarnation=1, status=ScopeStatus.ACTIVE)
CLOSING = replace(OPEN, status=ScopeStatus.DELETING, pending=("d",), operations=(Operation("d"),))
RECURSIVE = replace(CLOSING, is_recursive=True)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (1, OPEN, replace(OPEN, status=ScopeStatus.DELETED)),
        (2, OPEN, replace(CLOSING, incarnation=2)),
        (2, Scope(), replace(OPEN, incarnation=2)),
        (3, OPEN, replace(CLOSING, pending=())),
        (3, CLOSING, replace(CLOSING, operations=())),
        (3, CLOSING, replace(OPEN, operations=(RUNNING,))),
        (
            4,
            CLOSING,
            replace(
                CLOSING,
                operations=(
                    Operation("d"),
                    *(Operation("o", OperationState.SUCCEEDED),) * OPERATION_COUNT_MAX,
                ),
            ),
        ),
        (5, CLOSING, replace(OPEN, is_recursive=True)),
        (5, RECURSIVE, CLOSING),
        (5, RECURSIVE, OPEN),
    ],
)
def test_a_decision_that_breaks_an_invariant_of_scopes_is_stopped(
    number: int, before: Scope, after: Scope
) -> None:
    with pytest.raises(AssertionError, match=f"^SCOPE-{number}:"):
        SCOPE.check(before, after)


def test_a_recursive_deletion_may_go_on_and_end() -> None:
    ended = replace(
        OPEN,
        status=ScopeStatus.DELETED,
        operations=(Operation("d", OperationState.SUCCEEDED),),
    )

    SCOPE.check(OPEN, RECURSIVE)
    SCOPE.check(CLOSING, RECURSIVE)
    SCOPE.check(RECURSIVE, RECURSIVE)
    SCOPE.check(RECURSIVE, ended)
