"""Queries about a stream's cuts: where it begins and ends, what lies between."""

import asyncio

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import NotFound, Unavailable
from anabranch.common.model.names import SegmentId, segment_name
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cut_answers
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk import QueryDesk, Table, from_history, stream_at_head
from anabranch.controller.handlers.pages import number_in, page_of

LENGTHS_AT_ONCE_MAX = 32
LENGTHS_DEADLINE_S = 5.0


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
    """The current segments with their lengths: of a sealed stream those that it was sealed with,
    else as the stores tell them. Raises StreamNotFound, ScopeNotFound, Unavailable."""
    stream = (await stream_at_head(desk, query)).state
    lengths = {sealed.segment_id: sealed.size for sealed in stream.sealed}
    if not lengths:
        lengths = await _asked_lengths(desk, stream)
    return cut_answers.cut_with_lengths(stream, await desk.history(stream), lengths)


async def _asked_lengths(desk: QueryDesk, stream: Stream) -> dict[SegmentId, int]:
    ref = ref_of(stream)
    lengths: dict[SegmentId, int] = {}

    async def ask(segment: SegmentId) -> None:
        lengths[segment] = await desk.segment_length(segment_name(ref, segment))

    segments = [s.segment_id for s in stream.segments]
    try:
        async with asyncio.timeout(LENGTHS_DEADLINE_S):
            await for_each(segments, LENGTHS_AT_ONCE_MAX, ask)
    except TimeoutError as error:
        silent = segment_name(ref, next(s for s in segments if s not in lengths))
        raise Unavailable(
            "the segment stores did not tell all lengths in time",
            segment=silent,
            told=len(lengths),
            asked=len(segments),
        ) from error
    except NotFound as error:
        # Made a moment later, or deleted by a truncation of a moment ago.
        raise Unavailable(
            "a segment is not there; the stream is being changed",
            remedy="ask again",
            stream=str(ref),
            cause=str(error),
        ) from error
    return lengths


QUERIES: Table = {
    "head_cut": (asked.HeadCut, from_history(_head)),
    "tail_cut": (asked.TailCut, tail_cut),
    "epoch_segments": (asked.EpochSegments, from_history(_epoch)),
    "segments_at_time": (asked.SegmentsAtTime, from_history(_at_time)),
    "check_cut": (asked.CheckCut, from_history(_check, _is_valid)),
    "compare_cuts": (asked.CompareCuts, from_history(_compare)),
    "segments_between": (asked.SegmentsBetween, from_history(_between)),
}
