"""A sample of every kind of domain event, as the files in `unit/controller/golden` hold them."""

from collections.abc import Sequence
from typing import Any

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.transactions import CarriedBlock, TransactionKey
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import segment_id
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    SegmentOffset,
    StreamConfig,
    fixed,
)
from anabranch.common.model.table import TableConfig
from anabranch.controller.domain import application
from anabranch.controller.domain.application import APPLICATION, ApplicationEvent
from anabranch.controller.domain.kv_table import events as table
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.reader_group import events as group
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.scope import state as scope
from anabranch.controller.domain.scope.state import SCOPE, ScopeEvent
from anabranch.controller.domain.stream import causes, events
from anabranch.controller.domain.stream.events import PlannedSegment, StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.transaction import events as transaction
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.invariants import TRANSACTION

ERROR = ErrorBody(code="scope-not-found", message="gone", remedy="check", fields={"scope": "s"})
CONFIG = StreamConfig(
    ScalingPolicy(ScalingType.BYTE_RATE, 100, 2, 1),
    RetentionPolicy(RetentionType.SIZE_BYTES, 1000, 2000),
    tags=("a", "b"),
    timestamp_aggregation_timeout_ms=5000,
    rollover_size_bytes=1 << 20,
)
HALVES = (
    PlannedSegment(segment_id=segment_id(1, 1), key_start=0.0, key_end=0.5),
    PlannedSegment(segment_id=segment_id(1, 2), key_start=0.5, key_end=1.0),
)
ABORTED = events.TransactionOutcome(transaction_id="2" * 32, stream_epoch=2, ended_ms=7500)
STREAM_EVENTS: list[StreamEvent] = [
    events.StreamCreating(
        command_id="c1",
        revision=1,
        scope="s",
        stream="x",
        incarnation=1,
        scope_incarnation=3,
        segments=(PlannedSegment(segment_id=0, key_start=0.0, key_end=1.0),),
        config=CONFIG,
        at_ms=1000,
    ),
    events.StreamJoinedScope(),
    events.StreamCreateFailed(error=ERROR),
    events.StreamCreated(),
    events.StreamUpdated(command_id="c2", config=fixed(2), then_scales=True),
    events.StreamUpdating(command_id="c2", revision=4, config=CONFIG, at_ms=2500),
    events.StreamUpdateApplied(stream_epoch=2, sealed=(0,), created=HALVES),
    events.StreamScaling(
        command_id="c2",
        revision=4,
        stream_epoch=1,
        sealed=(0,),
        created=HALVES,
        at_ms=2000,
        cause=causes.UPDATE,
    ),
    events.StreamSuccessorsMade(),
    events.StreamScaled(sizes=(77,)),
    events.StreamTruncating(
        command_id="c3",
        revision=7,
        cut=(SegmentOffset(segment_id(0, 0), 5), SegmentOffset(segment_id(1, 1), -1)),
        at_ms=3000,
    ),
    events.StreamReleasing(
        revision=8,
        cut=(SegmentOffset(segment_id(0, 0), 5), SegmentOffset(segment_id(1, 1), -1)),
        rule="minimum",
        freed_bytes=123,
        passed_ms=2900,
        at_ms=3000,
    ),
    events.StreamCutRecorded(
        cut=(SegmentOffset(segment_id(1, 1), 9), SegmentOffset(segment_id(1, 2), 0)),
        size_bytes=77,
        dropped_ms=(100, 200),
        at_ms=3100,
    ),
    events.StreamCutChecked(cut=(SegmentOffset(segment_id(0, 0), 4),), freed_bytes=4),
    events.StreamTruncated(),
    events.StreamTruncateFailed(error=ERROR),
    events.StreamSealing(command_id="c4", revision=9, at_ms=4000),
    events.StreamSealed(lengths=(8, 9)),
    events.StreamDeleting(command_id="c5", revision=11, at_ms=5000, creation_error=ERROR),
    events.StreamDeleted(),
    events.StreamSubscriberAdded(
        command_id="c8",
        subscriber="s/g",
        group_incarnation=1,
        generation=2,
        cut=(SegmentPosition(segment_id(1, 1), 7),),
    ),
    events.StreamSubscriberRemoved(
        command_id="c9", subscriber="s/g", group_incarnation=1, generation=2
    ),
    events.StreamSubscriberReleased(
        command_id="c10", subscriber="s/g", cut=(SegmentPosition(segment_id(1, 1), 9, 3),)
    ),
    events.StreamIntentJoined(command_id="c6", intent="seal"),
    events.StreamCommandSatisfied(command_id="c7"),
    events.StreamHistoryArchived(chunk=0, through_epoch=1),
    events.StreamCommitStarted(
        revision=12,
        reference_epoch=0,
        transactions=("0" * 32, "1" * 32),
        stream_epochs=(0, 2),
        at_ms=6000,
    ),
    events.StreamRollMade(taken=HALVES, lengths=(3, 4), renewed=HALVES),
    events.StreamRolled(sizes=(5, 6), at_ms=7000),
    events.StreamCommitFinished(ends=(7, 8), aborted=(ABORTED,), at_ms=8000),
    events.StreamAbortsNoted(aborted=(ABORTED,)),
    events.StreamOutcomesArchived(chunk=3, count=500, forgotten_below=2),
    events.StreamDrained(revision=13),
]
SCOPE_EVENTS: list[ScopeEvent] = [
    scope.ScopeCreated(command_id="c1", scope="s", incarnation=1, at_ms=1000),
    scope.ScopeDeleting(command_id="c2", recursive=True),
    scope.ScopeIntentJoined(command_id="c3", recursive=True),
    scope.ScopeReopened(error=ERROR),
    scope.ScopeDeleted(),
]
GROUP_CONFIG = ReaderGroupConfig(
    streams=(
        GroupStream(
            "s/x",
            start=(SegmentPosition(segment_id(0, 0), 7),),
            end=(SegmentPosition(segment_id(0, 0), 9, 3), SegmentPosition(segment_id(1, 1), -1)),
        ),
    ),
    lease_ms=5000,
    automatic_checkpoint_ms=30_000,
    checkpoints_max=2,
    retention=GroupRetention.AUTOMATIC,
    release_after_checkpoint=True,
)
GROUP_EVENTS: list[GroupEvent] = [
    group.GroupCreating(
        command_id="c1",
        scope="s",
        group="g",
        incarnation=1,
        scope_incarnation=3,
        config=GROUP_CONFIG,
        at_ms=1000,
    ),
    group.GroupJoinedScope(),
    group.GroupCreateFailed(error=ERROR),
    group.GroupStateMade(),
    group.GroupCreated(),
    group.GroupResetting(command_id="c2", generation=1, config=GROUP_CONFIG, at_ms=2000),
    group.GroupReset(),
    group.GroupDeleting(command_id="c3", at_ms=3000, ended_error=ERROR),
    group.GroupUnsubscribed(),
    group.GroupDeleted(),
    group.GroupIntentJoined(command_id="c4"),
]
TABLE_CONFIG = TableConfig(
    partition_count=2, primary_key_size=8, secondary_key_size=None, ttl_ms=60_000
)
TABLE_EVENTS: list[TableEvent] = [
    table.TableCreating(
        command_id="c1",
        revision=1,
        scope="s",
        table="t",
        incarnation=1,
        scope_incarnation=3,
        config=TABLE_CONFIG,
        partitions=(
            table.PlannedPartition(segment_id=segment_id(0, 4), key_start=0.0, key_end=0.5),
            table.PlannedPartition(segment_id=segment_id(0, 5), key_start=0.5, key_end=1.0),
        ),
        at_ms=1000,
    ),
    table.TableJoinedScope(),
    table.TableCreateFailed(error=ERROR),
    table.TableCreated(),
    table.TableConfigUpdated(command_id="c2", config=TABLE_CONFIG),
    table.TableSealing(command_id="c3", revision=5, at_ms=2000),
    table.TableSealed(),
    table.TableDeleting(command_id="c4", revision=7, at_ms=3000, ended_error=ERROR),
    table.TableDeleted(),
    table.TableIntentJoined(command_id="c5"),
    table.TableCommandSatisfied(command_id="c6", intent="seal"),
]
TRANSACTION_ID, PART = "0123456789abcdef" * 2, "a" * 32
TRANSACTION_EVENTS: list[TransactionEvent] = [
    transaction.TransactionSubmitted(
        scope="s",
        stream="x.y",
        incarnation=3,
        transaction_id="0123456789abcdef" * 2,
        stream_epoch=2,
        writer="job 1",
        at_ms=1_000,
        blocks=(CarriedBlock(segment_id=2, block=bytes(range(250, 256))),),
    ),
    transaction.TransactionOpened(
        scope="s",
        stream="x",
        incarnation=1,
        transaction_id=TRANSACTION_ID,
        stream_epoch=2,
        writer="flights",
        at_ms=1000,
        lease_ms=10_000,
        execution_ms_max=60_000,
        deadline_ms=17_000,
        has_parts=True,
        key=TransactionKey(application="app", version=7),
    ),
    transaction.TransactionPinged(deadline_ms=18_000, lease_ms=10_000),
    transaction.TransactionPartAdded(part=PART),
    transaction.TransactionCommitting(
        parts=(PART,), writer_id="b" * 32, timestamp_ms=77, at_ms=2000
    ),
    transaction.TransactionCommitted(at_ms=3000),
    transaction.TransactionAborting(reason="expired", at_ms=2000),
    transaction.TransactionAborted(at_ms=3000),
]
APPLICATION_EVENTS: list[ApplicationEvent] = [
    application.ApplicationOpened(
        scope="s",
        stream="x",
        incarnation=1,
        application="app",
        version=7,
        transaction_id=TRANSACTION_ID,
    ),
    application.ApplicationCommitted(version=7, transaction_id=TRANSACTION_ID),
    application.ApplicationForgotten(),
]
CODECS: list[tuple[Aggregate[Any, Any], Sequence[Contract]]] = [
    (STREAM, STREAM_EVENTS),
    (SCOPE, SCOPE_EVENTS),
    (GROUP, GROUP_EVENTS),
    (TABLE, TABLE_EVENTS),
    (TRANSACTION, TRANSACTION_EVENTS),
    (APPLICATION, APPLICATION_EVENTS),
]
ALL: list[Contract] = [event for _, those in CODECS for event in those]
