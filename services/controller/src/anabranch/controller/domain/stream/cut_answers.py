"""Answers to queries about a stream's cuts and epochs, from its state and history. Pure."""

import bisect
from collections.abc import Iterable, Iterator, Mapping

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.errors import InvalidCut, InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, epoch_of
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.answers import in_stream, ref_of, where
from anabranch.controller.domain.stream.history import EpochRecord, History, overlaps
from anabranch.controller.domain.stream.state import Stream


def head_cut(stream: Stream, history: History) -> asked.CutFound:
    """Where the stream begins."""
    return _cut_found(stream, history, stream.head)


def cut_of_epoch(stream: Stream, history: History, stream_epoch: int) -> asked.CutFound:
    """An epoch's segments at their starts. Raises InvalidRequest."""
    if stream_epoch > history.current.stream_epoch:
        raise InvalidRequest(
            "the stream has not reached that epoch",
            stream_epoch=history.current.stream_epoch,
            asked=stream_epoch,
        )
    cut = [SegmentOffset(s.segment_id, 0) for s in history.segments_of(stream_epoch)]
    return _cut_found(stream, history, cut, stream_epoch)


def cut_with_lengths(
    stream: Stream, history: History, lengths: Mapping[SegmentId, int]
) -> asked.CutFound:
    """The current segments at those offsets."""
    cut = [SegmentOffset(s.segment_id, lengths[s.segment_id]) for s in stream.segments]
    return _cut_found(stream, history, cut, stream.stream_epoch)


def cut_at_time(stream: Stream, history: History, time_ms: int) -> asked.CutFound:
    """The segments of the epoch that was current then, or the head if it lies after them.

    For two cuts of a stream, the later place for every key makes a cut again: if the head has
    passed a segment, it has passed it for all of its keys.
    """
    began = [record.created_ms for record in history.records]
    at = max(0, bisect.bisect_right(began, time_ms) - 1)
    stream_epoch = history.records[at].stream_epoch
    offsets = {place.segment_id: place.offset for place in stream.head}
    newer = [history.lives[s] for s in offsets if epoch_of(s) > stream_epoch]
    cut: dict[SegmentId, int] = {}
    for segment in history.segments_of(stream_epoch):
        behind = [s.segment_id for s in newer if overlaps(s.keys, segment.keys)]
        if segment.segment_id in offsets or not behind:
            cut[segment.segment_id] = max(0, offsets.get(segment.segment_id, 0))
        else:
            cut.update((passed, offsets[passed]) for passed in behind)
    places = [SegmentOffset(segment, offset) for segment, offset in cut.items()]
    return _cut_found(stream, history, places, stream_epoch)


def _cut_found(
    stream: Stream, history: History, cut: Iterable[SegmentOffset], stream_epoch: int = 0
) -> asked.CutFound:
    lives = [(history.lives[place.segment_id], place.offset) for place in cut]
    lives.sort(key=lambda found: (found[0].keys.start, found[0].segment_id))
    return asked.CutFound(
        incarnation=stream.incarnation,
        stream_epoch=max(stream_epoch, *(life.created_epoch for life, _ in lives)),
        segments=tuple(
            asked.SegmentAt(**where(ref_of(stream), life.segment_id, life.keys), offset=offset)
            for life, offset in lives
        ),
    )


def cut_checked(history: History, cut: StreamCut) -> asked.CutChecked:
    """Whether it is a cut of the stream."""
    try:
        cuts.check(history, cut)
    except InvalidCut as error:
        return asked.CutChecked(valid=False, reason=str(error))
    return asked.CutChecked(valid=True)


def cuts_compared(history: History, first: StreamCut, second: StreamCut) -> asked.CutsCompared:
    """The order of the first cut relative to the second. Raises InvalidCut."""
    return asked.CutsCompared(order=cuts.compare(history, first, second))


def runs_between(
    stream: Stream, history: History, start: StreamCut, end: StreamCut
) -> Iterator[asked.SegmentRun]:
    """The segment runs between two cuts, sorted by segment id. Raises InvalidCut."""
    ref = ref_of(stream)
    for run in cuts.between(history, start or stream.head, end):
        life = history.lives[run.segment_id]
        yield asked.SegmentRun(
            **where(ref, run.segment_id, life.keys),
            start_offset=run.start_offset,
            end_offset=run.end_offset,
            size=life.size,
        )


def epochs_before(history: History, stream_epoch: int | None) -> Iterator[asked.EpochDescription]:
    """Epochs from the one below that number down to the first; None: from the current one."""
    count = len(history.segments_of(history.current.stream_epoch))
    for record in reversed(history.records):
        if stream_epoch is None or record.stream_epoch < stream_epoch:
            yield _epoch_described(history, record, count)
        count += len(record.sealed) - len(record.created)


def scaling_events(
    stream: Stream, history: History, from_ms: int, to_ms: int, after_epoch: int | None
) -> Iterator[asked.ScalingEvent]:
    """The epochs begun within the times, both included, and the latest before, by time.

    `after_epoch`: only those with higher numbers. Raises InvalidRequest.
    """
    if from_ms > to_ms:
        raise InvalidRequest("the time ends before it begins", from_ms=from_ms, to_ms=to_ms)
    began = [record.created_ms for record in history.records]
    first = max(0, bisect.bisect_left(began, from_ms) - 1)
    for record in history.records[first : bisect.bisect_right(began, to_ms)]:
        if after_epoch is not None and record.stream_epoch <= after_epoch:
            continue
        segments = history.segments_of(record.stream_epoch)
        epoch = _epoch_described(history, record, len(segments))
        yield asked.ScalingEvent(
            **epoch.model_dump(), segments=tuple(in_stream(ref_of(stream), segments))
        )


def _epoch_described(
    history: History, record: EpochRecord, segment_count: int
) -> asked.EpochDescription:
    old = [history.lives[sealed.segment_id].keys for sealed in record.sealed]
    new = [created.keys for created in record.created]
    return asked.EpochDescription(
        stream_epoch=record.stream_epoch,
        reference_epoch=record.reference_epoch,
        created_ms=record.created_ms,
        segment_count=segment_count,
        splits=_over_several(old, new),
        merges=_over_several(new, old),
        cause=record.cause,
    )


def _over_several(these: Iterable[KeyRange], others: Iterable[KeyRange]) -> int:
    """The number of these ranges with keys of more than one of the others, which are disjoint."""
    in_order = sorted(others)
    starts, ends = [keys.start for keys in in_order], [keys.end for keys in in_order]
    return sum(
        bisect.bisect_left(starts, keys.end) - bisect.bisect_right(ends, keys.start) > 1
        for keys in these
    )
