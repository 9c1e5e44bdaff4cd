"""Queries about a stream's cuts: where it begins and ends, what lies between."""

import asyncio

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import NotFound, Unavailable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId, segment_name
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cut_answers, intents
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, from_history, stream_at_head
from anabranch.controller.handlers.desk.pages import number_in, page_of

LENGTHS_AT_ONCE_MAX = 32
LENGTHS_DEADLINE_S = 5.0
BATCH_DEADLINE_S = 5.0
TAIL_ATTEMPTS_MAX = 3


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
    else as the stores tell them, so that no batch of transactions is divided.

    The stores are asked one by one, so a batch may be merged into a segment whose length is asked
    later and not yet into one that was asked before. Let `finished` be the number of batches that
    had finished before any length was asked, and `begun` of those that had begun after all were
    told, both read at the head. A batch is stored as begun before anything of it is merged, and as
    finished after all of it is. So every length includes all batches up to `finished`, and none
    after `begun`. If there are none in between, nothing can be divided. Otherwise the answer waits
    until batch `begun`, or a later one, has finished, which says up to where the batches reach in
    every segment. Batches lie in a segment in their order, and what has finished reaches no less
    far in any segment than what came before (`CommitsSeen`). Then the larger of the length and
    that reach includes, in every segment, all batches up to the one that was waited for. It
    includes nothing of a later one: the reach ends before it, and it had not begun when the
    lengths were told.

    Batches between that rolled the stream, or scales, leave other segments: it begins again.

    Raises StreamNotFound, ScopeNotFound, Unavailable.
    """
    for _ in range(TAIL_ATTEMPTS_MAX):
        stream = (await stream_at_head(desk, query)).state
        lengths = {sealed.segment_id: sealed.size for sealed in stream.sealed}
        if not lengths:
            told = await _undivided(desk, query, stream, await _asked_lengths(desk, stream))
            if told is None:
                continue
            lengths = told
        return cut_answers.cut_with_lengths(stream, await desk.history(stream), lengths)
    raise Unavailable(
        "every attempt met a change of the stream's segments",
        remedy="ask again",
        stream=query.stream,
        attempts=TAIL_ATTEMPTS_MAX,
    )


async def _undivided(
    desk: QueryDesk, query: asked.TailCut, before: Stream, lengths: dict[SegmentId, int]
) -> dict[SegmentId, int] | None:
    """The lengths, or up to where batches reach that were merged meanwhile; see `tail_cut`.

    `before`: the stream at the head, from before any length was asked. None: it has other segments
    by now, and batches came in between.
    """
    head = await stream_at_head(desk, query)
    begun = _batches_begun(head.state)
    if head.state.incarnation != before.incarnation:
        return None
    if begun == before.commits.count:
        return lengths
    now = await _with_finished(desk, head, begun)
    if now is None or now.stream_epoch != before.stream_epoch:
        return None
    assert now.commits.stream_epoch == now.stream_epoch, "a batch finished in this epoch"
    # A batch that rolled the stream to this epoch lies before all of it.
    ends = now.commits.ends or (0,) * len(before.segments)
    reached = zip(before.segments, ends, strict=True)
    return {s.segment_id: max(lengths[s.segment_id], end) for s, end in reached}


def _batches_begun(stream: Stream) -> int:
    is_pending = intents.find(stream.intents, IntentKind.COMMIT) is not None
    return stream.commits.count + is_pending


async def _with_finished(desk: QueryDesk, head: Loaded[Stream], batches: int) -> Stream | None:
    """The stream once so many batches have finished; None: it has ended. Raises Unavailable."""
    ref, shard = ref_of(head.state), shard_of_subject(head.subject)
    try:
        async with asyncio.timeout(BATCH_DEADLINE_S):
            while True:
                loaded = desk.mirror.stream(ref)
                assert loaded is not None, "it was there at the head"
                stream = loaded.state
                if not stream.is_live or stream.incarnation != head.state.incarnation:
                    return None
                if stream.commits.count >= batches:
                    return stream
                await desk.mirror.moved(shard)
    except TimeoutError as error:
        raise Unavailable(
            "the merge of a batch of transactions does not end",
            remedy="ask again",
            stream=str(ref),
        ) from error


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
            "the segment stores did not return all lengths in time",
            segment=silent,
            told=len(lengths),
            asked=len(segments),
        ) from error
    except NotFound as error:
        # Made a moment later, or deleted by a truncation of a moment ago.
        raise Unavailable(
            "a segment does not exist; the stream is changing",
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
