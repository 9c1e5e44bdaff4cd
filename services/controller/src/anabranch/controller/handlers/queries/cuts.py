"""Queries about a stream's cuts: its head, its tail, and the segments between two cuts."""

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import StreamNotFound
from anabranch.common.model.names import StreamRef, any_stream_name, scope_name
from anabranch.controller.domain.stream import cut_answers
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, found_scope, from_history
from anabranch.controller.handlers.desk.pages import number_in, page_of
from anabranch.controller.projections.tail_cut import TailCuts


def _head(stream: Stream, history: History, _query: asked.HeadCut) -> asked.CutFound:
    return cut_answers.head_cut(stream, history)


def _epoch(stream: Stream, history: History, query: asked.EpochSegments) -> asked.CutFound:
    return cut_answers.cut_of_epoch(stream, history, query.stream_epoch)


def _at_time(stream: Stream, history: History, query: asked.SegmentsAtTime) -> asked.CutFound:
    return cut_answers.cut_at_time(stream, history, query.time_ms)


def _check(_stream: Stream, history: History, query: asked.CheckCut) -> asked.CutChecked:
    return cut_answers.cut_checked(history, query.cut)


def _is_valid(answer: asked.CutChecked) -> bool:
    return answer.valid


def _compare(_stream: Stream, history: History, query: asked.CompareCuts) -> asked.CutsCompared:
    return cut_answers.cuts_compared(history, query.first, query.second)


def _between(
    stream: Stream, history: History, query: asked.SegmentsBetween
) -> asked.SegmentRunList:
    after = number_in(query.page_token)
    runs = (
        run
        for run in cut_answers.runs_between(stream, history, query.start, query.end)
        if after is None or run.segment_id > after
    )
    if not query.page_size:
        return asked.SegmentRunList(segments=tuple(runs))
    page, more = page_of(runs, query.page_size)
    token = str(page[-1].segment_id) if more else ""
    return asked.SegmentRunList(segments=page, next_page_token=token)


async def tail_cut(desk: QueryDesk, query: asked.TailCut) -> Contract:
    """The tail of the stream now; the cut divides no commit batch (`TailCuts`).

    Raises StreamNotFound, ScopeNotFound, Unavailable.
    """
    ref = StreamRef(scope_name(query.scope), any_stream_name(query.stream))
    try:
        stream, lengths = await TailCuts(desk.mirror, desk.segment_lengths).of(ref)
    except StreamNotFound:
        await found_scope(desk, ref.scope)  # the scope may be missing too
        raise
    return cut_answers.cut_with_lengths(stream, await desk.history(stream), lengths)


QUERIES: Table = {
    "head_cut": (asked.HeadCut, from_history(_head)),
    "tail_cut": (asked.TailCut, tail_cut),
    "epoch_segments": (asked.EpochSegments, from_history(_epoch)),
    "segments_at_time": (asked.SegmentsAtTime, from_history(_at_time)),
    "check_cut": (asked.CheckCut, from_history(_check, _is_valid)),
    "compare_cuts": (asked.CompareCuts, from_history(_compare)),
    "segments_between": (asked.SegmentsBetween, from_history(_between)),
}
