"""Queries about one stream: its description, segments and epochs."""

from collections.abc import Sequence

from anabranch.common.contracts import queries
from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId
from anabranch.controller.domain.stream import answers, cut_answers, segment_answers
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.desk import (
    QueryDesk,
    Table,
    answer_of,
    from_history,
    from_state,
)
from anabranch.controller.handlers.desk.pages import number_in, page_of
from anabranch.controller.handlers.queries.scaling import cold_until_ms


def _describe(loaded: Loaded[Stream], _query: queries.DescribeStream) -> queries.StreamDescription:
    return answers.described(loaded.state, loaded.revision)


def _current(loaded: Loaded[Stream], _query: queries.CurrentSegments) -> queries.SegmentList:
    return answers.current_segments(loaded.state)


def _config(loaded: Loaded[Stream], _query: asked.GetStreamConfig) -> asked.StreamConfigFound:
    return asked.StreamConfigFound(config=loaded.state.config)


def _check_scale(loaded: Loaded[Stream], query: asked.CheckScale) -> asked.ScaleChecked:
    return answers.scale_checked(loaded.state, query.stream_epoch)


def _successors(stream: Stream, history: History, query: asked.Successors) -> asked.SuccessorsFound:
    return segment_answers.successors(stream, history, SegmentId(query.segment_id))


def _is_followed(answer: asked.SuccessorsFound) -> bool:
    return answer.status == "followed"


def _epochs(_stream: Stream, history: History, query: asked.ListEpochs) -> asked.EpochList:
    before = number_in(query.page_token)
    page, more = page_of(cut_answers.epochs_before(history, before), query.page_size)
    return asked.EpochList(epochs=page, next_page_token=_token(page, more=more))


def _scaling_events(
    stream: Stream, history: History, query: asked.ScalingEvents
) -> asked.ScalingEventList:
    after = number_in(query.page_token)
    events = cut_answers.scaling_events(stream, history, query.from_ms, query.to_ms, after)
    page, more = page_of(events, query.page_size)
    return asked.ScalingEventList(events=page, next_page_token=_token(page, more=more))


def _token(page: Sequence[asked.EpochDescription], *, more: bool) -> str:
    return str(page[-1].stream_epoch) if more else ""


async def segment_rates(desk: QueryDesk, query: queries.SegmentRates) -> Contract:
    """The write rates of the current segments. Raises StreamNotFound, ScopeNotFound."""

    def rated(loaded: Loaded[Stream], _query: queries.SegmentRates) -> queries.SegmentRateList:
        found = answers.current_segments(loaded.state)
        return queries.SegmentRateList(
            segments=tuple(
                queries.SegmentWithRate(**segment.model_dump(), rate=desk.rate(segment.name))
                for segment in found.segments
            )
        )

    return answer_of(await from_state(rated)(desk, query))


async def describe_segment(desk: QueryDesk, query: asked.DescribeSegment) -> Contract:
    """A segment, its location, and whether it is cold. Raises SegmentNotFound, StreamNotFound,
    ScopeNotFound."""

    def locate(segment: str) -> queries.SegmentLocation:
        (location,) = desk.locate((segment,))
        return location

    seen: list[Stream] = []

    def described(
        stream: Stream, history: History, asked_for: asked.DescribeSegment
    ) -> asked.SegmentDescription:
        segment = SegmentId(asked_for.segment_id)
        found = segment_answers.segment_described(stream, history, segment, locate)
        seen.append(stream)
        return found

    found = answer_of(await from_history(described)(desk, query))
    until_ms = await cold_until_ms(desk, seen[-1], SegmentId(query.segment_id))
    return found.model_copy(update={"cold_until_ms": until_ms})


QUERIES: Table = {
    "describe_stream": (queries.DescribeStream, from_state(_describe)),
    "current_segments": (queries.CurrentSegments, from_state(_current)),
    "segment_rates": (queries.SegmentRates, segment_rates),
    "stream_config": (asked.GetStreamConfig, from_state(_config)),
    "check_scale": (asked.CheckScale, from_state(_check_scale)),
    "successors": (asked.Successors, from_history(_successors, _is_followed)),
    "describe_segment": (asked.DescribeSegment, describe_segment),
    "list_epochs": (asked.ListEpochs, from_history(_epochs)),
    "scaling_events": (asked.ScalingEvents, from_history(_scaling_events)),
}
