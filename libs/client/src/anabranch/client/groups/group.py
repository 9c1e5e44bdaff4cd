"""A reader group, as applications use it: its readers, checkpoints, cuts and status."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import TypeVar

from anabranch.client.groups import updates as u
from anabranch.client.groups.access import GroupAccess, GroupSynchronizer
from anabranch.client.groups.checkpoints import UNDER_WAY_MAX
from anabranch.client.groups.liveness import PeerWatch, is_still
from anabranch.client.groups.member import LISTEN_SHARE
from anabranch.client.groups.reader import GroupReader, GroupReaderSettings
from anabranch.client.groups.reading import OnCheckpoint
from anabranch.client.groups.reset_preview import ResetPreview
from anabranch.client.groups.state import Checkpoint, ReaderGroupState, stream_of
from anabranch.client.groups.status import Lag, ReaderGroupStatus
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.times.instants import Instant
from anabranch.client.reading.times.window import Place
from anabranch.client.serializers import Serializer
from anabranch.common.contracts.reader_groups import ReaderGroupDescription
from anabranch.common.errors import (
    CheckpointExists,
    CheckpointNotFound,
    InvalidName,
    ReaderNotFound,
    TooManyCheckpoints,
    Unavailable,
)
from anabranch.common.model.names import stream_name
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource

T = TypeVar("T", default=bytes)

CHECKPOINT_TIMEOUT_S = 30.0
WAIT_S = 2.0
LOG_TIMEOUT_S = 5.0
"""How long a status waits for the group's log."""


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """A complete checkpoint: a cut of every stream; all events before it are processed.

    `positions` is by full segment name. A group can be reset to them, and `client.reader` starts at
    the positions of one stream.

    ::

        checkpoint = await group.checkpoint("before-upgrade")
        async with client.reader("plant/sensors", checkpoint.of_stream("plant/sensors")) as reader:
            event = await anext(reader)
    """

    name: str
    positions: Mapping[str, Position]

    def of_stream(self, stream: str) -> dict[str, Position]:
        """The positions in one stream, ``scope/stream``.

        ::

            positions = checkpoint.of_stream("plant/sensors")
        """
        return {name: at for name, at in self.positions.items() if stream_of(name) == stream}


class GroupParts(Protocol):
    """The parts that a client makes for a group."""

    def new_reader(
        self,
        access: GroupAccess,
        reader_id: str,
        settings: GroupReaderSettings,
        *,
        on_checkpoint: OnCheckpoint | None,
        serializer: Serializer[T] | None,
    ) -> GroupReader[T]: ...

    async def status(self, group: str, state: ReaderGroupState) -> ReaderGroupStatus: ...

    async def preview(
        self, group: str, state: ReaderGroupState, to_time: Instant
    ) -> ResetPreview: ...

    async def checked(
        self, positions: Mapping[str, Position], segments: Iterable[str]
    ) -> dict[str, Position]: ...


class ReaderGroup:
    """A reader group; made by `Client.reader_group`. The group need not exist before its first use.

    Every method raises ReaderGroupNotFound and Unavailable.

    ::

        group = client.reader_group("plant/readers")
        async with group.reader("worker-1") as reader:
            async for event in reader:
                print(event.payload)
    """

    def __init__(self, access: GroupAccess, parts: GroupParts, clock: Clock, ids: IdSource) -> None:
        self._access = access
        self._parts = parts
        self._clock = clock
        self._ids = ids
        self._log: GroupSynchronizer | None = None

    @property
    def ref(self) -> GroupRef:
        return self._access.group

    def __str__(self) -> str:
        return str(self.ref)

    async def describe(self) -> ReaderGroupDescription:
        """Its configuration and generation, as the controller has them.

        ::

            description = await group.describe()
        """
        return await self._access.describe()

    def reader(
        self,
        reader_id: str | None = None,
        settings: GroupReaderSettings | None = None,
        *,
        on_checkpoint: OnCheckpoint | None = None,
        serializer: Serializer[T] | None = None,
    ) -> GroupReader[T]:
        """A reader; enter it with `async with`. Without a `reader_id`, the group draws one.

        The reader awaits `on_checkpoint` with a checkpoint's name between two events: all events
        before it are processed, and none after it. Automatic checkpoints call it too, with names
        ``automatic-<number>``. `serializer` deserializes the payloads. Raises InvalidName.

        ::

            async with group.reader("worker-1") as reader:
                async for event in reader:
                    print(event.payload)
        """
        name = self._ids.new_id() if reader_id is None else reader_id
        return self._parts.new_reader(
            self._access,
            _reader_id(name),
            settings or GroupReaderSettings(),
            on_checkpoint=on_checkpoint,
            serializer=serializer,
        )

    async def close(self) -> None:
        """Close the group's log; repeatable. Leaving the client does this too.

        ::

            await group.close()
        """
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    # --- how it stands --------------------------------------------------------------------

    async def status(self) -> ReaderGroupStatus:
        """The readers and their segments, and the unread events, bytes and seconds.

        If the group's log does not answer within five seconds, the status says only that.

        ::

            status = await group.status()
            print(status.lag.events, status.readers)
        """
        described = await self.describe()
        try:
            async with asyncio.timeout(LOG_TIMEOUT_S):
                log = await self._fetched()
        except (TimeoutError, Unavailable):
            return ReaderGroupStatus(
                str(self.ref), described.generation, {}, (), Lag(), log_answers=False
            )
        return await self._parts.status(str(self.ref), log.present)

    async def readers(self) -> dict[str, tuple[str, ...]]:
        """The readers that are online, with the segments of each. It asks only the store of the
        group's own state.

        ::

            for reader_id, segments in (await group.readers()).items():
                print(reader_id, segments)
        """
        state = (await self._fetched()).present
        return {
            reader_id: tuple(sorted(each.name for each in state.owned_by(reader_id)))
            for reader_id in sorted(state.readers)
        }

    async def positions(self) -> dict[str, Position]:
        """A cut of all streams: every event before it is processed, and the progress is saved.

        ::

            saved = await group.positions()
        """
        return (await self._fetched()).present.positions()

    async def places(self, stream: str) -> list[Place]:
        """The same cut of one stream, ``scope/stream``, with the keys of each segment.

        ::

            saved = await group.places("plant/sensors")
        """
        return (await self._fetched()).present.places(stream)

    async def was_read(self) -> bool:
        """Whether a reader has ever had a segment of the group, in this life of its name.

        ::

            assert not await group.was_read()
        """
        return (await self._fetched()).present.newest_ownership > 0

    async def preview_reset(self, to_time: Instant) -> ResetPreview:
        """The effect of `reader_groups.reset(group, to_time=…)`: the bytes that the group would
        read again, and those that it would leave out. Changes nothing.

        Raises StreamNotFound, InvalidRequest (a time without a zone), CorruptBlock.

        ::

            preview = await group.preview_reset(1_763_640_000_000)
            print([(one.stream, one.again_bytes) for one in preview.streams])
        """
        return await self._parts.preview(str(self.ref), (await self._fetched()).present, to_time)

    # --- checkpoints ----------------------------------------------------------------------

    async def checkpoint(
        self, name: str | None = None, *, timeout_s: float = CHECKPOINT_TIMEOUT_S
    ) -> GroupCheckpoint:
        """Make a checkpoint: every online reader reports its place when it next asks for events.

        A checkpoint that is not complete in time goes on: `wait_for_checkpoint` waits again. Raises
        CheckpointExists, TooManyCheckpoints, Unavailable (fields: waiting).

        ::

            checkpoint = await group.checkpoint("before-upgrade")
        """
        name = name or self._ids.new_id()
        await self.begin_checkpoint(name)
        return await self.wait_for_checkpoint(name, timeout_s=timeout_s)

    async def begin_checkpoint(self, name: str) -> None:
        """Begin a checkpoint without waiting for it. Raises CheckpointExists, TooManyCheckpoints.

        ::

            await group.begin_checkpoint("before-upgrade")
        """
        await self._begin(name, "user")

    async def wait_for_checkpoint(
        self, name: str, *, timeout_s: float = CHECKPOINT_TIMEOUT_S
    ) -> GroupCheckpoint:
        """Wait until it is complete. A reader that is silent for a lease meanwhile counts as lost.

        Raises CheckpointNotFound (never begun, cancelled, or long ago), Unavailable (fields:
        waiting).

        ::

            checkpoint = await group.wait_for_checkpoint("before-upgrade", timeout_s=60)
        """
        log = await self._fetched()
        deadline_s = self._clock.monotonic() + timeout_s
        peers = PeerWatch(log.present.config.lease_ms / 1000)
        while True:
            await _remove_lost(log, peers, self._clock.monotonic())
            found = log.present.checkpoint(name)
            if found is None:
                raise CheckpointNotFound(
                    "there is no such checkpoint", group=str(self.ref), name=name
                )
            if found.is_complete:
                return GroupCheckpoint(name, dict(found.positions))
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                raise _not_reached(found)
            wait_s = log.present.config.lease_ms / 1000 * LISTEN_SHARE
            await log.synchronizer.fetch(wait_s=min(left_s, wait_s))

    async def cancel_checkpoints(self) -> None:
        """End all pending checkpoints without a result.

        ::

            await group.cancel_checkpoints()
        """
        log = await self._fetched()
        await _settled(log.synchronizer, [u.CheckpointsCancelled()])

    async def stream_cuts(
        self, *, timeout_s: float = CHECKPOINT_TIMEOUT_S
    ) -> dict[str, dict[str, Position]]:
        """Stream → its cut where all readers stand when each of them next asks for events.

        Does not call the readers' `on_checkpoint`. Raises Unavailable (fields: waiting).

        ::

            cuts = await group.stream_cuts()
            positions = cuts["plant/sensors"]
        """
        name = f"cut-{self._ids.new_id()}"
        await self._begin(name, "silent")
        found = await self.wait_for_checkpoint(name, timeout_s=timeout_s)
        streams = {stream_of(segment) for segment in found.positions}
        return {stream: found.of_stream(stream) for stream in sorted(streams)}

    async def _begin(self, name: str, kind: u.CheckpointKind) -> None:
        log = await self._fetched()

        def decide(state: ReaderGroupState) -> Sequence[u.AnyUpdate]:
            under_way = [each for each in state.checkpoints if not each.is_complete]
            if state.checkpoint(name) is not None:
                raise CheckpointExists(
                    "a checkpoint of this name already exists", group=str(self.ref), name=name
                )
            limit = state.config.checkpoints_max
            if kind == "user" and _count(under_way) >= limit:
                raise TooManyCheckpoints(
                    "too many checkpoints are pending", group=str(self.ref), limit=limit
                )
            if len(under_way) >= UNDER_WAY_MAX:
                raise TooManyCheckpoints(
                    "too many checkpoints and cuts are pending",
                    group=str(self.ref),
                    limit=UNDER_WAY_MAX,
                )
            return (u.CheckpointBegun(name=name, checkpoint=kind),)

        await log.synchronizer.update(decide)

    # --- readers --------------------------------------------------------------------------

    async def reader_offline(
        self, reader_id: str, positions: Mapping[str, Position] | None = None
    ) -> None:
        """Take the reader's segments away at once, so that other readers continue them.

        They continue at `positions`, the end of the events that it is known to have processed, or
        else at its saved positions. Raises ReaderNotFound, InvalidPosition.

        ::

            await group.reader_offline("worker-1")
        """
        log = await self._fetched()
        places = await self._parts.checked(positions or {}, log.present.segments)
        update = u.PutOffline(reader_id=reader_id, positions=places)

        def decide(state: ReaderGroupState) -> Sequence[u.AnyUpdate]:
            if reader_id not in state.readers:
                raise ReaderNotFound(
                    "no reader with this id is online", group=str(self.ref), reader=reader_id
                )
            return (update,)

        await log.synchronizer.update(decide)

    # --- behind the scenes ----------------------------------------------------------------

    async def _fetched(self) -> "_Log":
        """The current state, of the generation that the controller knows."""
        if (log := self._log) is not None:
            await self._access.renew(log, await self._access.describe())
            return _Log(log)
        opened = await self._access.open_log()
        if (log := self._log) is not None:  # a concurrent call was faster
            await opened.close()
            return _Log(log)
        self._log = opened
        return _Log(opened)


@dataclass(frozen=True, slots=True)
class _Log:
    synchronizer: GroupSynchronizer

    @property
    def present(self) -> ReaderGroupState:
        assert self.synchronizer.state is not None
        return self.synchronizer.state


async def _remove_lost(log: _Log, peers: PeerWatch, now_s: float) -> None:
    """Remove lost readers, so that no checkpoint waits for them, even if no reader is left."""
    peers.caught_up(log.present.readers, now_s)
    if lost := list(peers.silent(now_s)):
        await log.synchronizer.update(
            lambda state: [each for each in lost if is_still(state, each)]
        )


async def _settled(log: GroupSynchronizer, updates: Sequence[u.AnyUpdate]) -> None:
    behind = await log.append(updates)
    while log.revision < behind:
        await log.fetch(wait_s=WAIT_S)


def _count(under_way: Sequence[Checkpoint]) -> int:
    return sum(each.kind == "user" for each in under_way)


def _not_reached(checkpoint: Checkpoint) -> Unavailable:
    waiting = ", ".join(sorted(checkpoint.waiting))
    return Unavailable(
        "some readers have not reached the checkpoint",
        remedy="wait again; readers reach the checkpoint when they ask for events",
        name=checkpoint.name, waiting=waiting,
    )  # fmt: skip


def _reader_id(text: str) -> str:
    try:
        return stream_name(text)
    except InvalidName as error:
        raise InvalidName(
            f"{text[:80]!r} is not a reader id", remedy=error.own_remedy, reader=text[:80]
        ) from error
