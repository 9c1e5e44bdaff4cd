"""Builds readers of groups from a client's connections."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from typing_extensions import TypeVar

from anabranch.client.admin.operations import send
from anabranch.client.backoff import Backoff
from anabranch.client.groups.access import GroupAccess, GroupSynchronizer
from anabranch.client.groups.codec import ReaderGroupCodec
from anabranch.client.groups.group import ReaderGroup
from anabranch.client.groups.ports import Surroundings
from anabranch.client.groups.reader import GroupReader, GroupReaderParts, GroupReaderSettings
from anabranch.client.groups.reading import OnCheckpoint
from anabranch.client.groups.reset_preview import ResetPreview, preview
from anabranch.client.groups.state import Checkpoint, ReaderGroupState, stream_of
from anabranch.client.groups.status import ReaderGroupStatus, status_of
from anabranch.client.one_segment.revisioned_stream import RevisionedStream
from anabranch.client.one_segment.synchronizer import StateSynchronizer
from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import Intake
from anabranch.client.reading.places import checked
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.times.follower import WatermarkFollower, new_follower
from anabranch.client.reading.times.instants import Instant
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import BackoffSettings, OneSegmentSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.reader_groups import UpdateSubscriberCut
from anabranch.common.errors import NotFound, Retry, Unknown
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.model.reader_group import (
    GroupRef,
    GroupRetention,
    PositionCut,
    SegmentPosition,
)
from anabranch.common.model.topics import readable_stream

T = TypeVar("T", default=bytes)

WATCH_S = 10.0
"""How often a reader asks the controller whether its group was reset."""
CALL_TIMEOUT_S = 20.0


class ClientGroupParts:
    """Implements both `access.Parts` and `group.GroupParts`."""

    def __init__(
        self, control: ControlPlane, directory: SegmentDirectory, runtime: Runtime
    ) -> None:
        self._control = control
        self._directory = directory
        self._runtime = runtime

    def group(self, ref: GroupRef) -> ReaderGroup:
        """The group of this name, which need not exist yet."""
        access = GroupAccess(ref, self._control, self)
        return ReaderGroup(access, self, self._runtime.clock, self._runtime.ids)

    def bounds(self, stream: StreamRef) -> StreamBounds:
        return StreamBounds(
            stream,
            control=self._control,
            directory=self._directory,
            clock=self._runtime.clock,
            calls=self._calls,
            new_backoff=self._new_backoff,
        )

    def synchronizer(self, stream: StreamRef) -> GroupSynchronizer:
        settings = OneSegmentSettings()
        log = RevisionedStream(
            stream,
            control=self._control,
            directory=self._directory,
            runtime=self._runtime,
            settings=settings,
        )
        return StateSynchronizer(
            log,
            ReaderGroupCodec(),
            runtime=self._runtime,
            retry_timeout_s=settings.retry_timeout_s,
        )

    def new_reader(
        self,
        access: GroupAccess,
        reader_id: str,
        settings: GroupReaderSettings,
        *,
        on_checkpoint: OnCheckpoint | None,
        serializer: Serializer[T] | None,
    ) -> GroupReader[T]:
        async def open_parts() -> GroupReaderParts:
            log = await access.open_log()
            news = asyncio.Event()
            source = Intake(self._control, self._directory, self._runtime, settings.reading, news)
            return GroupReaderParts(
                log, source, news, self._surroundings(access, log), self._watch(access, log),
                self._follower,
            )  # fmt: skip

        return GroupReader(
            reader_id,
            open_parts=open_parts,
            runtime=self._runtime,
            settings=settings,
            on_checkpoint=on_checkpoint,
            serializer=serializer,
        )

    async def status(self, group: str, state: ReaderGroupState) -> ReaderGroupStatus:
        ranges = self._ranges()
        return await status_of(group, state, parts=self, ranges=ranges, clock=self._runtime.clock)

    async def preview(self, group: str, state: ReaderGroupState, to_time: Instant) -> ResetPreview:
        return await preview(group, state, to_time, self)

    async def checked(
        self, positions: Mapping[str, Position], segments: Iterable[str]
    ) -> dict[str, Position]:
        return await checked(self._ranges(), positions, segments)

    async def _follower(self, stream: StreamRef) -> WatermarkFollower:
        """A follower of the watermarks of the stream's present life. Raises StreamNotFound."""
        incarnation = (await current_segments(self._control, stream)).incarnation
        runtime, directory = self._runtime, self._directory
        return new_follower(
            stream, incarnation, directory=directory, clock=runtime.clock, rng=runtime.rng
        )

    def _ranges(self) -> SegmentRanges:
        return SegmentRanges(
            self._control, self._directory, clock=self._runtime.clock, rng=self._runtime.rng
        )

    # --- the readers' surroundings -----------------------------------------------------------

    def _surroundings(self, access: GroupAccess, log: GroupSynchronizer) -> Surroundings:
        async def unread(segment: str, offset: int) -> int:
            return max(0, (await self._calls(segment).info()).length - offset)

        async def completed(checkpoint: Checkpoint) -> None:
            state = log.state
            if state is not None and state.config.retention is GroupRetention.AUTOMATIC:
                await self._released(access, state, checkpoint)

        return Surroundings(unread=unread, completed=completed)

    async def _released(
        self, access: GroupAccess, state: ReaderGroupState, checkpoint: Checkpoint
    ) -> None:
        """Release every stream's events before the checkpoint, as far as the group is concerned."""
        for stream in {stream_of(name) for name in checkpoint.positions}:
            ref = readable_stream(stream)
            cut = tuple(
                sorted(
                    SegmentPosition(parse_segment_name(name)[1], *position)
                    for name, position in checkpoint.positions.items()
                    if stream_of(name) == stream
                )
            )
            await send(self._control, self._release(access, ref, state.generation, cut))

    def _release(
        self, access: GroupAccess, stream: StreamRef, generation: int, cut: PositionCut
    ) -> Callable[[str], UpdateSubscriberCut]:
        def command(command_id: str) -> UpdateSubscriberCut:
            return UpdateSubscriberCut(
                command_id=command_id,
                scope=stream.scope,
                stream=stream.stream,
                subscriber=str(access.group),
                generation=generation,
                cut=cut,
            )

        return command

    def _watch(self, access: GroupAccess, log: GroupSynchronizer) -> Callable[[], Awaitable[None]]:
        async def watch() -> None:
            while True:
                await self._runtime.clock.sleep(WATCH_S)
                try:
                    await access.renew(log, await access.describe())
                except (Retry, Unknown):
                    continue
                except NotFound:
                    return  # the log of a deleted group is sealed, which ends the membership

        return watch

    def _calls(self, segment: str) -> SegmentCalls:
        return SegmentCalls(
            segment,
            directory=self._directory,
            clock=self._runtime.clock,
            backoff=self._new_backoff(),
        )

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._runtime.rng, CALL_TIMEOUT_S)
