"""The facts of a stream's life. Past tense, tagged, numbered; old ones stay readable.

An event that accepts an intent carries the command's id and the stream's revision at the decision,
for the stamp of requests to the stores. The event that ends an intent follows when its work is
done.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.model.reader_group import SegmentPosition
from anabranch.common.model.stream import SegmentOffset, StreamConfig
from anabranch.controller.domain.stream.causes import MANUAL, EpochCause


class PlannedSegment(Contract):
    """A segment and the keys [start, end) that it takes."""

    segment_id: int
    key_start: float
    key_end: float


class StreamCreating(Contract):
    """Creation was accepted.

    `segments`: those of stream epoch 0, sorted by `key_start`. `config` None (before there were
    configurations): fixed at their number.
    """

    kind: Literal["stream_creating"] = "stream_creating"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    scope: str
    stream: str
    incarnation: int
    scope_incarnation: int
    segments: tuple[PlannedSegment, ...]
    config: StreamConfig | None = None
    at_ms: int


class StreamJoinedScope(Contract):
    """The scope was seen open after the intent was stored: it can no longer be deleted."""

    kind: Literal["stream_joined_scope"] = "stream_joined_scope"
    schema_number: Literal[1] = 1


class StreamCreateFailed(Contract):
    """The stream was never created; no segment was made."""

    kind: Literal["stream_create_failed"] = "stream_create_failed"
    schema_number: Literal[1] = 1
    error: ErrorBody


class StreamCreated(Contract):
    kind: Literal["stream_created"] = "stream_created"
    schema_number: Literal[1] = 1


class StreamUpdated(Contract):
    """The configuration is `config` now. `then_scales`: the same decision accepts or joins the
    scale that it requires, and the command ends with that scale.
    """

    kind: Literal["stream_updated"] = "stream_updated"
    schema_number: Literal[1] = 1
    command_id: str
    config: StreamConfig
    then_scales: bool = False


class StreamUpdating(Contract):
    """An update was accepted whose scaling policy requires a scale, while another scale is pending:
    it waits for its turn. `config` is not in force yet.
    """

    kind: Literal["stream_updating"] = "stream_updating"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    config: StreamConfig
    at_ms: int


class StreamUpdateApplied(Contract):
    """A waiting update has its turn: its configuration is in force. If it still requires a scale,
    its commands now wait for that: `sealed`, `created` and `stream_epoch` are as in
    `StreamScaling`. If `created` is empty, the commands have ended.
    """

    kind: Literal["stream_update_applied"] = "stream_update_applied"
    schema_number: Literal[1] = 1
    stream_epoch: int = 0
    sealed: tuple[int, ...] = ()
    created: tuple[PlannedSegment, ...] = ()


class StreamScaling(Contract):
    """A scale was accepted: `created` replace `sealed` and make `stream_epoch` together with the
    segments that stay. `created` is in the order of their numbers. `cause`: of the epoch; MANUAL in
    an event that was stored before there were causes.
    """

    kind: Literal["stream_scaling"] = "stream_scaling"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    stream_epoch: int
    sealed: tuple[int, ...]
    created: tuple[PlannedSegment, ...]
    at_ms: int
    cause: EpochCause = MANUAL


class StreamSuccessorsMade(Contract):
    """The new segments of the scale exist: from now on, a client that meets the end of a segment
    that is to be sealed learns its successors. No segment is sealed before this is stored.
    """

    kind: Literal["stream_successors_made"] = "stream_successors_made"
    schema_number: Literal[1] = 1


class StreamScaled(Contract):
    """The scale's epoch is the current one. `sizes`: the sealed segments' final lengths in
    bytes, in the order of `StreamScaling.sealed`."""

    kind: Literal["stream_scaled"] = "stream_scaled"
    schema_number: Literal[1] = 1
    sizes: tuple[int, ...]


class StreamTruncating(Contract):
    """A truncation was accepted: the events before the cut will be deleted."""

    kind: Literal["stream_truncating"] = "stream_truncating"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    cut: tuple[SegmentOffset, ...]
    at_ms: int


class StreamReleasing(Contract):
    """Retention gives up everything before the cut: a truncation that no command wants.

    `rule`: by which it goes; `freed_bytes`: from the head to the cut. `passed_ms`: the cuts that
    were recorded up to that time lie at or before this one.
    """

    kind: Literal["stream_releasing"] = "stream_releasing"
    schema_number: Literal[1] = 1
    revision: int
    cut: tuple[SegmentOffset, ...]
    rule: str
    freed_bytes: int
    passed_ms: int
    at_ms: int


class StreamCutRecorded(Contract):
    """The stream ended at the cut at that time. `size_bytes`: up to there, counted from where the
    first recorded cut was counted from. `dropped_ms`: the times of cuts that are forgotten."""

    kind: Literal["stream_cut_recorded"] = "stream_cut_recorded"
    schema_number: Literal[1] = 1
    cut: tuple[SegmentOffset, ...]
    size_bytes: int
    dropped_ms: tuple[int, ...] = ()
    at_ms: int


class StreamCutChecked(Contract):
    """The cut is valid, and every store confirmed that it can truncate its segments there. No
    segment is truncated before this is stored, and the truncation cannot fail after it.

    `cut` replaces the cut of a truncation by retention, with `freed_bytes` before it; empty: the
    cut stays.
    """

    kind: Literal["stream_cut_checked"] = "stream_cut_checked"
    schema_number: Literal[1] = 1
    cut: tuple[SegmentOffset, ...] = ()
    freed_bytes: int = 0


class StreamTruncated(Contract):
    """The stream begins at the cut."""

    kind: Literal["stream_truncated"] = "stream_truncated"
    schema_number: Literal[1] = 1


class StreamTruncateFailed(Contract):
    """The truncation is impossible: an offset is beyond its segment's end, or within an append. The
    stream begins where it did, and no segment was truncated.
    """

    kind: Literal["stream_truncate_failed"] = "stream_truncate_failed"
    schema_number: Literal[1] = 1
    error: ErrorBody


class StreamSealing(Contract):
    kind: Literal["stream_sealing"] = "stream_sealing"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    at_ms: int = 0


class StreamSealed(Contract):
    """`lengths`: the sealed segments' lengths in bytes, in the order of the epoch's segments."""

    kind: Literal["stream_sealed"] = "stream_sealed"
    schema_number: Literal[1] = 1
    lengths: tuple[int, ...]


class StreamDrained(Contract):
    """The stream is about to be sealed: no transaction can be opened in it any more, and none is
    left. `revision`: for the stamps that follow, which are later than those of any commit.
    """

    kind: Literal["stream_drained"] = "stream_drained"
    schema_number: Literal[1] = 1
    revision: int


class StreamCommitStarted(Contract):
    """A batch of transactions was fixed, in commit order; `stream_epochs`: in which they were
    opened, all with `reference_epoch`.
    """

    kind: Literal["stream_commit_started"] = "stream_commit_started"
    schema_number: Literal[1] = 1
    revision: int
    reference_epoch: int
    transactions: tuple[str, ...]
    stream_epochs: tuple[int, ...]
    at_ms: int


class StreamRollMade(Contract):
    """The segments of the two epochs of a roll exist, and the first, `taken`, hold the batch and
    are sealed at `lengths`: from now on, a client that meets the end of a segment learns them. No
    segment of the present epoch is sealed before this is stored.
    """

    kind: Literal["stream_roll_made"] = "stream_roll_made"
    schema_number: Literal[1] = 1
    taken: tuple[PlannedSegment, ...]
    lengths: tuple[int, ...]
    renewed: tuple[PlannedSegment, ...]


class StreamRolled(Contract):
    """The second epoch of the roll is the current one. `sizes`: the final lengths in bytes of the
    segments of the epoch before the roll, in the order of their keys."""

    kind: Literal["stream_rolled"] = "stream_rolled"
    schema_number: Literal[1] = 1
    sizes: tuple[int, ...]
    at_ms: int


class TransactionOutcome(Contract):
    """An aborted transaction. `stream_epoch`: the epoch in which it was opened."""

    transaction_id: str
    stream_epoch: int
    ended_ms: int


class StreamCommitFinished(Contract):
    """All of the batch can be read, and each of its transactions is COMMITTED.

    `ends`: the ends of the batch in the current segments, in the order of their keys, in bytes;
    empty after a roll. `aborted`: transactions that were aborted meanwhile.
    """

    kind: Literal["stream_commit_finished"] = "stream_commit_finished"
    schema_number: Literal[1] = 1
    ends: tuple[int, ...]
    aborted: tuple[TransactionOutcome, ...] = ()
    at_ms: int


class StreamAbortsNoted(Contract):
    """The stream remembers the outcomes of these aborted transactions from now on."""

    kind: Literal["stream_aborts_noted"] = "stream_aborts_noted"
    schema_number: Literal[1] = 1
    aborted: tuple[TransactionOutcome, ...]


class StreamOutcomesArchived(Contract):
    """Chunk number `chunk` holds the oldest `count` outcomes; the state need not keep them. Chunks
    below `forgotten_below` are deleted.
    """

    kind: Literal["stream_outcomes_archived"] = "stream_outcomes_archived"
    schema_number: Literal[1] = 1
    chunk: int
    count: int
    forgotten_below: int = 0


class StreamDeleting(Contract):
    """A deletion was accepted. `creation_error`: the error of the creation that it ends."""

    kind: Literal["stream_deleting"] = "stream_deleting"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    at_ms: int = 0
    creation_error: ErrorBody | None = None


class StreamDeleted(Contract):
    kind: Literal["stream_deleted"] = "stream_deleted"
    schema_number: Literal[1] = 1


class StreamSubscriberAdded(Contract):
    """The reader group `subscriber` holds back the stream's truncation. It has released everything
    before `cut`, and nothing if that is empty.
    """

    kind: Literal["stream_subscriber_added"] = "stream_subscriber_added"
    schema_number: Literal[1] = 1
    command_id: str
    subscriber: str
    group_incarnation: int
    generation: int
    cut: tuple[SegmentPosition, ...] = ()


class StreamSubscriberRemoved(Contract):
    """The group no longer subscribes, up to and including this generation; it may never have."""

    kind: Literal["stream_subscriber_removed"] = "stream_subscriber_removed"
    schema_number: Literal[1] = 1
    command_id: str
    subscriber: str
    group_incarnation: int
    generation: int


class StreamSubscriberReleased(Contract):
    """The group has released the events before the cut."""

    kind: Literal["stream_subscriber_released"] = "stream_subscriber_released"
    schema_number: Literal[1] = 1
    command_id: str
    subscriber: str
    cut: tuple[SegmentPosition, ...]


class StreamIntentJoined(Contract):
    """Another command joined the pending work, which is exactly what it wants. `intent`: its kind;
    "" (before there were several): the only one.
    """

    kind: Literal["stream_intent_joined"] = "stream_intent_joined"
    schema_number: Literal[1] = 1
    command_id: str
    intent: str = ""


class StreamCommandSatisfied(Contract):
    """A command wanted a state that the stream already has."""

    kind: Literal["stream_command_satisfied"] = "stream_command_satisfied"
    schema_number: Literal[1] = 1
    command_id: str


class StreamHistoryArchived(Contract):
    """Chunk number `chunk` holds the epochs up to, not including, `through_epoch`; the state
    need not keep them."""

    kind: Literal["stream_history_archived"] = "stream_history_archived"
    schema_number: Literal[1] = 1
    chunk: int
    through_epoch: int


StreamEvent = Annotated[
    StreamCreating
    | StreamJoinedScope
    | StreamCreateFailed
    | StreamCreated
    | StreamUpdated
    | StreamUpdating
    | StreamUpdateApplied
    | StreamScaling
    | StreamSuccessorsMade
    | StreamScaled
    | StreamTruncating
    | StreamReleasing
    | StreamCutRecorded
    | StreamCutChecked
    | StreamTruncated
    | StreamTruncateFailed
    | StreamSealing
    | StreamDrained
    | StreamCommitStarted
    | StreamRollMade
    | StreamRolled
    | StreamCommitFinished
    | StreamAbortsNoted
    | StreamOutcomesArchived
    | StreamSealed
    | StreamDeleting
    | StreamDeleted
    | StreamSubscriberAdded
    | StreamSubscriberRemoved
    | StreamSubscriberReleased
    | StreamIntentJoined
    | StreamCommandSatisfied
    | StreamHistoryArchived,
    Field(discriminator="kind"),
]
