"""Descriptions of the cluster and of tier 2 → rows of the tables. Pure.

A row has a value per column, in the order of the table's schema; a time is Unix milliseconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.client.groups.status import ReaderGroupStatus
from anabranch.common.contracts.queries import StreamDescription
from anabranch.common.contracts.reader_groups import ReaderGroupDescription
from anabranch.common.contracts.stream_queries import ScalingEvent, SegmentDescription, SegmentRun
from anabranch.common.contracts.transactions import TransactionInfo
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, StreamRef, epoch_of, segment_name
from anabranch.common.model.stream import RetentionPolicy, RetentionType
from anabranch.common.wire.replies import SegmentInfo
from anabranch.spark.tables.stored import StoredSegment, StoredStream

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Life:
    """A segment from its creation up to, not including, the epoch that replaced it, if any."""

    segment_id: SegmentId
    keys: KeyRange
    sealed_epoch: int | None

    def is_in(self, stream_epoch: int) -> bool:
        """Whether it is one of the epoch's segments."""
        return epoch_of(self.segment_id) <= stream_epoch and (
            self.sealed_epoch is None or stream_epoch < self.sealed_epoch
        )


# --- of a running cluster ---------------------------------------------------------------------


def stream_row(told: StreamDescription) -> Row:
    """A row of `streams`."""
    config = told.config
    policy: list[Any] = [None] * 8
    if config is not None:
        scaling = config.scaling
        policy = [
            list(config.tags), scaling.type.value, scaling.target_rate or None,
            scaling.min_segments, *_retention(config.retention),
        ]  # fmt: skip
    return [
        told.scope, told.stream, told.state.value, told.incarnation, told.stream_epoch,
        told.segment_count, told.created_ms, told.has_head_cut, None, *policy,
    ]  # fmt: skip


def _retention(policy: RetentionPolicy | None) -> list[int | None]:
    """Least and most in ms, then in bytes."""
    if policy is None:
        return [None] * 4
    bounds = [policy.minimum, policy.maximum]
    by_time = policy.type is RetentionType.TIME_MS
    return [*bounds, None, None] if by_time else [None, None, *bounds]


def segment_row(
    stream: StreamRef, run: SegmentRun, told: SegmentDescription, info: SegmentInfo | None
) -> Row:
    """A row of `segments`; `info` None: the store does not have the segment any more."""
    facts: list[Any] = [run.start_offset, run.end_offset, None, None, None, None]
    if info is not None and not info.deleted:
        facts = [
            info.start, info.length, info.length - info.start, info.tiered_length,
            info.event_count, info.modified_ms or None,
        ]  # fmt: skip
    return [
        stream.scope, stream.stream, told.name, told.segment_id, told.state, told.stream_epoch,
        told.sealed_epoch, told.key_start, told.key_end, *facts, told.container,
        told.node_id or None,
    ]  # fmt: skip


def epoch_row(stream: StreamRef, told: ScalingEvent) -> Row:
    """A row of `epochs`."""
    return [
        stream.scope, stream.stream, told.stream_epoch, told.reference_epoch, told.created_ms,
        told.cause or None, told.splits, told.merges, told.segment_count,
        [each.name for each in told.segments],
    ]  # fmt: skip


def transaction_row(stream: StreamRef, told: TransactionInfo) -> Row:
    """A row of `transactions`."""
    key = told.key
    return [
        stream.scope, stream.stream, told.transaction_id, told.state.value, told.stream_epoch,
        told.writer or None, told.opened_ms or None, told.deadline_ms or None,
        told.ended_ms or None, told.lease_ms or None, told.lease_left_ms, told.part_count,
        None if key is None else key.application, None if key is None else key.version,
    ]  # fmt: skip


def group_row(told: ReaderGroupDescription, status: ReaderGroupStatus | None) -> Row:
    """A row of `reader_groups`; `status` None: its log did not answer in time."""
    facts: list[Any] = [None] * 4
    if status is not None and status.log_answers:
        lag = status.lag
        facts = [len(status.readers), lag.events, lag.bytes, lag.seconds]
    config = told.config
    return [
        told.scope, told.group, told.state.value, told.generation, told.created_ms,
        [each.stream for each in config.streams], config.retention.value, config.lease_ms,
        config.automatic_checkpoint_ms or None, *facts,
    ]  # fmt: skip


# --- of tier 2 --------------------------------------------------------------------------------


def stored_stream_row(stream: StoredStream) -> Row:
    """A row of `streams`: the facts that tier 2 knows."""
    told = stream.told
    present = told.epochs[-1]
    bounds = [segment.bounds for segment in stream.segments]
    is_truncated = any(start > 0 for start, _ in bounds) or any(
        segment.is_deleted for segment in stream.segments
    )
    return [
        told.ref.scope, told.ref.stream, told.state.value, told.incarnation,
        present.stream_epoch, len(present.segments), told.created_ms, is_truncated,
        sum(end - start for start, end in bounds), *([None] * 8),
    ]  # fmt: skip


def stored_segment_row(stream: StreamRef, segment: StoredSegment) -> Row:
    """A row of `segments`: the facts that tier 2 knows, as of the last flush."""
    state, (start, end) = segment.state, segment.bounds
    return [
        stream.scope, stream.stream, segment.name, segment.segment_id, _state_of(segment),
        epoch_of(segment.segment_id), segment.sealed_epoch, segment.keys.start, segment.keys.end,
        start, end, end - start, end, None if state is None else state.event_count,
        None if state is None else state.modified_ms or None, segment.container, None,
    ]  # fmt: skip


def _state_of(segment: StoredSegment) -> str:
    if segment.is_deleted:
        return "deleted"
    is_sealed = segment.sealed_epoch is not None or (segment.state and segment.state.sealed)
    return "sealed" if is_sealed else "active"


def lives_of(stream: StoredStream) -> list[Life]:
    """The segments that the description of the stream names."""
    return [Life(each.segment_id, each.keys, each.sealed_epoch) for each in stream.segments]


def stored_epoch_rows(stream: StoredStream) -> Iterator[Row]:
    """The rows of `epochs`, oldest first: the facts that tier 2 knows.

    An export of an older release describes the present epoch alone.
    """
    told, lives = stream.told, lives_of(stream)
    present = told.epochs[-1].stream_epoch
    for epoch in range(0 if told.earlier else present, present + 1):
        parts = sorted((life.keys, life.segment_id) for life in lives if life.is_in(epoch))
        yield [
            told.ref.scope, told.ref.stream, epoch, None, told.created_ms if epoch == 0 else None,
            None, None, None, len(parts), [segment_name(told.ref, part) for _, part in parts],
        ]  # fmt: skip
