"""The readers of groups that the gateway holds: one per client that streams, at most so many.

A client that comes back within the grace finds its reader, with its segments and with what it has
not acknowledged; one that does not, loses it to the group's other readers. Ends readers: `serve`,
when their grace is over; a new client, when there is no room but the place of one that is parked;
`end_reader`; and the gateway's own end.
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
from anabranch.gateway.events.delivery import Delivery, Token
from anabranch.gateway.events.held_reader import Feed, FeedTimes, HeldReader, ReaderOfGroup

SWEEP_S = 0.5
PARK_S = 2.0
"""How long a client that comes back is let wait for its last connection to be seen to be gone."""


@dataclass(frozen=True, slots=True)
class HeldReaderLimits:
    """`unacknowledged_…`: of one reader. `grace_s`: how long one without a connection stays."""

    readers_max: int
    unacknowledged_events_max: int
    unacknowledged_size_bytes_max: int
    grace_s: float
    open_timeout_s: float
    times: FeedTimes


class HeldReaders:
    """See the module. `open_reader` makes a reader of (group, id), not yet entered."""

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
        """How many are connected, and how many parked."""
        parked = sum(held.feed is None for held in self._held.values())
        return Counter({("connected",): len(self._held) - parked, ("parked",): parked})

    async def connect(
        self, group: str, reader_id: str | None, token: Token | None
    ) -> tuple[Feed, bool]:
        """The feed of a new connection, and whether its reader was here before.

        A token of this reader's session acknowledges everything up to it. Raises ReaderInUse,
        InvalidRequest, Overloaded, Unavailable, and what opening a reader raises.
        """
        held = self._of_session(group, reader_id, token)
        if held is None and reader_id is not None:
            held = await self._parked(group, reader_id)
        is_known = held is not None
        if held is None:
            held = await self._opened(group, reader_id or self._ids.new_id())
        return held.connect(self._limits.times, self._stopping), is_known

    def acknowledge(self, group: str, reader_id: str, token: Token) -> None:
        """Everything up to the token is processed; saved within a second. Repeatable.

        Raises ReaderNotFound when this gateway does not have the reader (any more).
        """
        held = self._held.get((group, reader_id))
        if held is None or held.session != token.session:
            raise ReaderNotFound(
                "this gateway does not hold the reader of this event",
                remedy="stream again; unacknowledged events come again",
                group=group, reader=reader_id,
            )  # fmt: skip
        held.acknowledge(token.number)

    async def end_reader(self, group: str, reader_id: str, token: Token | None) -> bool:
        """The reader leaves its group at once → whether it was here."""
        held = self._held.get((group, reader_id))
        if held is None:
            return False
        if token is not None:
            self.acknowledge(group, reader_id, token)
        await self.drop(held)
        return True

    async def drop(self, held: HeldReader) -> None:
        """The reader leaves its group; best effort, else its lease ends it. Repeatable."""
        held.feed = None
        key = (held.group, held.reader_id)
        if self._held.get(key) is held:
            del self._held[key]
        with suppress(AnabranchError):
            await held.reader.close()

    async def serve(self) -> None:
        """End what is parked too long, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_S)
            oldest_s = self._clock.monotonic() - self._limits.grace_s
            for held in [h for h in self._held.values() if h.feed is None]:
                if held.parked_s <= oldest_s:
                    await self.drop(held)

    async def end(self, patience_s: float) -> None:
        """All readers leave, as far as there is time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                held = list(self._held.values())
                await for_each(held, len(held), self.drop)

    def _of_session(
        self, group: str, reader_id: str | None, token: Token | None
    ) -> HeldReader | None:
        """The reader that gave the token, once everything up to it is acknowledged."""
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
        """The reader of this id, if it is here. Raises ReaderInUse while it has a connection, which
        may have to be seen to be gone first."""
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
        """End the reader that is parked for longest if all places are taken. Raises Overloaded."""
        if len(self._held) + self._opening < self._limits.readers_max:
            return
        parked = [held for held in self._held.values() if held.feed is None]
        if not parked:
            raise Overloaded("too many readers of reader groups", limit=self._limits.readers_max)
        await self.drop(min(parked, key=lambda held: held.parked_s))
