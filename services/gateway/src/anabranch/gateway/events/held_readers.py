"""The group readers that the gateway holds: one per streaming client, up to a maximum.

A client that connects again within the grace time finds its reader, with its segments and
unacknowledged events. Otherwise the group's other readers take them over. A reader ends in one of
four ways: `serve` ends it after its grace time; a new client takes the place of a parked reader if
there is no other room; `end_reader`; and the end of the gateway.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    Overloaded,
    ReaderInUse,
    ReaderNotFound,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.workflow.bounded import for_each
from anabranch.gateway.events.delivery import REQUEST_AGAIN, Delivery, Token
from anabranch.gateway.events.held_reader import Feed, FeedTimes, HeldReader, ReaderOfGroup

SWEEP_S = 0.5
PARK_S = 2.0
"""How long a new connection waits until the gateway notices that the previous one is gone."""


@dataclass(frozen=True, slots=True)
class HeldReaderLimits:
    """`unacknowledged_…`: per reader. `grace_s`: how long a reader without a connection stays."""

    readers_max: int
    unacknowledged_events_max: int
    unacknowledged_size_bytes_max: int
    grace_s: float
    open_timeout_s: float
    times: FeedTimes


class HeldReaders:
    """The held readers. `open_reader` creates a reader from (group, id), not yet entered."""

    def __init__(
        self,
        open_reader: Callable[[str, str], ReaderOfGroup],
        *,
        clock: Clock,
        ids: IdSource,
        limits: HeldReaderLimits,
        stopping: Callable[[], bool],
    ) -> None:
        self._open_reader = open_reader
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._stopping = stopping
        self._held: dict[tuple[str, str], HeldReader] = {}
        self._opening = 0

    def __len__(self) -> int:
        return len(self._held)

    def by_state(self) -> Counter[tuple[str, ...]]:
        """The number of connected and of parked readers."""
        parked = sum(held.feed is None for held in self._held.values())
        return Counter({("connected",): len(self._held) - parked, ("parked",): parked})

    async def connect(
        self, group: str, reader_id: str | None, token: Token | None
    ) -> tuple[Feed, bool]:
        """The feed of a new connection, and whether this gateway already held its reader.

        A token of this reader's session acknowledges every event up to it. Raises ReaderInUse,
        InvalidRequest, Overloaded, Unavailable, and the errors of opening a reader.
        """
        held = self._of_session(group, reader_id, token)
        if held is None and reader_id is not None:
            held = await self._parked(group, reader_id)
        is_known = held is not None
        if held is None:
            held = await self._opened(group, reader_id or self._ids.new_id())
        return held.connect(self._limits.times, self._stopping), is_known

    def acknowledge(self, group: str, reader_id: str, token: Token) -> None:
        """Note that every event up to the token is processed; saved within a second. Idempotent.

        Raises ReaderNotFound if this gateway does not hold the reader.
        """
        held = self._held.get((group, reader_id))
        if held is None or held.session != token.session:
            raise ReaderNotFound(
                "this gateway does not hold the reader of this event",
                remedy=REQUEST_AGAIN,
                group=group, reader=reader_id,
            )  # fmt: skip
        held.acknowledge(token.number)

    async def end_reader(self, group: str, reader_id: str, token: Token | None) -> bool:
        """Make the reader leave its group at once; returns whether this gateway held it."""
        held = self._held.get((group, reader_id))
        if held is None:
            return False
        if token is not None:
            self.acknowledge(group, reader_id, token)
        await self.drop(held)
        return True

    async def drop(self, held: HeldReader) -> None:
        """Make the reader leave its group; if this fails, its lease expires. Idempotent."""
        held.feed = None
        key = (held.group, held.reader_id)
        if self._held.get(key) is held:
            del self._held[key]
        with suppress(AnabranchError):
            await held.reader.close()

    async def serve(self) -> None:
        """End readers that are parked too long, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_S)
            oldest_s = self._clock.monotonic() - self._limits.grace_s
            for held in [h for h in self._held.values() if h.feed is None]:
                if held.parked_s <= oldest_s:
                    await self.drop(held)

    async def end(self, patience_s: float) -> None:
        """Make all readers leave, within the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                held = list(self._held.values())
                await for_each(held, len(held), self.drop)

    def _of_session(
        self, group: str, reader_id: str | None, token: Token | None
    ) -> HeldReader | None:
        """The reader of the token's session, after acknowledging every event up to the token."""
        if token is None:
            return None
        for held in self._held.values():
            if held.session == token.session:
                if held.group != group or reader_id not in (None, held.reader_id):
                    raise InvalidRequest(
                        "the token belongs to another reader", group=group, reader=reader_id
                    )
                held.acknowledge(token.number)
                return held
        return None

    async def _parked(self, group: str, reader_id: str) -> HeldReader | None:
        """The reader with this id, if it is held.

        If it has a connection, waits until that one ends. Raises ReaderInUse if it does not end.
        """
        held = self._held.get((group, reader_id))
        if held is not None and held.feed is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PARK_S):
                    await held.parked.wait()
            held = self._held.get((group, reader_id))
        if held is not None and held.feed is not None:
            raise ReaderInUse(
                "a reader with this id is connected",
                remedy="send the id of its last event to take its place, or use another id",
                group=group, reader=reader_id,
            )  # fmt: skip
        return held

    async def _opened(self, group: str, reader_id: str) -> HeldReader:
        await self._make_room()
        self._opening += 1
        try:
            reader = self._open_reader(group, reader_id)
            try:
                async with asyncio.timeout(self._limits.open_timeout_s):
                    await reader.__aenter__()
            except TimeoutError as error:
                raise Unavailable(
                    "the reader could not join its group in time", group=group, reader=reader_id
                ) from error
            limits = self._limits
            delivery = Delivery(
                self._ids.new_bytes().hex(),
                limits.unacknowledged_events_max,
                limits.unacknowledged_size_bytes_max,
            )
            held = HeldReader(group, reader, delivery, self._clock)
            self._held[group, reader_id] = held
            return held
        finally:
            self._opening -= 1

    async def _make_room(self) -> None:
        """If all places are taken, end the reader parked for longest. Raises Overloaded."""
        if len(self._held) + self._opening < self._limits.readers_max:
            return
        parked = [held for held in self._held.values() if held.feed is None]
        if not parked:
            raise Overloaded("too many readers of reader groups", limit=self._limits.readers_max)
        await self.drop(min(parked, key=lambda held: held.parked_s))
