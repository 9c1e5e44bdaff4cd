"""Streams: create, change, scale, truncate, seal, delete and describe them.

Each change is a command. It returns when its operation is complete, or with `wait=False` as soon as
it is accepted; in both cases it returns the handle of its operation. Sending it again under its
`command_id` has no further effect. All commands raise InvalidName for a malformed name, Busy while
another operation on the stream must end first, Unavailable if no cluster took the command, and
OutcomeUnknown, with the operation's id, if its end was not seen in time.
"""

from collections.abc import Sequence
from typing import Unpack

from anabranch.client.admin.operations import Operation, Sending, send
from anabranch.client.admin.policy_views import PolicyViews
from anabranch.client.admin.reshaping import Reshaping, merge, split
from anabranch.client.admin.stream_views import StreamViews
from anabranch.client.cuts import Cut, stream_cut
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.times.cut_at import TimeCut
from anabranch.client.reading.times.instants import Instant
from anabranch.client.wire.control import ControlPlane
from anabranch.client.wire.naming import naming
from anabranch.common.contracts.commands import (
    CreateStream,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from anabranch.common.errors import InvalidRanges, InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, StreamRef, stream_ref
from anabranch.common.model.stream import CUT_LENGTH_MAX, SEGMENT_COUNT_MAX, StreamConfig, fixed

Ranges = Sequence[KeyRange | tuple[float, float]]


class Streams(StreamViews, PolicyViews):
    """The streams of a cluster; `client.streams`.

    ::

        await client.streams.create("plant/sensors", segments=4)
        print(await client.streams.describe("plant/sensors"))
    """

    def __init__(self, control: ControlPlane, ranges: SegmentRanges) -> None:
        super().__init__(control)
        self._ranges = ranges

    async def cut_at(self, stream: str | StreamRef, instant: Instant) -> TimeCut:
        """The stream's cut at a time (a `datetime` with a zone, or Unix ms): by watermarks where
        they reach back to it, else by the times at which the stores took the appends.

        It never lies before the head. Its positions are a start of a reader or of a group, and a
        cut to truncate at. Raises StreamNotFound, InvalidRequest (a time without a zone),
        CorruptBlock (damaged watermarks), Unavailable.

        ::

            cut = await client.streams.cut_at("plant/sensors", 1_763_640_000_000)
            print(cut.basis, cut.positions)
        """
        ref = stream if isinstance(stream, StreamRef) else stream_ref(stream)
        return await self._ranges.cut_at(ref, instant)

    async def create(
        self,
        stream: str,
        config: StreamConfig | None = None,
        *,
        segments: int | None = None,
        **how: Unpack[Sending],
    ) -> Operation:
        """Create a stream with that configuration, or with so many segments that never scale.

        With neither, the stream has one segment. Raises ScopeNotFound, StreamExists,
        InvalidRequest (both are given, or the number is out of bounds).

        ::

            await client.streams.create("plant/sensors", segments=4)
        """
        ref = stream_ref(stream)
        if config is not None and segments is not None:
            raise InvalidRequest(
                "a stream is created with a configuration or with a number of segments",
                remedy="give the number of segments in the configuration's scaling policy",
                stream=stream,
            )
        asked = config or fixed(1 if segments is None else segments)
        return await send(
            self._control,
            lambda command_id: CreateStream(
                command_id=command_id,
                scope=ref.scope,
                stream=ref.stream,
                config=asked,
            ),
            **how,
        )

    async def update(self, stream: str, config: StreamConfig, **how: Unpack[Sending]) -> Operation:
        """Configure the stream so, in all respects.

        A policy that asks for another number of segments (fixed: exactly, else at least so many)
        scales it too; while another scale is under way it waits for its end. Raises StreamNotFound,
        StreamSealed, Busy (another update waits already).

        ::

            await client.streams.update("plant/sensors", StreamConfig(tags=("raw",)))
        """
        ref = stream_ref(stream)
        return await send(
            self._control,
            lambda command_id: UpdateStream(
                command_id=command_id, scope=ref.scope, stream=ref.stream, config=config
            ),
            **how,
        )

    async def scale(
        self,
        stream: str,
        seal: Sequence[int],
        new_ranges: Ranges,
        *,
        expected_epoch: int | None = None,
        **how: Unpack[Sending],
    ) -> Operation:
        """Replace these segments by new ones, whose ranges cover exactly the same keys.

        `expected_epoch`: refuse unless the stream is at that epoch. Raises StreamNotFound,
        StreamSealed, InvalidRanges, ScaleRefused.

        ::

            await client.streams.scale("plant/sensors", [0], [(0.0, 0.25), (0.25, 0.5)])
        """
        reshaping = Reshaping(tuple(seal), tuple(_new_range(keys) for keys in new_ranges))
        return await self._reshape(stream, reshaping, None, expected_epoch, **how)

    async def split_segment(
        self, stream: str, segment_id: int, parts: int = 2, **how: Unpack[Sending]
    ) -> Operation:
        """Split a current segment into so many of equal width. Raises as `scale` does.

        ::

            await client.streams.split_segment("plant/sensors", 0, parts=2)
        """
        present = await self.current_segments(stream)
        with naming(stream_ref(stream)):
            reshaping = split(present.segments, segment_id, parts)
        return await self._reshape(stream, reshaping, present.incarnation, None, **how)

    async def merge_segments(
        self, stream: str, segment_ids: Sequence[int], **how: Unpack[Sending]
    ) -> Operation:
        """Make one of current segments that lie side by side. Raises as `scale` does.

        ::

            await client.streams.merge_segments("plant/sensors", [2, 3])
        """
        present = await self.current_segments(stream)
        with naming(stream_ref(stream)):
            reshaping = merge(present.segments, segment_ids)
        return await self._reshape(stream, reshaping, present.incarnation, None, **how)

    async def _reshape(
        self,
        stream: str,
        reshaping: Reshaping,
        incarnation: int | None,
        expected_epoch: int | None,
        **how: Unpack[Sending],
    ) -> Operation:
        ref = stream_ref(stream)
        for name, count in (("seal", len(reshaping.seal)), ("ranges", len(reshaping.new_ranges))):
            if not 1 <= count <= SEGMENT_COUNT_MAX:
                raise InvalidRequest(
                    "a scale needs at least one segment and one range",
                    remedy=f"name 1 to {SEGMENT_COUNT_MAX} segments and as many ranges",
                    field=name,
                    count=count,
                )
        return await send(
            self._control,
            lambda command_id: ScaleStream(
                command_id=command_id,
                scope=ref.scope,
                stream=ref.stream,
                incarnation=incarnation,
                expected_epoch=expected_epoch,
                seal=tuple(SegmentId(segment) for segment in reshaping.seal),
                new_ranges=reshaping.new_ranges,
            ),
            **how,
        )

    async def truncate(
        self, stream: str | StreamRef, cut: Cut, **how: Unpack[Sending]
    ) -> Operation:
        """Give up everything before the cut, for good; its offsets are append boundaries.

        All or nothing: if a single segment cannot be truncated at its offset, nothing is given up.
        Raises StreamNotFound, InvalidCut, CutRefused, InvalidRequest (an offset is beyond the end),
        NotAtBoundary (within an append; fields {segment, lower}), Busy (another truncation is under
        way, or the stream is about to be sealed).

        ::

            await client.streams.truncate("plant/sensors", {0: 4096})
        """
        ref = stream if isinstance(stream, StreamRef) else stream_ref(stream)
        offsets = stream_cut(ref, cut)
        if not 1 <= len(offsets) <= CUT_LENGTH_MAX:
            raise InvalidRequest("a cut must name at least one segment", count=len(offsets))
        return await send(
            self._control,
            lambda command_id: TruncateStream(
                command_id=command_id, scope=ref.scope, stream=ref.stream, cut=offsets
            ),
            **how,
        )

    async def seal(self, stream: str, **how: Unpack[Sending]) -> Operation:
        """Make the stream read-only for ever. Raises StreamNotFound.

        ::

            await client.streams.seal("plant/sensors")
        """
        ref = stream_ref(stream)
        return await send(
            self._control,
            lambda command_id: SealStream(
                command_id=command_id, scope=ref.scope, stream=ref.stream
            ),
            **how,
        )

    async def delete(self, stream: str, **how: Unpack[Sending]) -> Operation:
        """Delete a sealed stream. Raises StreamNotFound, StreamNotSealed.

        ::

            await client.streams.delete("plant/sensors")
        """
        ref = stream_ref(stream)
        return await send(
            self._control,
            lambda command_id: DeleteStream(
                command_id=command_id, scope=ref.scope, stream=ref.stream
            ),
            **how,
        )


def _new_range(keys: KeyRange | tuple[float, float]) -> NewRange:
    start, end = (keys.start, keys.end) if isinstance(keys, KeyRange) else keys
    if not 0.0 <= start < end <= 1.0:
        raise InvalidRanges(
            "a key range must lie within [0, 1) and not be empty", start=start, end=end
        )
    return NewRange(key_start=start, key_end=end)
