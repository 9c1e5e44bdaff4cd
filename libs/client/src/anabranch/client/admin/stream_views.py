"""Queries about streams: their state, their beginning and end, and their history.

Queries change nothing. Methods take segments by id, and cuts as in `cuts.py`. Every method raises
StreamNotFound or ScopeNotFound if the stream does not exist, and Unavailable if no reply comes in
time.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

from anabranch.client.admin.load_views import LoadViews
from anabranch.client.cuts import Cut, stream_cut
from anabranch.client.wire.control import QUERY_TIMEOUT_S
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.control import NAME_OF
from anabranch.common.contracts.queries import (
    PAGE_SIZE_MAX,
    CurrentSegments,
    DescribeStream,
    ListStreams,
    Query,
    SegmentList,
    StreamDescription,
    StreamList,
)
from anabranch.common.contracts.stream_queries import (
    CheckCut,
    CheckScale,
    CompareCuts,
    CutChecked,
    CutFound,
    CutsCompared,
    DescribeSegment,
    EpochDescription,
    EpochList,
    EpochSegments,
    GetStreamConfig,
    HeadCut,
    ListEpochs,
    ScaleChecked,
    ScalingEvent,
    ScalingEventList,
    ScalingEvents,
    SegmentDescription,
    SegmentRun,
    SegmentRunList,
    SegmentsAtTime,
    SegmentsBetween,
    StreamConfigFound,
    Successors,
    SuccessorsFound,
    TailCut,
)
from anabranch.common.contracts.writer_times import (
    ListWriterMarks,
    WriterMark,
    WriterMarkList,
)
from anabranch.common.model.names import scope_name, stream_ref
from anabranch.common.model.stream import StreamConfig

A = TypeVar("A", bound=Contract)


class StreamViews(LoadViews):
    """The questions of `Streams`."""

    # --- streams --------------------------------------------------------------------------

    async def describe(
        self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> StreamDescription:
        """State, epoch, number of segments and configuration.

        ::

            print((await client.streams.describe("plant/sensors")).segment_count)
        """
        ref = stream_ref(stream)
        query = DescribeStream(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "describe_stream", query, StreamDescription, timeout_s=timeout_s
        )

    async def config(self, stream: str) -> StreamConfig:
        """How the stream is configured.

        ::

            print((await client.streams.config("plant/sensors")).scaling)
        """
        ref = stream_ref(stream)
        query = GetStreamConfig(scope=ref.scope, stream=ref.stream)
        return (await self._ask(query, StreamConfigFound)).config

    async def list(self, scope: str, *, tag: str = "") -> AsyncIterator[str]:
        """The scope's stream names in order, of those that carry the tag if one is given.

        ::

            names = [name async for name in client.streams.list("plant")]
        """
        async for page in self._pages(scope, tag, details=False):
            for name in page.streams:
                yield name

    async def describe_all(self, scope: str, *, tag: str = "") -> AsyncIterator[StreamDescription]:
        """The same with descriptions; a stream that goes meanwhile is left out.

        ::

            async for stream in client.streams.describe_all("plant"):
                print(stream.stream, stream.state)
        """
        async for page in self._pages(scope, tag, details=True):
            for description in page.descriptions or ():
                yield description

    async def page(
        self,
        scope: str,
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
        *,
        tag: str = "",
        details: bool = False,
    ) -> StreamList:
        """One page of the scope's streams, from the start or from an earlier page's token.

        ::

            first = await client.streams.page("plant", page_size=10)
        """
        query = ListStreams(
            scope=scope_name(scope),
            page_token=page_token,
            page_size=page_size,
            tag=tag,
            details=details,
        )
        return await self._control.query(
            "list_streams", query, StreamList, timeout_s=QUERY_TIMEOUT_S
        )

    async def _pages(self, scope: str, tag: str, *, details: bool) -> AsyncIterator[StreamList]:
        token = ""
        while True:
            page = await self.page(scope, token, tag=tag, details=details)
            yield page
            if not (token := page.next_page_token):
                return

    # --- segments -------------------------------------------------------------------------

    async def current_segments(self, stream: str) -> SegmentList:
        """The present segments by key range; of a sealed stream its last ones.

        ::

            present = await client.streams.current_segments("plant/sensors")
        """
        ref = stream_ref(stream)
        query = CurrentSegments(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "current_segments", query, SegmentList, timeout_s=QUERY_TIMEOUT_S
        )

    async def epoch_segments(self, stream: str, stream_epoch: int) -> CutFound:
        """The segments of a stream epoch. Raises InvalidRequest for one that never was.

        ::

            first = await client.streams.epoch_segments("plant/sensors", 0)
        """
        ref = stream_ref(stream)
        query = EpochSegments(scope=ref.scope, stream=ref.stream, stream_epoch=stream_epoch)
        return await self._ask(query, CutFound)

    async def segments_at_time(self, stream: str, time_ms: int) -> CutFound:
        """The segments that were current at that time (Unix, in ms), or else the head's.

        ::

            found = await client.streams.segments_at_time("plant/sensors", 1714560000000)
        """
        ref = stream_ref(stream)
        query = SegmentsAtTime(scope=ref.scope, stream=ref.stream, time_ms=time_ms)
        return await self._ask(query, CutFound)

    async def describe_segment(self, stream: str, segment_id: int) -> SegmentDescription:
        """A segment of the stream, past ones included. Raises SegmentNotFound.

        ::

            print((await client.streams.describe_segment("plant/sensors", 0)).state)
        """
        ref = stream_ref(stream)
        query = DescribeSegment(scope=ref.scope, stream=ref.stream, segment_id=segment_id)
        return await self._ask(query, SegmentDescription)

    async def successors(self, stream: str, segment_id: int) -> SuccessorsFound:
        """The segments that follow the segment. Raises SegmentNotFound.

        ::

            found = await client.streams.successors("plant/sensors", 0)
        """
        ref = stream_ref(stream)
        query = Successors(scope=ref.scope, stream=ref.stream, segment_id=segment_id)
        return await self._ask(query, SuccessorsFound)

    # --- cuts -----------------------------------------------------------------------------

    async def head_cut(self, stream: str) -> CutFound:
        """The cut where the stream begins: the place of its last truncation.

        ::

            head = await client.streams.head_cut("plant/sensors")
        """
        ref = stream_ref(stream)
        return await self._ask(HeadCut(scope=ref.scope, stream=ref.stream), CutFound)

    async def tail_cut(self, stream: str) -> CutFound:
        """Where it ends at the moment: the current segments with their lengths.

        ::

            tail = await client.streams.tail_cut("plant/sensors")
        """
        ref = stream_ref(stream)
        return await self._ask(TailCut(scope=ref.scope, stream=ref.stream), CutFound)

    async def check_cut(self, stream: str, cut: Cut) -> CutChecked:
        """Whether it is a cut of the stream, and if not, why.

        ::

            checked = await client.streams.check_cut("plant/sensors", {0: 4096})
        """
        ref = stream_ref(stream)
        query = CheckCut(scope=ref.scope, stream=ref.stream, cut=stream_cut(ref, cut))
        return await self._ask(query, CutChecked)

    async def compare_cuts(self, stream: str, first: Cut, second: Cut) -> CutsCompared:
        """How the first lies to the second. Raises InvalidCut.

        ::

            told = await client.streams.compare_cuts("plant/sensors", {0: 0}, {0: 4096})
        """
        ref = stream_ref(stream)
        query = CompareCuts(
            scope=ref.scope,
            stream=ref.stream,
            first=stream_cut(ref, first),
            second=stream_cut(ref, second),
        )
        return await self._ask(query, CutsCompared)

    async def segments_between(
        self, stream: str, start: Cut | None = None, end: Cut | None = None
    ) -> AsyncIterator[SegmentRun]:
        """The parts of segments between two cuts, by segment id, fetched page by page: from the
        head without a start, to the end of the current segments without an end. Raises InvalidCut.

        ::

            async for run in client.streams.segments_between("plant/sensors"):
                print(run)
        """
        token = ""
        while True:
            page = await self.segment_run_page(stream, start, end, page_token=token)
            for run in page.segments:
                yield run
            if not (token := page.next_page_token):
                return

    async def segment_run_page(
        self,
        stream: str,
        start: Cut | None = None,
        end: Cut | None = None,
        *,
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
    ) -> SegmentRunList:
        """One page of them, from the first or from an earlier page's token.

        ::

            first = await client.streams.segment_run_page("plant/sensors", page_size=10)
        """
        ref = stream_ref(stream)
        query = SegmentsBetween(
            scope=ref.scope,
            stream=ref.stream,
            start=stream_cut(ref, start or {}),
            end=stream_cut(ref, end or {}),
            page_token=page_token,
            page_size=page_size,
        )
        return await self._ask(query, SegmentRunList)

    # --- history --------------------------------------------------------------------------

    async def epochs(self, stream: str) -> AsyncIterator[EpochDescription]:
        """Every epoch that the stream had, newest first, fetched page by page.

        ::

            counts = [one.segment_count async for one in client.streams.epochs("plant/sensors")]
        """
        token = ""
        while True:
            page = await self.epoch_page(stream, token)
            for epoch in page.epochs:
                yield epoch
            if not (token := page.next_page_token):
                return

    async def epoch_page(
        self, stream: str, page_token: str = "", page_size: int = PAGE_SIZE_MAX
    ) -> EpochList:
        """One page of the epochs, from the newest or from an earlier page's token.

        ::

            newest = await client.streams.epoch_page("plant/sensors", page_size=1)
        """
        ref = stream_ref(stream)
        query = ListEpochs(
            scope=ref.scope, stream=ref.stream, page_token=page_token, page_size=page_size
        )
        return await self._ask(query, EpochList)

    async def scaling_events(
        self, stream: str, from_ms: int, to_ms: int
    ) -> AsyncIterator[ScalingEvent]:
        """The epochs begun in [from_ms, to_ms] (Unix), and the latest before, by time.

        ::

            async for event in client.streams.scaling_events("plant/sensors", 0, 2**62):
                print(event)
        """
        token = ""
        while True:
            page = await self.scaling_event_page(stream, from_ms, to_ms, page_token=token)
            for event in page.events:
                yield event
            if not (token := page.next_page_token):
                return

    async def scaling_event_page(
        self,
        stream: str,
        from_ms: int,
        to_ms: int,
        *,
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
    ) -> ScalingEventList:
        """One page of them, from the earliest or from an earlier page's token.

        ::

            first = await client.streams.scaling_event_page("plant/sensors", 0, 2**62)
        """
        ref = stream_ref(stream)
        query = ScalingEvents(
            scope=ref.scope,
            stream=ref.stream,
            from_ms=from_ms,
            to_ms=to_ms,
            page_token=page_token,
            page_size=page_size,
        )
        return await self._ask(query, ScalingEventList)

    async def check_scale(self, stream: str, stream_epoch: int) -> ScaleChecked:
        """Whether a scale asked for at that epoch has ended. Raises InvalidRequest for an epoch
        that is yet to come.

        ::

            print((await client.streams.check_scale("plant/sensors", 0)).status)
        """
        ref = stream_ref(stream)
        query = CheckScale(scope=ref.scope, stream=ref.stream, stream_epoch=stream_epoch)
        return await self._ask(query, ScaleChecked)

    # --- writers --------------------------------------------------------------------------

    async def writer_marks(self, stream: str) -> tuple[WriterMark, ...]:
        """The last time that each writer of the stream noted, by writer id. Raises Unavailable if
        no controller keeps marks.

        ::

            marks = await client.streams.writer_marks("plant/sensors")
        """
        ref, token = stream_ref(stream), ""
        marks: list[WriterMark] = []
        while True:
            query = ListWriterMarks(scope=ref.scope, stream=ref.stream, page_token=token)
            page = await self._ask(query, WriterMarkList)
            marks.extend(page.marks)
            if not (token := page.next_page_token):
                return tuple(marks)

    async def _ask(self, query: Query, answer: type[A]) -> A:
        return await self._control.query(
            NAME_OF[type(query)], query, answer, timeout_s=QUERY_TIMEOUT_S
        )
