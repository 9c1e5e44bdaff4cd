"""What callers of transactions do: ask any controller, append to segments, tell the referee.

What they ask may be lost on the way, and so may the answer; then they ask again, elsewhere.
"""

import asyncio
import itertools
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import nats.errors

from anabranch.common.contracts import transactions as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.transactions import (
    CommittedPart,
    TransactionBegun,
    TransactionInfo,
)
from anabranch.common.errors import (
    Retry,
    ScopeNotFound,
    StreamNotFound,
    TransactionEnded,
    TransactionNotFound,
    Unknown,
    from_body,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.handlers.registry import answer_query
from kit.control_world import World
from kit.rng import Random
from kit.sim_controller import SimController
from kit.sim_segments import Appended, Piece
from kit.simlink import Link
from kit.transaction_referee import COMMIT

ANSWER_S = 12.0
APPEND_S = 3.0
TRIES_MAX = 4
OUTCOME_TRIES_MAX = 12
KEYS = tuple((number + 0.5) / 6 for number in range(6))
BEGUN = "transactions begun"
PINGED = "pings answered"


@dataclass(slots=True)
class Held:
    """A transaction as its caller knows it.

    `lengths`: by part and parent, what was acknowledged."""

    ref: StreamRef
    transaction_id: str
    incarnation: int
    lease_ms: int
    segments: tuple[Any, ...] = ()
    lengths: dict[str, dict[int, int]] = field(default_factory=dict)


class Client:
    """What both kinds of callers do: ask controllers, and append to segments."""

    def __init__(
        self, world: World, name: str, group: asyncio.TaskGroup, refs: Sequence[StreamRef]
    ):
        self.world = world
        self.name = name
        self.refs = refs
        self.rng: Random = world.rng
        self.link = Link(world.rng, world.counts)
        self.numbers = itertools.count()
        self.past: list[Held] = []
        """Every transaction that it has begun."""
        self._group = group

    # --- asking ---------------------------------------------------------------------------------

    async def ask(self, name: str, query: Contract) -> dict[str, Any] | None:
        """One controller's answer; None: there was none."""
        ready = [one for one in self.world.controllers if one.is_caught_up]
        weather = self.link.weather
        if not ready or self.rng.random() < weather.lost:
            await self.world.clock.sleep(1.0)
            return None
        controller = self.rng.choice(ready)
        answers: list[dict[str, Any]] = []
        arrived = asyncio.Event()

        async def answer() -> None:
            if self.rng.random() < weather.late:
                await self.world.clock.sleep(self.rng.random() * 30)
            await self._going(controller)
            request = Envelope(query.model_dump_json().encode())
            encoded = await answer_query(controller.query_desk, name, request)
            await self._going(controller)
            lost = self.rng.random() < weather.lost or controller not in self.world.controllers
            if not lost:
                answers.append(json.loads(encoded))
                arrived.set()

        self._group.create_task(answer())
        try:
            async with asyncio.timeout(ANSWER_S):
                await arrived.wait()
        except TimeoutError:
            return None
        return answers[0]

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside what the caller does."""
        self._group.create_task(work)

    async def _going(self, controller: SimController) -> None:
        await self.world.clock.sleep(self.rng.uniform(0.0002, 0.01))
        while controller.link.is_paused:
            await self.world.clock.sleep(0.25)

    async def ask_until(self, name: str, query: Contract, tries: int) -> dict[str, Any] | None:
        """The first answer that is not "ask again", by any controller."""
        for _ in range(tries):
            found = await self.ask(name, query)
            if found is not None and (found["ok"] or not is_retry(found)):
                return found
            await self.world.clock.sleep(self.rng.random() * 2)
        return None

    def about(self, held: Held) -> dict[str, Any]:
        """The fields of a question about it."""
        return {
            "scope": held.ref.scope,
            "stream": held.ref.stream,
            "incarnation": held.incarnation,
            "transaction_id": held.transaction_id,
        }

    def heard(
        self, held: Held, answer: dict[str, Any] | None, wanted: str
    ) -> TransactionInfo | None:
        """Tell the referee. `wanted`: commit, abort or nothing."""
        referee = self.world.referee.transactions
        if answer is None:
            return None
        if answer["ok"]:
            info = TransactionInfo.model_validate(answer["transaction"])
            referee.told(info)
            return info
        code = answer["error"]["code"]
        if code == TransactionEnded.code and wanted:
            referee.told_ended(held.transaction_id, wanted)
        elif code == TransactionNotFound.code:
            referee.told_unknown(held.transaction_id)
        elif code in (StreamNotFound.code, ScopeNotFound.code):
            referee.told_gone(held.transaction_id)
        elif code == "error":
            self.world.wrong.append(f"a defect in answering about {held}: {answer}")
        return None

    # --- beginning and pinging ------------------------------------------------------------------

    async def begin(self, ref: StreamRef, **given: Any) -> tuple[Held, TransactionBegun] | str:
        """A transaction, or why there is none."""
        lease_ms = self.rng.choice((1_500, 4_000, 10_000))
        query = asked.BeginTransaction(
            scope=ref.scope, stream=ref.stream, lease_ms=lease_ms, writer=self.name, **given
        )
        at_s = self.world.clock.monotonic()
        answer = await self.ask("begin_transaction", query)
        if answer is None:
            return ""
        if not answer["ok"]:
            if answer["error"]["code"] == "error":
                self.world.wrong.append(f"a defect in beginning: {answer}")
            return str(answer["error"]["code"])
        begun = TransactionBegun.model_validate(answer)
        info = begun.transaction
        held = Held(ref, info.transaction_id, info.incarnation, lease_ms, begun.segments)
        self.world.referee.transactions.told(info)
        self._promise(info.transaction_id, at_s, info.lease_left_ms)
        self.world.counts[BEGUN] += 1
        self.past.append(held)
        return held, begun

    def _promise(self, transaction: str, since_s: float, left_ms: int) -> None:
        until_s = since_s + left_ms / 1000
        self.world.referee.transactions.promised(transaction, until_s)

    async def ping(self, held: Held) -> None:
        """Prolong it."""
        at_s = self.world.clock.monotonic()
        ping = asked.PingTransaction(transaction_id=held.transaction_id)
        query = asked.PingTransactions(
            scope=held.ref.scope,
            stream=held.ref.stream,
            incarnation=held.incarnation,
            pings=(ping,),
        )
        answer = await self.ask("ping_transactions", query)
        if answer is None or not answer["ok"]:
            self.heard(held, answer, "")
            return
        (result,) = answer["results"]
        self.world.counts[PINGED] += 1
        if result["state"] == TransactionState.OPEN:
            self._promise(held.transaction_id, at_s, result["lease_left_ms"])
        elif result["state"] is None:
            self.world.referee.transactions.told_unknown(held.transaction_id)

    # --- writing --------------------------------------------------------------------------------

    async def append(self, segment: str, piece: Piece) -> Appended | None:
        """Until a store says what became of it; None: that is not known."""
        self.world.referee.transactions.sent.setdefault(
            piece, self.world.referee.transactions.steps
        )
        for _ in range(TRIES_MAX):
            try:
                return await self.link.call(
                    lambda: self.world.segments.append(segment, piece), APPEND_S, changes=True
                )
            except nats.errors.Error:
                await self.world.clock.sleep(self.rng.random())
        return None

    async def write(self, held: Held, segments: Sequence[Any], part: str = "") -> bool:
        """Some events for some keys; whether all were taken."""
        writer = f"{self.name}.{next(self.numbers)}"
        for number in range(self.rng.randrange(1, 6)):
            key = self.rng.choice(KEYS)
            one = next(s for s in segments if s.key_start <= key < s.key_end)
            piece = Piece(writer, number, key, self.rng.randrange(1, 50), held.transaction_id, part)
            if await self.append(one.name, piece) not in ("appended", "repeated"):
                return False
            lengths = held.lengths.setdefault(part, {})
            lengths[one.segment_id] = lengths.get(one.segment_id, 0) + piece.size
            if self.rng.random() < 0.1:
                await self.world.clock.sleep(self.rng.random() * 3)
        return True

    async def elsewhere(self, held: Held) -> bool:
        """Another process goes on with it; whether all that it wrote was taken."""
        answer = await self.ask("resume_transaction", asked.ResumeTransaction(**self.about(held)))
        info = self.heard(held, answer, "")
        if answer is None or info is None:
            return False
        segments = TransactionBegun.model_validate(answer).segments
        return not segments or await self.write(held, segments)

    # --- ending ---------------------------------------------------------------------------------

    async def end(
        self, held: Held, wanted: str, parts: tuple[CommittedPart, ...] = ()
    ) -> dict[str, Any] | None:
        """Ask for an outcome until it is answered."""
        wait_ms = self.rng.choice((0, 0, 500, 5_000))
        if wanted == COMMIT:
            query: Contract = asked.CommitTransaction(
                **self.about(held), parts=parts, wait_ms=wait_ms
            )
        else:
            query = asked.AbortTransaction(**self.about(held), wait_ms=wait_ms)
        tries = self.rng.choice((1, TRIES_MAX, TRIES_MAX))
        answer = await self.ask_until(f"{wanted}_transaction", query, tries)
        self.heard(held, answer, wanted)
        return answer

    async def learn(self, held: Held) -> TransactionState | None:
        """Ask what became of it, until it has ended or the caller gives up."""
        info = None
        for _ in range(OUTCOME_TRIES_MAX):
            query = asked.DescribeTransaction(**self.about(held))
            answer = await self.ask("describe_transaction", query)
            info = self.heard(held, answer, "") or info
            if info is not None and info.state.has_ended:
                break
            if answer is not None and not answer["ok"] and not is_retry(answer):
                break
            await self.world.clock.sleep(self.rng.random() * 2)
        return info.state if info is not None else None


def is_retry(answer: dict[str, Any]) -> bool:
    """Whether to ask again."""
    return isinstance(from_body(answer["error"]), (Retry, Unknown))
