"""Opens a reader group's log, and brings its state to the generation that the controller knows.

The controller decides the group's generation and configuration; the log's state follows. If a
client finds a log without a state, or with a state of an older generation, it writes the first
state of the current generation, unless another client has done so. If a client dies in the middle
of a reset, the next one therefore completes it.
"""

from collections.abc import Sequence
from typing import Protocol

from anabranch.client.groups.state import GroupEnd, GroupSegment, ReaderGroupState
from anabranch.client.groups.succession import end_offset
from anabranch.client.groups.updates import AnyUpdate
from anabranch.client.one_segment.synchronizer import StateSynchronizer
from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.reading.frontier import FUTURE, Frontier, Position, Standing
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.reader_groups import DescribeReaderGroup, ReaderGroupDescription
from anabranch.common.model.names import StreamRef, segment_name
from anabranch.common.model.reader_group import GroupRef, GroupStream, PositionCut

GroupSynchronizer = StateSynchronizer[ReaderGroupState, AnyUpdate]


class Parts(Protocol):
    """The part of a client that builds bounds and synchronizers."""

    def bounds(self, stream: StreamRef) -> StreamBounds: ...

    def synchronizer(self, stream: StreamRef) -> GroupSynchronizer: ...


class GroupAccess:
    """Access to the state of one group."""

    def __init__(self, group: GroupRef, control: ControlPlane, parts: Parts) -> None:
        self.group = group
        self._control = control
        self._parts = parts

    async def describe(self) -> ReaderGroupDescription:
        """Raises ReaderGroupNotFound, ScopeNotFound."""
        query = DescribeReaderGroup(scope=self.group.scope, group=self.group.group)
        return await self._control.query(
            "describe_reader_group", query, ReaderGroupDescription, timeout_s=QUERY_TIMEOUT_S
        )

    async def open_log(self) -> GroupSynchronizer:
        """The group's log, folded to its end, of the current generation.

        Raises ReaderGroupNotFound, ScopeNotFound, StreamNotFound, InvalidRequest for cuts that the
        streams never had.
        """
        description = await self.describe()
        log = self._parts.synchronizer(self.group.state_stream)
        try:
            await log.open()
            await self.renew(log, description)
        except BaseException:
            await log.close()
            raise
        return log

    async def renew(self, log: GroupSynchronizer, description: ReaderGroupDescription) -> bool:
        """Bring the log's state to the description's generation; returns whether it was older."""
        await log.fetch()
        present = (description.incarnation, description.generation)
        if log.state is not None and _age(log.state) >= present:
            return False
        first = await self._first_state(description)
        if log.state is None and await log.initialize(first):
            return True

        def decide(state: ReaderGroupState) -> ReaderGroupState | None:
            if _age(state) >= present:
                return None
            return first.after(state.newest_ownership)

        return await log.replace(decide)

    async def _first_state(self, description: ReaderGroupDescription) -> ReaderGroupState:
        segments: dict[str, GroupSegment] = {}
        ends: list[GroupEnd] = []
        for stream in description.config.streams:
            bounds = self._parts.bounds(stream.ref)
            stream_ends = await self._ends(bounds, stream)
            standings = await bounds.start(_positions(stream, stream.start) or "head")
            positions = Frontier(standings).positions
            for segment, _ in standings:
                segments[segment.name] = GroupSegment(
                    segment.name, segment.segment_id, segment.key_start, segment.key_end,
                    positions[segment.name], end_offset(stream_ends, segment.name),
                )  # fmt: skip
            ends.extend(stream_ends)
        return ReaderGroupState(
            description.incarnation, description.generation, description.config,
            segments, tuple(ends),
        )  # fmt: skip

    async def _ends(self, bounds: StreamBounds, stream: GroupStream) -> Sequence[GroupEnd]:
        if not stream.end:
            return ()
        standings: list[Standing] = await bounds.start(_positions(stream, stream.end))
        return [
            GroupEnd(at.name, at.segment_id, at.key_start, at.key_end, position.offset)
            for at, position in standings
        ]


def _positions(stream: GroupStream, cut: PositionCut) -> dict[str, Position]:
    return {
        segment_name(stream.ref, at.segment_id): (
            FUTURE if at.offset == FUTURE.offset else Position(at.offset, at.event_index)
        )
        for at in cut
    }


def _age(state: ReaderGroupState) -> tuple[int, int]:
    return (state.incarnation, state.generation)
