"""Queries about the retention policy of a stream."""

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.model.stream import SegmentOffset
from anabranch.controller.domain.stream import retaining, retention_answers
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, stream_at_head
from anabranch.controller.projections.tail_cut import TailCuts


async def retention_plan(desk: QueryDesk, query: asked.GetRetentionPlan) -> Contract:
    """A dry run of the periodic job, by the same decision. Changes nothing.

    Raises StreamNotFound, ScopeNotFound, Unavailable.
    """
    stream, tail = (await stream_at_head(desk, query)).state, None
    if retaining.is_look_due(stream, desk.now_ms()):
        stream, lengths = await TailCuts(desk.mirror, desk.segment_lengths).of(ref_of(stream))
        tail = tuple(sorted(SegmentOffset(segment, at) for segment, at in lengths.items()))
    history = await desk.history(stream)
    return retention_answers.planned(stream, history, tail, desk.now_ms())


QUERIES: Table = {"retention_plan": (asked.GetRetentionPlan, retention_plan)}
