"""Reader groups as the controller knows them: it creates, resets, deletes and describes them.

A group is named ``scope/group``. Each change is a command, sent as the commands of `streams.py` and
with the same errors. Only the readers know the progress of a group.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Unpack

from anabranch.client.admin.operations import Operation, Sending, send
from anabranch.client.cuts import Cut, stream_cut
from anabranch.client.reading.places import Places
from anabranch.client.reading.times.instants import Instant
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.queries import PAGE_SIZE_MAX
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    DescribeReaderGroup,
    ListReaderGroups,
    ListSubscribers,
    ReaderGroupDescription,
    ReaderGroupList,
    ResetReaderGroup,
    SubscriberDescription,
    SubscriberList,
    UpdateSubscriberCut,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import StreamRef, parse_segment_name, scope_name, stream_ref
from anabranch.common.model.reader_group import (
    GroupStream,
    PositionCut,
    ReaderGroupConfig,
    SegmentPosition,
    group_ref,
)

GroupStart = Literal["head", "tail"]


class ReaderGroups:
    """The reader groups of a cluster; `client.reader_groups`.

    ::

        await client.reader_groups.create("plant/readers", streams=["plant/sensors"])
        async for name in client.reader_groups.list("plant"):
            print(name)
    """

    def __init__(self, control: ControlPlane, places: Places) -> None:
        self._control = control
        self._places = places

    # --- changing -------------------------------------------------------------------------

    async def create(
        self,
        group: str,
        config: ReaderGroupConfig | None = None,
        *,
        streams: Sequence[str] = (),
        start: GroupStart = "head",
        **how: Unpack[Sending],
    ) -> Operation:
        """Create a group with this configuration, or one that reads these streams.

        A stream without a configured start is read from its present head or tail. Raises
        ScopeNotFound, StreamNotFound, ReaderGroupExists, InvalidCut, InvalidPosition,
        InvalidRequest.

        ::

            await client.reader_groups.create("plant/readers", streams=["plant/sensors"])
        """
        ref = group_ref(group)
        if (config is None) == (not streams):
            raise InvalidRequest(
                "give a reader group either a configuration or streams", group=group
            )
        asked = config or ReaderGroupConfig(tuple(GroupStream(name) for name in streams))
        asked = await self._places.checked_config(asked)
        if start == "tail":
            asked = await self._from_tail(asked)
        elif start != "head":
            raise InvalidRequest(
                f"a reader group cannot start at {start!r}",
                remedy="start at head or tail, or give each stream a start",
            )
        return await send(
            self._control,
            lambda command_id: CreateReaderGroup(
                command_id=command_id, scope=ref.scope, group=ref.group, config=asked
            ),
            **how,
        )

    async def reset(
        self,
        group: str,
        config: ReaderGroupConfig | None = None,
        *,
        start: Mapping[str, tuple[int, int]] | None = None,
        to_time: Instant | None = None,
        expected_generation: int | None = None,
        **how: Unpack[Sending],
    ) -> Operation:
        """Read again from the starts of this configuration, or of the present one if none is given.

        The group's present readers raise ReaderGroupReset. `start` (full segment name → position)
        replaces the start of each stream that it names, for example with the cut of a checkpoint.
        `to_time` (a `datetime` with a zone, or Unix ms) replaces the start of every stream with its
        cut at that time, see `Streams.cut_at`; `ReaderGroup.preview_reset` shows the effect.
        `expected_generation`: refuse if the group has another one. Raises ReaderGroupNotFound,
        GenerationMismatch, StreamNotFound, InvalidCut, InvalidPosition.

        ::

            await client.reader_groups.reset("plant/readers")
        """
        ref = group_ref(group)
        incarnation = None
        if config is None:
            present = await self.describe(group)
            config, incarnation = present.config, present.incarnation
        if start is not None and to_time is not None:
            raise InvalidRequest("a reader group is reset to positions or to a time, not to both")
        asked = config if start is None else _starting_at(config, start)
        if to_time is not None:
            asked = await self._at_time(config, to_time)
        asked = await self._places.checked_config(asked)
        return await send(
            self._control,
            lambda command_id: ResetReaderGroup(
                command_id=command_id,
                scope=ref.scope,
                group=ref.group,
                incarnation=incarnation,
                expected_generation=expected_generation,
                config=asked,
            ),
            **how,
        )

    async def delete(self, group: str, **how: Unpack[Sending]) -> Operation:
        """Delete the group and its readers' shared state. Raises ReaderGroupNotFound.

        ::

            await client.reader_groups.delete("plant/readers")
        """
        ref = group_ref(group)
        return await send(
            self._control,
            lambda command_id: DeleteReaderGroup(
                command_id=command_id, scope=ref.scope, group=ref.group
            ),
            **how,
        )

    async def release(
        self, group: str, stream: str, cut: Cut | PositionCut, **how: Unpack[Sending]
    ) -> Operation:
        """Let the stream delete events before the cut; other subscribers may still hold them back.

        This is for groups whose retention is MANUAL; other groups release by themselves, or hold
        back no events. Raises ReaderGroupNotFound, StreamNotFound, SubscriberNotFound,
        GenerationMismatch (the group was reset meanwhile), InvalidCut, InvalidPosition, CutRefused
        (the cut lies before the last released one).

        ::

            await client.reader_groups.release("plant/readers", "plant/sensors", {0: 4096})
        """
        ref = stream_ref(stream)
        positions = await self._places.checked_cut(ref, _positions(ref, cut))
        generation = (await self.describe(group)).generation
        return await send(
            self._control,
            lambda command_id: UpdateSubscriberCut(
                command_id=command_id,
                scope=ref.scope,
                stream=ref.stream,
                subscriber=str(group_ref(group)),
                generation=generation,
                cut=positions,
            ),
            **how,
        )

    # --- asking ---------------------------------------------------------------------------

    async def describe(
        self, group: str, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> ReaderGroupDescription:
        """State, generation and configuration. Raises ReaderGroupNotFound, ScopeNotFound.

        ::

            print((await client.reader_groups.describe("plant/readers")).generation)
        """
        ref = group_ref(group)
        query = DescribeReaderGroup(scope=ref.scope, group=ref.group)
        return await self._control.query(
            "describe_reader_group", query, ReaderGroupDescription, timeout_s=timeout_s
        )

    async def list(self, scope: str) -> AsyncIterator[str]:
        """The names of the scope's groups in order, fetched page by page. Raises ScopeNotFound.

        ::

            names = [name async for name in client.reader_groups.list("plant")]
        """
        token = ""
        while True:
            page = await self.page(scope, token)
            for name in page.groups:
                yield name
            if not (token := page.next_page_token):
                return

    async def page(
        self, scope: str, page_token: str = "", page_size: int = PAGE_SIZE_MAX
    ) -> ReaderGroupList:
        """One page of the names, from the start or from an earlier page's token.

        ::

            first = await client.reader_groups.page("plant", page_size=10)
        """
        query = ListReaderGroups(
            scope=scope_name(scope), page_token=page_token, page_size=page_size
        )
        return await self._control.query(
            "list_reader_groups", query, ReaderGroupList, timeout_s=QUERY_TIMEOUT_S
        )

    async def subscribers(self, stream: str) -> tuple[SubscriberDescription, ...]:
        """The groups that hold back the stream's truncation. Raises StreamNotFound.

        ::

            groups = await client.reader_groups.subscribers("plant/sensors")
        """
        ref = stream_ref(stream)
        query = ListSubscribers(scope=ref.scope, stream=ref.stream)
        found = await self._control.query(
            "list_subscribers", query, SubscriberList, timeout_s=QUERY_TIMEOUT_S
        )
        return found.subscribers

    async def _at_time(self, config: ReaderGroupConfig, instant: Instant) -> ReaderGroupConfig:
        streams = [
            replace(each, start=await self._places.at_time(each.ref, instant))
            for each in config.streams
        ]
        return replace(config, streams=tuple(streams))

    async def _from_tail(self, config: ReaderGroupConfig) -> ReaderGroupConfig:
        """The streams' tails are independent, so they are looked up one after the other."""
        streams = []
        for each in config.streams:
            if not each.start:
                each = replace(each, start=await self._places.tail(each.ref))  # noqa: PLW2901
            streams.append(each)
        return replace(config, streams=tuple(streams))


def _starting_at(
    config: ReaderGroupConfig, start: Mapping[str, tuple[int, int]]
) -> ReaderGroupConfig:
    cuts: dict[str, list[SegmentPosition]] = {}
    for name, position in start.items():
        stream, segment = parse_segment_name(name)
        cuts.setdefault(str(stream), []).append(SegmentPosition(segment, *position))
    for stream_of_cut in cuts.keys() - {each.stream for each in config.streams}:
        raise InvalidRequest(
            "the start names a stream that the reader group does not read",
            stream=stream_of_cut,
        )
    streams = (
        replace(each, start=tuple(sorted(cuts.get(each.stream, each.start))))
        for each in config.streams
    )
    return replace(config, streams=tuple(streams))


def _positions(stream: StreamRef, cut: Cut | PositionCut) -> PositionCut:
    if isinstance(cut, tuple):
        return cut
    return tuple(SegmentPosition(at.segment_id, at.offset) for at in stream_cut(stream, cut))
