"""Callers that submit carried transactions: by any controller, again and again, and late.

A caller draws the id, routes its events by the stream as it saw it, and repeats the request until
it is answered. If the epoch has passed, it routes them anew under the same id. Sometimes another
copy goes out long after the answer, and sometimes the id is drawn too early or too late.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.common.contracts import transactions as asked
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.contracts.transactions import CarriedBlock, TransactionInfo
from anabranch.common.errors import EpochPassed, IdOutOfTime
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import CARRIED_AGE_MS_MAX, transaction_id
from anabranch.controller.domain.stream.state import Stream
from kit.carried_pieces import Told, block_of
from kit.transaction_clients import KEYS, TRIES_MAX, Client, Held

SUBMITTED = "carried transactions answered"
REROUTED = "carried transactions routed anew"
OUT_OF_TIME = "ids of carried transactions refused"
COPIES = "late copies of carried transactions"


class Carrier:
    """What one caller does with carried transactions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._world = client.world
        self._rng = client.rng

    async def submit(self, ref: StreamRef) -> None:
        """One transaction, from its events to what the caller learns of it."""
        stream = self._world.stream(stream_events(ref))
        if stream.status is not StreamState.ACTIVE or not stream.segments:
            return
        told = self._events()
        held = Held(ref, self._an_id(), stream.incarnation, 0)
        if self._rng.random() < 0.3:
            await self._world.clock.sleep(self._rng.random() * 3)
        query = self._routed(held, stream, told)
        answer: dict[str, Any] | None = None
        for _ in range(self._rng.choice((1, TRIES_MAX, TRIES_MAX))):
            answer = await self._client.ask_until("commit_events", query, 1)
            code = "" if answer is None or answer["ok"] else answer["error"]["code"]
            if code == EpochPassed.code:
                self._world.counts[REROUTED] += 1
                query = self._routed(held, self._world.stream(stream_events(ref)), told)
            elif code == IdOutOfTime.code:
                self._world.counts[OUT_OF_TIME] += 1
                break
            elif code == "error":
                self._world.wrong.append(f"a defect in submitting {held}: {answer}")
                break
            elif answer is not None:
                break
        await self._afterwards(held, query, answer)

    async def _afterwards(
        self, held: Held, query: asked.CommitEvents, answer: dict[str, Any] | None
    ) -> None:
        if answer is not None and answer["ok"]:
            self._heard(answer)
            self._client.past.append(held)
            self._world.counts[SUBMITTED] += 1
            if self._rng.random() < 0.5:
                await self._client.learn(held)
        while self._rng.random() < 0.5:
            self._world.counts[COPIES] += 1
            self._client.in_background(self._again(query))

    async def _again(self, query: asked.CommitEvents) -> None:
        """Another copy, at any time."""
        await self._world.clock.sleep(self._rng.random() * self._rng.choice((2, 30, 60)))
        answer = await self._client.ask("commit_events", query)
        if answer is not None and answer["ok"]:
            self._heard(answer)

    def _heard(self, answer: Mapping[str, Any]) -> None:
        info = TransactionInfo.model_validate(answer["transaction"])
        self._world.referee.transactions.told(info)

    def _events(self) -> Sequence[Told]:
        writer = f"{self._client.name}.{next(self._client.numbers)}"
        count = self._rng.randrange(1, 6)
        return [(writer, number, self._rng.choice(KEYS)) for number in range(count)]

    def _an_id(self) -> str:
        now_ms, draw = self._world.clock.now_ms(), self._rng.random()
        if draw < 0.05:
            now_ms -= CARRIED_AGE_MS_MAX + self._rng.randrange(-20_000, 20_000)
        elif draw < 0.1:
            now_ms += self._rng.randrange(20_000)
        return transaction_id(now_ms, self._rng.randbytes(10))

    def _routed(self, held: Held, stream: Stream, told: Sequence[Told]) -> asked.CommitEvents:
        shares: dict[int, list[Told]] = {}
        for event in told:
            found = next(s for s in stream.segments if s.keys.start <= event[2] < s.keys.end)
            shares.setdefault(found.segment_id, []).append(event)
        return asked.CommitEvents(
            scope=held.ref.scope,
            stream=held.ref.stream,
            transaction_id=held.transaction_id,
            incarnation=held.incarnation,
            stream_epoch=stream.stream_epoch,
            blocks=tuple(
                CarriedBlock(segment_id=segment, block=block_of(held.transaction_id, events))
                for segment, events in shares.items()
            ),
            wait_ms=self._rng.choice((0, 500, 5_000)),
        )
