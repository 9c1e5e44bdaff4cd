"""A stream whose writers note times, and the job that makes watermarks of them, in memory."""

from dataclasses import replace

from anabranch.common.contracts.commands import CreateStream
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import SegmentOffset, StreamCut, fixed
from anabranch.common.model.watermark import Watermark, decode_watermark, watermark_segment
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.block import Block
from anabranch.controller.periodic.advance_watermarks import Sources, WatermarkAdvancer
from anabranch.controller.projections.watermark_log import WatermarkLog
from kit.loud import loud
from kit.retained_world import SteadyClock
from kit.workflow_world import REF, SUBJECT, World

MARKS = watermark_segment(REF)
SHARD = shard_of_subject(SUBJECT)
TIMEOUT_MS = 30_000


def at(*offsets: int, epoch: int = 0, first: int = 0) -> StreamCut:
    """Offsets in segments with ascending numbers."""
    return tuple(
        SegmentOffset(segment_id(epoch, first + index), offset)
        for index, offset in enumerate(offsets)
    )


class Marked(World):
    """A stream of three segments, and a controller that owns it."""

    def __init__(self) -> None:
        super().__init__(clock=SteadyClock())
        self.owned = frozenset({SHARD})
        self.ids = SeededIds(9)
        self.advancer = self.new_advancer()

    def new_advancer(self, bucket_count: int = SHARD_COUNT) -> WatermarkAdvancer:
        """Another controller."""
        return WatermarkAdvancer(
            Sources(
                self.writer_times, self.mirror, self.histories, lambda: self.owned, bucket_count
            ),
            WatermarkLog(self.segments, self.ids),
            clock=self.clock,
            period_s=10.0,
            containment=loud(self.clock),
        )

    async def create(self, timeout_ms: int = TIMEOUT_MS, command_id: str = "create") -> None:
        config = replace(fixed(3), timestamp_aggregation_timeout_ms=timeout_ms)
        await self.command(
            CreateStream(command_id=command_id, scope=REF.scope, stream=REF.stream, config=config)
        )
        await self.rest()

    async def found(self, timeout_ms: int = TIMEOUT_MS) -> None:
        """A stream, and a controller that has owned its bucket for longer than the time-out."""
        await self.open_scope()
        await self.create(timeout_ms)
        await self.later(0)
        self.clock.ms += timeout_ms

    async def note(
        self, writer: str, timestamp_ms: int, positions: StreamCut = (), incarnation: int = 1
    ) -> None:
        await self.writer_times.note(REF, incarnation, writer * 32, timestamp_ms, positions)

    async def later(self, ms: int = 10_000, advancer: WatermarkAdvancer | None = None) -> None:
        """One round after that time."""
        self.clock.ms += ms
        await self.mirror.reach_head(SHARD)
        await (advancer or self.advancer).round()

    def watermarks(self) -> list[Watermark]:
        """All that are stored."""
        found = self.segments.segments.get(MARKS)
        if found is None or found.deleted:
            return []
        kept = (block for offset, block in found.blocks.items() if offset >= found.start)
        return [decode_watermark(event) for block in kept for event in Block(block)]

    def bounds(self) -> list[tuple[int, int]]:
        return [(one.lower_ms, one.upper_ms) for one in self.watermarks()]

    def cut(self) -> dict[SegmentId, int]:
        """The last watermark's."""
        return {marked.segment_id: marked.offset for marked in self.watermarks()[-1].cut}
