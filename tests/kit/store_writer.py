"""An idempotent writer of the simulated store, which outlives the store's lives."""

from anabranch.common.wire.block import FLAG_LARGE, FLAG_PARTS_BEFORE, LargeReference
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendLarge,
    Failed,
)
from kit.history import History, HistoryViolation, make_event
from kit.rng import Random
from kit.store_world import Client


class WriterScript:
    """An idempotent writer on one segment: go-back-N by the store's own words.

    It survives lives: what was not acknowledged is sent again, byte for byte the same events,
    under numbers that the store's `AppendSetup` confirms.
    """

    def __init__(self, segment: str, writer_id: bytes, history: History, rng: Random) -> None:
        self.segment = segment
        self._history = history
        self.writer_id = writer_id
        self._rng = rng
        self.made: list[bytes] = []
        self.acknowledged = 0
        self.alive = False
        self.beginning = False
        self.client: Client | None = None
        self.frozen = False
        """Set when the store's process was stopped and another one took over."""
        self._session = 0
        self.sent = 0

    def replied(self, message: Appended | Failed) -> None:
        """Called by the client."""
        if message.session != self._session:
            return
        if isinstance(message, Failed):
            self.alive = False
            return
        if self.frozen and message.last_event_number > self.acknowledged:
            raise HistoryViolation(f"{self.segment}: a deposed owner acknowledged events")
        self._acknowledge(message.last_event_number)

    def _acknowledge(self, last: int) -> None:
        self._history.acknowledge(self.segment, self.writer_id, last)
        self.acknowledged = max(self.acknowledged, last)

    async def begin(self, client: Client) -> bool:
        """Set up a session; False if the segment takes no more."""
        self.client = client
        self._session = client.new_session()
        promised = self.acknowledged
        self.beginning = True
        try:
            reply = await client.setup(self, self._session)
        finally:
            self.beginning = False
        assert reply.last_event_number >= promised, "the store forgot a writer's events"
        self._acknowledge(reply.last_event_number)
        self.sent = reply.last_event_number
        self.alive = not reply.sealed
        return self.alive

    def send(self, client: Client, count: int) -> None:
        """Send the next `count` events as one block, resending before making new ones."""
        first = self.sent + 1
        while len(self.made) < self.sent + count:
            size = self._rng.randrange(1, 400)
            self.made.append(make_event(self.writer_id, len(self.made) + 1, size))
        events = self.made[self.sent : self.sent + count]
        block = encode_block(
            events, writer_id=self.writer_id, first_event_number=first, base_timestamp_ms=0
        )
        known = len(self._history.attempted.get((self.segment, self.writer_id), []))
        if first + count - 1 > known:
            self._history.attempt(self.segment, self.writer_id, first, events)
        self.sent += count
        append = Append(session=self._session, first_event_number=first, count=count)
        client.append(append, block)

    def send_large(self, client: Client, parts: str, length: int) -> None:
        """Send a reference to `length` bytes of parts as the next event, with these parts."""
        assert len(self.made) == self.sent
        first = self.sent + 1
        self.made.append(LargeReference(0, length, 1, 0).encode())
        events = self.made[self.sent :]
        block = encode_block(
            events, writer_id=self.writer_id, first_event_number=first, base_timestamp_ms=0,
            flags=FLAG_LARGE | FLAG_PARTS_BEFORE,
        )  # fmt: skip
        self._history.attempt(self.segment, self.writer_id, first, events)
        self._history.merging.add((parts, self.segment))
        client.life.world.uploads.add(parts)
        self.sent += 1
        append = AppendLarge(session=self._session, first_event_number=first, count=1, parts=parts)
        client.append(append, block)

    def resend_from(self, number: int) -> None:
        """Act like a client that lost an acknowledgement: start again at `number`."""
        self.sent = number - 1
