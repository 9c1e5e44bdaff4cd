"""Clients of table segments that lose answers, repeat themselves, and ask for much at once.

A client numbers its requests on each table and remembers those that were not answered, over all
lives of the store. It sends them again, the same, sometimes while an earlier copy is under way or
long after it was answered. Its conditions come from what it read, or from nowhere.
"""

import asyncio
from collections.abc import Coroutine, Sequence

from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import ScanEntries, TableUpdated
from anabranch.common.wire.table import encode_update
from anabranch.common.wire.table_columns import ABSENT, ANY, decode_refusals
from kit.rng import Random
from kit.store_world import Life
from kit.table_log import Sent
from kit.table_world import KEYS, REMEMBERED, TableCaller, TableWorld

IN_FLIGHT_MAX = REMEMBERED // 2


class TableClient:
    """One client, with an id of its own."""

    def __init__(self, world: TableWorld, client_id: bytes, rng: Random, ttl_ms: int) -> None:
        self.client_id = client_id
        self._referee = world.referee
        self._rng = rng
        self._ttl_ms = ttl_ms
        self._last: dict[str, int] = {}
        self._unanswered: dict[str, list[Sent]] = {}
        self._versions: dict[tuple[str, bytes], tuple[int, int]] = {}
        """What the client believes: (segment's number, version)."""

    # --- updates ------------------------------------------------------------------------------

    async def update(self, life: Life, caller: TableCaller, segment: str) -> None:
        """Send a new request, or one that was not answered, perhaps more than once."""
        rng, waiting = self._rng, self._unanswered.setdefault(segment, [])
        if waiting and (len(waiting) >= IN_FLIGHT_MAX or rng.random() < 0.3):
            sent = rng.choice(waiting)
        else:
            sent = self._new(segment)
            waiting.append(sent)
        answer = self._send(caller, sent)
        if rng.random() < 0.15:
            life.spawn(self._late(caller, sent))
        if rng.random() < 0.2:
            self._referee.counts["answers of tables that were lost"] += 1
            life.spawn(answer)
        else:
            await answer
            self._heard(sent)

    async def _late(self, caller: TableCaller, sent: Sent) -> None:
        """A copy of the request arrives at some later time."""
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 1.0, 20.0)))
        self._referee.counts["late copies of updates"] += 1
        await self._send(caller, sent)

    def _send(self, caller: TableCaller, sent: Sent) -> Coroutine[None, None, None]:
        """Send the request, at once, so that new ones arrive in the order of their numbers; then
        let the referee hear the answer."""
        sent.attempts += 1
        try:
            answer = caller.update(sent)
        except AnabranchError as error:
            return self._refused(sent, error)
        return self._answered(sent, answer)

    async def _refused(self, sent: Sent, error: AnabranchError) -> None:
        self._referee.failed(sent, error)

    async def _answered(self, sent: Sent, answer: Coroutine[None, None, TableUpdated]) -> None:
        try:
            told = await answer
        except AnabranchError as error:
            self._referee.failed(sent, error)
            return
        self._referee.answered(sent, told)

    def _heard(self, sent: Sent) -> None:
        """The answer was not lost; after a refusal as such, the client often tries again."""
        waiting = self._unanswered[sent.segment]
        if sent.told is None and not sent.refused_for_good and self._rng.random() < 0.9:
            return
        if sent in waiting:
            waiting.remove(sent)
        if sent.told is not None:
            self._learn(sent)

    def _learn(self, sent: Sent) -> None:
        assert sent.told is not None
        for refusal in decode_refusals(sent.told.refused):
            name = (sent.segment, sent.keys[refusal.entry])
            self._versions[name] = (sent.told.segment_number, refusal.version)

    def _new(self, segment: str) -> Sent:
        rng = self._rng
        number = self._last[segment] = self._last.get(segment, 0) + 1
        count = rng.choice((1, 1, 1, 2, 3, 6))
        keys = [rng.choice(KEYS) for _ in range(count)]
        values = [None if rng.random() < 0.25 else self._value(number, at) for at in range(count)]
        ttl_ms = self._ttl_ms if self._ttl_ms and rng.random() < 0.7 else 0
        conditions = self._conditions(segment, keys) if rng.random() < 0.7 else ()
        units = self._units(count)
        known = (self._versions.get((segment, key), (0, 0)) for key in keys)
        payload = encode_update(
            keys, values, client_id=self.client_id, request_number=number, ttl_ms=ttl_ms
        )
        sent = Sent(
            self.client_id, number, segment, keys, values, conditions or [ANY] * count, units,
            ttl_ms, max(number for number, _ in known), payload,
        )  # fmt: skip
        self._referee.sent[segment, self.client_id, number] = sent
        return sent

    def _value(self, number: int, at: int) -> bytes:
        name = b"%s %d.%d " % (self.client_id.hex()[:4].encode(), number, at)
        return name + b"." * self._rng.choice((0, 10, 100))

    def _conditions(self, segment: str, keys: Sequence[bytes]) -> list[int]:
        return [self._condition(segment, key) for key in keys]

    def _condition(self, segment: str, key: bytes) -> int:
        draw = self._rng.random()
        if draw < 0.3:
            return ANY
        known = self._versions.get((segment, key))
        if known is None or draw < 0.45:
            return ABSENT
        return self._rng.randrange(3000) if draw < 0.5 else known[1]

    def _units(self, count: int) -> list[int]:
        if self._rng.random() < 0.5:
            return [count]
        first = self._rng.randrange(1, count + 1)
        return [size for size in (first, count - first) if size]

    # --- reads --------------------------------------------------------------------------------

    async def get(self, life: Life, caller: TableCaller, segment: str) -> None:
        keys = self._rng.sample(KEYS, self._rng.randrange(1, len(KEYS) + 1))
        reading = self._referee.begin(segment, life.clock.now_ms())
        reply, rows = await caller.get(segment, keys)
        self._referee.note_time(life.clock.now_ms())
        self._referee.got(reading, keys, reply, rows)
        for key, row in zip(keys, rows, strict=False):
            self._versions[segment, key] = (reply.segment_number, row.version)

    async def scan(self, life: Life, caller: TableCaller, segment: str) -> None:
        rng = self._rng
        bounds = (
            rng.choice((b"", *KEYS)) if rng.random() < 0.5 else b"",
            rng.choice(KEYS) if rng.random() < 0.3 else b"",
        )
        request = ScanEntries(
            segment=segment, start=bounds[0], end=bounds[1],
            count_max=rng.choice((1, 2, 100)), size_max=rng.choice((1, 200, 1 << 20)),
            values=rng.random() < 0.8,
        )  # fmt: skip
        reading = self._referee.begin(segment, life.clock.now_ms(), values=request.values)
        reply, rows = await caller.scan(request)
        self._referee.note_time(life.clock.now_ms())
        self._referee.scanned(reading, bounds, reply, rows)

    async def describe(self, life: Life, caller: TableCaller, segment: str) -> None:
        reading = self._referee.begin(segment, life.clock.now_ms())
        self._referee.described(reading, await caller.describe(segment))
