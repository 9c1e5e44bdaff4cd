"""Opens a container's log in its stream: reads it, fences older owners, and finds the log's end.

    describe ──► read all, judge ──► publish the opening, expecting the last place that was read
       ▲                                     │
       └──────────── refused ────────────────┤
                                             ▼
                     read up to the own opening, which is the log's end

After the opening is stored, no message of an older epoch counts any more. All that counts lies
before it, so the reader needs to know nothing about messages in flight.

An older owner that still writes could make every attempt come too late. After a few refusals the
opening expects no place. This is as safe, because the messages that slip in between are read and
judged in any case; the condition only spares the stream late openings that are void.

If no answer to the opening comes, the opener searches the stream for it, and gives up after some
time. It never sends it again: the next attempt has a higher epoch, under which a late one is void.

An older owner may purge the stream during a read, which could make the chain look broken. If a read
meets a break, or a contradiction, it counts only if the lowest messages that it read still exist.
"""

import asyncio
from dataclasses import dataclass

from anabranch.common.errors import CorruptJournal, Deposed, LogNotHere, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.domain.log.stream.messages import (
    Kind,
    Link,
    Opening,
    decode_message,
    decode_opening,
    encode_opening,
)
from anabranch.segstore.domain.log.stream.resolve import Resolution
from anabranch.segstore.ports_stream import (
    PublishRefused,
    PublishUnknown,
    RemoteStream,
    StreamFacts,
)

ANSWER_S = 5.0
SEARCH_S = 10.0
"""How long the opener searches for an opening without an answer."""
CONDITIONAL_MAX = 3
"""Attempts with a condition; the next one has none."""
ATTEMPTS_MAX = 20
"""Refused openings, or reads that a purge disturbed, before the open gives up."""
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """The log up to the own opening: `resolution` ends there, and `link` is the opening's."""

    resolution: Resolution
    link: Link


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The last message that an earlier view of this process knew to be durable."""

    container_epoch: int
    number: int


class StreamOpening:
    """One opening of a container's log under one container epoch.

    `confirmed`: what the stream must hold unless a later epoch was opened since.
    """

    def __init__(
        self,
        stream: RemoteStream,
        clock: Clock,
        *,
        container: int,
        container_epoch: int,
        log_id: str,
        seed: int,
        nonce: bytes,
        confirmed: Confirmed | None = None,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._container = container
        self._epoch = container_epoch
        self._log_id = log_id
        self._seed = seed
        self._nonce = nonce
        self._confirmed = confirmed

    async def run(self, facts: StreamFacts) -> OpenedStream:
        """Open the log. Raises Deposed, LogNotHere, CorruptJournal, FormatTooNew, Unavailable."""
        for attempt in range(CONDITIONAL_MAX + 1):
            found = await self._read(facts.last_place)
            self._check(found, facts)
            opening = Opening(found.end, facts.created, self._nonce)
            data, _ = encode_opening(self._container, self._epoch, opening, self._seed)
            try:
                place = await self._publish(
                    data, facts.last_place, conditional=attempt < CONDITIONAL_MAX
                )
            except PublishRefused:
                described = await self._stream.describe()
                if described is None:
                    raise self._not_here() from None
                facts = described
                continue
            if place == facts.last_place + 1:
                self._add(found, place, data)
            else:
                found = await self._read(place)
            return self._opened(found, place)
        raise Unavailable("the stream refused the opening of the log", log_id=self._log_id)

    def _check(self, found: Resolution, facts: StreamFacts) -> None:
        if found.empty:
            raise self._not_here()
        if found.created != facts.created:
            raise CorruptJournal(
                "the log's stream was deleted and created again", log_id=self._log_id
            )
        if self._epoch <= found.highest_epoch:
            raise Deposed(
                "the container was already opened under this epoch or a higher one",
                container=self._container, container_epoch=self._epoch,
                highest=found.highest_epoch,
            )  # fmt: skip
        self._check_confirmed(found.end)

    def _check_confirmed(self, end: Link) -> None:
        """Raises Unavailable if the stream lacks what it confirmed to this process."""
        known = self._confirmed
        if known is None or end.container_epoch > known.container_epoch:
            return
        if (end.container_epoch, end.number) < (known.container_epoch, known.number):
            raise Unavailable(
                "the log's stream lacks messages that it confirmed before",
                remedy="wait for the stream's leader; if no server has them, the last acknowledged "
                "events are lost: see docs/operations.md",
                log_id=self._log_id, number=known.number, found=end.number,
            )  # fmt: skip

    def _not_here(self) -> LogNotHere:
        return LogNotHere(
            "the container's log has no stream", container=self._container, log_id=self._log_id
        )

    async def _publish(self, data: bytes, last: int, *, conditional: bool) -> int:
        """The place of the stored opening. Raises PublishRefused, Unavailable."""
        sent = self._stream.publish(Kind.OPENING, data, last if conditional else None)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await sent
        except (TimeoutError, PublishUnknown):
            return await self._search(data, last)

    async def _search(self, data: bytes, after: int) -> int:
        deadline = self._clock.monotonic() + SEARCH_S
        while True:
            facts = await self._stream.describe()
            if facts is not None and facts.last_place > after:
                async for place, found in self._stream.read(after + 1, facts.last_place):
                    if found == data:
                        return place
            if self._clock.monotonic() >= deadline:
                raise Unavailable("the opening of the log was not confirmed", log_id=self._log_id)
            await self._clock.sleep(PAUSE_S)

    def _opened(self, found: Resolution, place: int) -> OpenedStream:
        if found.opening_place == place:
            return OpenedStream(found, found.end)
        raise Deposed(
            "another owner opened the container at the same time",
            container=self._container, container_epoch=self._epoch, highest=found.highest_epoch,
        )  # fmt: skip

    async def _read(self, last: int) -> Resolution:
        """Judge all messages up to `last`. Raises CorruptJournal, FormatTooNew, Unavailable."""
        for _ in range(ATTEMPTS_MAX):
            found = Resolution(self._container)
            damage: CorruptJournal | None = None
            reached = 0
            try:
                async for place, data in self._stream.read(1, last):
                    self._add(found, place, data)
                    reached = place
            except CorruptJournal as error:
                damage = error
            whole = reached == last or damage is not None
            if whole and (not (found.broken or damage) or await self._undisturbed(found)):
                if damage is not None:
                    raise damage
                return found
            await self._clock.sleep(PAUSE_S)
        raise Unavailable("the log's stream could not be read to its end", log_id=self._log_id)

    def _add(self, found: Resolution, place: int, data: bytes) -> None:
        message, payload = decode_message(data, self._seed, place)
        opening = decode_opening(payload) if message.kind is Kind.OPENING else None
        found.add(place, message, opening)

    async def _undisturbed(self, found: Resolution) -> bool:
        """Whether no purge removed messages during the read."""
        for place in (found.first_opening_place, found.first_frame_place):
            if place and await self._stream.get(place) is None:
                return False
        return True
