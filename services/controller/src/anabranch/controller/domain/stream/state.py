"""A stream's state, and how events change it.

The table is `MACHINE`, which `evolve` executes. A creation begins the next incarnation.

An active stream may have several intents, one of each kind. The first accepted is performed first,
and determines the visible `state` (SCALING, TRUNCATING, SEALING). Sealing is the last: while it is
pending, the stream accepts nothing else but batches of transactions that are to be committed, and
these come before it. A sealed stream can be truncated and deleted. `StreamIntentJoined` and
`StreamCommandSatisfied` note a command and change nothing else.

Other work follows from the stream's transactions, which are aggregates of their own
(`TransactionsSeen`). Those that are to be committed make a batch (`start_commit`, which ends in
`StreamCommitStarted`; see `commits.py`). The outcomes of aborted ones are recorded (`note_aborts`,
in `StreamAbortsNoted`). A stream without intents that keeps more epochs or outcomes than it should
runs `archive_history` or `archive_outcomes`.

DELETED is the tombstone: it keeps the incarnation, the highest segment number ever planned and the
operations, and creating the name again is a compare-and-set on it; segment names therefore never
repeat.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, assert_never

from anabranch.common.model.names import SegmentId, StreamRef, segment_name
from anabranch.common.model.stream import StreamConfig, StreamState
from anabranch.controller.domain.machine import Machine, Row
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.stream import archive, events, intents
from anabranch.controller.domain.stream.commits import (
    OUTCOMES_KEPT,
    OUTCOMES_PER_CHUNK,
    CommitsSeen,
    OutcomeChunk,
    Outcomes,
)
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegments
from anabranch.controller.domain.stream.intents import CommitPlan, Intent, IntentKind, Intents
from anabranch.controller.domain.stream.retention_set import NO_RETENTION_SET, RetentionSet
from anabranch.controller.domain.stream.rows import SegmentOffsets, SegmentRanges
from anabranch.controller.domain.stream.subscriptions import NO_SUBSCRIPTIONS, Subscriptions

UNCONFIGURED = StreamConfig()
NO_COMMITS = CommitsSeen()


class StreamStep(StrEnum):
    """The steps of a stream's workflows."""

    JOIN_SCOPE = "join_scope"
    CREATE_SEGMENTS = "create_segments"
    APPLY_UPDATE = "apply_update"
    MAKE_SUCCESSORS = "make_successors"
    SEAL_PREDECESSORS = "seal_predecessors"
    CHECK_CUT = "check_cut"
    TRUNCATE_SEGMENTS = "truncate_segments"
    SEAL_SEGMENTS = "seal_segments"
    DELETE_SEGMENTS = "delete_segments"
    ARCHIVE_HISTORY = "archive_history"
    START_COMMIT = "start_commit"
    COMMIT_TRANSACTIONS = "commit_transactions"
    MAKE_ROLLED_SEGMENTS = "make_rolled_segments"
    SEAL_BEFORE_ROLL = "seal_before_roll"
    FINISH_ROLLED = "finish_rolled"
    END_TRANSACTIONS = "end_transactions"
    NOTE_ABORTS = "note_aborts"
    ARCHIVE_OUTCOMES = "archive_outcomes"


class TransactionsSeen(NamedTuple):
    """The pending needs of a stream's transactions. `to_commit`: some are to be committed and in no
    batch; `to_note`: the stream does not know some aborted ones.
    """

    to_commit: bool = False
    to_note: bool = False


NO_TRANSACTIONS = TransactionsSeen()


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream.

    ref, incarnation     its name, None if the name was never used; the number of its lives
    status               None: the name was never used
    scope_incarnation    the incarnation of the scope in which it was created
    has_joined_scope     it is a member of that incarnation of the scope
    config               scaling and retention policies, tags
    segments             those of the current stream epoch, sorted by key; they cover all keys
    highest_number       the highest segment number ever planned under this name, -1 before any
    created_ms           Unix ms
    head                 the cut at which the stream begins
    epochs               the epochs that are in no history chunk; the current one is the last
    archived_epochs      the number of epochs in the `archived_chunks` history chunks
    sealed               the lengths in bytes of `segments` once the stream is sealed, else empty
    subscriptions        the reader groups that hold back the stream's truncation
    intents              accepted work that has not ended; the first is being performed
    operations           the last accepted commands, with their outcomes
    commits              the last finished batch of transactions
    outcomes             the outcomes of the last ended transactions, oldest first
    outcome_count        the number of outcomes that were ever recorded
    outcome_chunks       the chunks with earlier outcomes
    retention            recorded cuts of the tail, and past releases by the retention policy

    Invariants: `epochs[i].stream_epoch == archived_epochs + i`; every segment number ever planned
    is at most `highest_number`; `len(outcomes) <= outcome_count`; an operation runs exactly as long
    as an intent has its command. `invariants.py` has all of them.
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
    commits: CommitsSeen = NO_COMMITS
    outcomes: Outcomes = ()
    outcome_count: int = 0
    outcome_chunks: tuple[OutcomeChunk, ...] = ()
    retention: RetentionSet = NO_RETENTION_SET

    @property
    def is_live(self) -> bool:
        """Whether the name is taken, even if the stream is half-created or half-deleted."""
        return self.status not in (None, StreamState.DELETED)

    @property
    def state(self) -> StreamState | None:
        """Its visible state, with the intent that is being performed."""
        if self.status is not StreamState.ACTIVE or not self.intents:
            return self.status
        return _DOING.get(self.intents[0].kind, self.status)

    @property
    def stream_epoch(self) -> int:
        """The number of the current epoch; 0 without one."""
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


_CREATING, _ACTIVE = StreamState.CREATING, StreamState.ACTIVE
_SEALED, _DELETING, _DELETED = StreamState.SEALED, StreamState.DELETING, StreamState.DELETED
_LIVE = (_CREATING, _ACTIVE, _SEALED, _DELETING)
_ANY = ("", *StreamStep)
_S, _E = StreamStep, events

MACHINE: Machine[StreamState] = Machine(
    Row(_E.StreamCreating, (None, _DELETED), _CREATING, (_S.JOIN_SCOPE,)),
    Row(_E.StreamJoinedScope, (_CREATING,), None, (_S.CREATE_SEGMENTS,)),
    Row(_E.StreamCreateFailed, (_CREATING,), _DELETED, ("",)),
    Row(_E.StreamCreated, (_CREATING,), _ACTIVE, ("",)),
    Row(_E.StreamUpdating, (_ACTIVE,), None, (_S.APPLY_UPDATE,)),
    Row(_E.StreamUpdateApplied, (_ACTIVE,), None, ("", _S.MAKE_SUCCESSORS)),
    Row(_E.StreamScaling, (_ACTIVE,), None, (_S.MAKE_SUCCESSORS,)),
    Row(_E.StreamSuccessorsMade, (_ACTIVE,), None, (_S.SEAL_PREDECESSORS,)),
    Row(_E.StreamScaled, (_ACTIVE,), None, ("", _S.ARCHIVE_HISTORY)),
    Row(_E.StreamTruncating, (_ACTIVE, _SEALED), None, (_S.CHECK_CUT,)),
    Row(_E.StreamReleasing, (_ACTIVE, _SEALED), None, (_S.CHECK_CUT,)),
    Row(_E.StreamCutChecked, (_ACTIVE, _SEALED), None, (_S.TRUNCATE_SEGMENTS,)),
    Row(_E.StreamTruncated, (_ACTIVE, _SEALED), None, ("",)),
    Row(_E.StreamTruncateFailed, (_ACTIVE, _SEALED), None, ("",)),
    Row(
        _E.StreamCommitStarted, (_ACTIVE,), None, (_S.COMMIT_TRANSACTIONS, _S.MAKE_ROLLED_SEGMENTS)
    ),
    Row(_E.StreamRollMade, (_ACTIVE,), None, (_S.SEAL_BEFORE_ROLL,)),
    Row(_E.StreamRolled, (_ACTIVE,), None, (_S.FINISH_ROLLED,)),
    Row(
        _E.StreamCommitFinished,
        (_ACTIVE,),
        None,
        ("", _S.START_COMMIT, _S.NOTE_ABORTS, _S.ARCHIVE_HISTORY, _S.ARCHIVE_OUTCOMES),
    ),
    Row(_E.StreamSealing, (_ACTIVE,), None, (_S.END_TRANSACTIONS,)),
    Row(_E.StreamDrained, (_ACTIVE,), None, (_S.SEAL_SEGMENTS,)),
    Row(_E.StreamSealed, (_ACTIVE,), _SEALED, ("",)),
    Row(_E.StreamDeleting, (_CREATING, _SEALED), _DELETING, (_S.DELETE_SEGMENTS,)),
    Row(_E.StreamDeleted, (_DELETING,), _DELETED, ("",)),
    # Notes beside these; they do not change the due step.
    Row(_E.StreamUpdated, (_ACTIVE,), None, _ANY),
    Row(_E.StreamCutRecorded, (_ACTIVE, _SEALED), None, _ANY),
    Row(_E.StreamAbortsNoted, _LIVE, None, _ANY),
    Row(_E.StreamOutcomesArchived, _LIVE, None, _ANY),
    Row(_E.StreamHistoryArchived, _LIVE, None, _ANY),
    Row(_E.StreamSubscriberAdded, _LIVE, None, _ANY),
    Row(_E.StreamSubscriberRemoved, _LIVE, None, _ANY),
    Row(_E.StreamSubscriberReleased, _LIVE, None, _ANY),
    Row(_E.StreamIntentJoined, _LIVE, None, _ANY),
    Row(_E.StreamCommandSatisfied, _LIVE, None, _ANY),
)


def next_step(stream: Stream, seen: TransactionsSeen = NO_TRANSACTIONS) -> StreamStep | None:
    """The step that is due, if any."""
    if not stream.intents and (due := _at_rest(stream)) is not None:
        return due
    can_commit = stream.status is StreamState.ACTIVE
    if seen.to_commit and can_commit and not intents.find(stream.intents, IntentKind.COMMIT):
        return StreamStep.START_COMMIT
    if stream.intents:
        return _step_of(stream, stream.intents[0])
    return StreamStep.NOTE_ABORTS if seen.to_note and stream.is_live else None


def _at_rest(stream: Stream) -> StreamStep | None:
    if archive.due_chunk(stream.epochs):
        return StreamStep.ARCHIVE_HISTORY
    if len(stream.outcomes) >= OUTCOMES_KEPT + OUTCOMES_PER_CHUNK:
        return StreamStep.ARCHIVE_OUTCOMES
    return None


def _step_of(stream: Stream, intent: Intent) -> StreamStep:
    match intent.kind:
        case IntentKind.CREATE if not stream.has_joined_scope:
            return StreamStep.JOIN_SCOPE
        case IntentKind.CREATE:
            return StreamStep.CREATE_SEGMENTS
        case IntentKind.UPDATE:
            return StreamStep.APPLY_UPDATE
        case IntentKind.SCALE:
            assert intent.scale is not None
            is_made = intent.scale.is_made
            return StreamStep.SEAL_PREDECESSORS if is_made else StreamStep.MAKE_SUCCESSORS
        case IntentKind.TRUNCATE:
            assert intent.truncation is not None
            is_checked = intent.truncation.is_checked
            return StreamStep.TRUNCATE_SEGMENTS if is_checked else StreamStep.CHECK_CUT
        case IntentKind.COMMIT:
            assert intent.commit is not None
            return _commit_step(stream, intent.commit)
        case IntentKind.SEAL:
            is_drained = intent.is_drained
            return StreamStep.SEAL_SEGMENTS if is_drained else StreamStep.END_TRANSACTIONS
        case IntentKind.DELETE:
            return StreamStep.DELETE_SEGMENTS
        case _:
            assert_never(intent.kind)


def _commit_step(stream: Stream, plan: CommitPlan) -> StreamStep:
    if plan.has_rolled:
        return StreamStep.FINISH_ROLLED
    if plan.roll is not None:
        return StreamStep.SEAL_BEFORE_ROLL
    if plan.reference_epoch != stream.epochs[-1].reference_epoch:
        return StreamStep.MAKE_ROLLED_SEGMENTS
    return StreamStep.COMMIT_TRANSACTIONS
