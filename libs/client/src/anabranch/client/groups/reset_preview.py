"""Computes the bytes that a reset of a group to a time would read again, and would leave out.

                      ┌── skipped ──┐
    ──────target──────position──────target'──────►   of each stream, key by key
          └── again ──┘

The position is the saved one. Both counts are of stored bytes, in whole blocks.
"""

from dataclasses import dataclass

from anabranch.client.groups.access import Parts
from anabranch.client.groups.state import ReaderGroupState, stream_of
from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.reading.frontier import Position, Standing
from anabranch.client.reading.joining import earlier_of
from anabranch.client.reading.times.cut_at import Basis
from anabranch.client.reading.times.instants import Instant
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.common.model.topics import readable_stream


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The effect of a reset on one stream. Positions are by full segment name.

    ::

        for one in (await group.preview_reset(1_763_640_000_000)).streams:
            print(one.stream, one.basis, one.again_bytes, one.skipped_bytes)
    """

    stream: str
    """The stream's name, ``scope/stream``."""
    basis: Basis
    """The basis of the target, see `TimeCut`."""
    present: dict[str, Position]
    """The group's saved position."""
    target: dict[str, Position]
    """The position after the reset."""
    again_bytes: int
    """The bytes that the group has processed and would read again."""
    skipped_bytes: int
    """The bytes that the group has not processed yet and would never read."""


@dataclass(frozen=True, slots=True)
class ResetPreview:
    """The effect of a reset to a time on a group that is at this generation.

    ::

        preview = await group.preview_reset(1_763_640_000_000)
        print(preview.generation, sum(one.again_bytes for one in preview.streams))
    """

    group: str
    generation: int
    streams: tuple[StreamReset, ...]


async def preview(
    group: str, state: ReaderGroupState, instant: Instant, parts: Parts
) -> ResetPreview:
    """The effect of a reset now. Raises as `StreamBounds.at_time` and `runs`."""
    streams = sorted({stream_of(name) for name in state.segments})
    found = [await _of_stream(state, stream, instant, parts) for stream in streams]
    return ResetPreview(group, state.generation, tuple(found))


async def _of_stream(
    state: ReaderGroupState, stream: str, instant: Instant, parts: Parts
) -> StreamReset:
    bounds = parts.bounds(readable_stream(stream))
    target = await bounds.at_time(instant)
    present = _standings(state, stream)
    earlier = earlier_of(present, target.standings)
    return StreamReset(
        stream,
        target.basis,
        {segment.name: at for segment, at in present},
        {segment.name: at for segment, at in target.standings},
        again_bytes=await _size(bounds, earlier, present),
        skipped_bytes=await _size(bounds, earlier, target.standings),
    )


def _standings(state: ReaderGroupState, stream: str) -> list[Standing]:
    return [
        (
            SegmentInStream(
                segment_id=each.segment_id, name=each.name,
                key_start=each.key_start, key_end=each.key_end,
            ),
            each.position,
        )
        for each in state.segments.values()
        if stream_of(each.name) == stream
    ]  # fmt: skip


async def _size(bounds: StreamBounds, start: list[Standing], end: list[Standing]) -> int:
    runs = await bounds.runs(start=_cut(start), end=_cut(end))
    return sum(max(0, (run.end_offset or 0) - run.start_offset) for run in runs)


def _cut(standings: list[Standing]) -> StreamCut:
    return tuple(
        sorted(SegmentOffset(SegmentId(each.segment_id), at.offset) for each, at in standings)
    )
