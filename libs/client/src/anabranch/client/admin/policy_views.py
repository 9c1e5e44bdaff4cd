"""Questions about the effects of a stream's policies, and the times of its writers.

Every method raises StreamNotFound or ScopeNotFound if the stream does not exist, and Unavailable if
no reply comes in time.
"""

from collections.abc import Mapping

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.stream_queries import GetRetentionPlan, RetentionPlan
from anabranch.common.contracts.watermarks import GetWatermarkStatus, WatermarkStatus
from anabranch.common.contracts.writer_times import (
    NoteTime,
    RemoveWriter,
    TimeNoted,
    WriterRemoved,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import SegmentId, stream_ref
from anabranch.common.model.stream import SegmentOffset


class PolicyViews:
    """The questions of `Streams` about policies, and what concerns writers' times."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def retention(self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> RetentionPlan:
        """A dry run of the retention policy: the next release, its holders, and earlier releases.

        ::

            plan = await client.streams.retention("plant/sensors")
            print(plan.rule, plan.freed_bytes, [one.subscriber for one in plan.holders])
        """
        ref = stream_ref(stream)
        query = GetRetentionPlan(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "retention_plan", query, RetentionPlan, timeout_s=timeout_s
        )

    async def watermark_status(
        self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> WatermarkStatus:
        """How far the watermark is, which writers count, and which one holds it back since when.

        ::

            status = await client.streams.watermark_status("plant/sensors")
            print(status.held, status.held_by, status.last)
        """
        ref = stream_ref(stream)
        query = GetWatermarkStatus(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "watermark_status", query, WatermarkStatus, timeout_s=timeout_s
        )

    async def note_time(
        self,
        stream: str,
        writer_id: str,
        timestamp_ms: int,
        positions: Mapping[int, int] | None = None,
    ) -> None:
        """Note for a writer that its further events are of this time or later.

        `writer.note_time` does this for a writer of this library. `writer_id`: 32 hexadecimal
        digits. `positions`: per segment, up to which byte the writer's acknowledged events lie.
        Raises InvalidRequest, also if the time or a position is lower than the last one, and
        Overloaded (too many writers).

        ::

            await client.streams.note_time("plant/sensors", "0" * 32, 1_700_000_000_000)
        """
        ref = stream_ref(stream)
        places = sorted((positions or {}).items())
        try:
            query = NoteTime(
                scope=ref.scope,
                stream=ref.stream,
                writer_id=writer_id,
                timestamp_ms=timestamp_ms,
                positions=tuple(
                    SegmentOffset(SegmentId(segment), offset) for segment, offset in places
                ),
            )
        except ValueError as error:
            raise InvalidRequest(
                "not a writer's time",
                remedy="give 32 hexadecimal digits, and a time between 1970 and 2^53 ms",
                writer=writer_id[:64],
                timestamp_ms=timestamp_ms,
            ) from error
        await self._control.query("note_time", query, TimeNoted, timeout_s=QUERY_TIMEOUT_S)

    async def remove_writer(self, stream: str, writer_id: str) -> bool:
        """Say that a writer is gone for good, so that it holds no watermark back; False if it had
        no mark. Closing a writer of this library does the same. Raises InvalidRequest.

        ::

            await client.streams.remove_writer("plant/sensors", "0" * 32)
        """
        ref = stream_ref(stream)
        try:
            query = RemoveWriter(scope=ref.scope, stream=ref.stream, writer_id=writer_id)
        except ValueError as error:
            raise InvalidRequest(
                "not a writer's id", remedy="give 32 hexadecimal digits", writer=writer_id[:64]
            ) from error
        removed = await self._control.query(
            "remove_writer", query, WriterRemoved, timeout_s=QUERY_TIMEOUT_S
        )
        return removed.was_known
