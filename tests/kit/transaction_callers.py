"""Callers of transactions: they begin, write, ping or forget to, and end them, by any controller.

`TransactionCaller` does one thing after another; `ApplicationInstance` is one of several that
commit the versions of the same application. `Reshaper` changes the streams meanwhile.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.common.contracts import transactions as asked
from anabranch.common.contracts.stream_queries import TailCut
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.contracts.transactions import (
    CommittedPart,
    PartLength,
    TransactionBegun,
    TransactionInfo,
    TransactionKey,
)
from anabranch.common.errors import (
    PartMismatch,
    VersionPassed,
)
from anabranch.common.model.names import StreamRef, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState
from kit.carried_callers import Carrier
from kit.control_callers import Caller
from kit.sim_segments import Piece
from kit.transaction_clients import KEYS, TRIES_MAX, Client, Held
from kit.transaction_reading import Cut
from kit.transaction_referee import ABORT, COMMIT

COMMITTED = (TransactionState.COMMITTING, TransactionState.COMMITTED)
REFUSED_LENGTHS = "commits refused because of a part's length"
CUTS = "tail cuts taken"
PLAIN = "plain appends taken"


@dataclass(frozen=True, slots=True)
class Habits:
    """How often callers do what is rare: ask for the tail, take
    time and ping, end what others began, seal, ask about what they began long ago, and submit
    transactions with their events."""

    cutting: float = 0.15
    pausing: float = 0.3
    strange: float = 0.05
    sealing: float = 0.1
    recalling: float = 0.0
    carrying: float = 0.0


USUAL = Habits()
MIXED = Habits(carrying=0.6)
"""Transactions of both kinds beside each other."""


class Reshaper(Caller):
    """Asks for what changes streams that have transactions: mostly scales."""

    habits = USUAL

    def _choose(self) -> Any:
        ref = self._rng.choice(self._refs)
        stream = self._world.stream(stream_events(ref))
        draw = self._rng.random()
        if not stream.is_live or stream.status is not StreamState.ACTIVE or draw < 0.08:
            return super()._choose()
        if draw > 1 - self.habits.sealing:
            return self._seal(ref, stream)
        return self._truncate(ref, stream) if draw < 0.25 else self._scale(ref, stream)


class TransactionCaller(Client):
    """Does one thing after another with transactions, and beside them."""

    habits = USUAL

    async def live(self, count: int, think_s: float) -> None:
        """So many things."""
        for _ in range(count):
            await self.world.clock.sleep(self.rng.random() * think_s)
            ref = self.rng.choice(self.refs)
            if self.habits.carrying and self.rng.random() < self.habits.carrying:
                await Carrier(self).submit(ref)
                continue
            if self.habits.recalling and self.past:
                await self._recall()
            draw = self.rng.random() - self.habits.cutting
            if draw < 0:
                await self._cut(ref)
            elif draw < 0.15:
                await self._plain(ref)
            elif draw < 0.3:
                await self._in_parts(ref)
            elif draw < 0.3 + self.habits.strange:
                await self._strange(ref)
            else:
                await self._at_once(ref)

    async def _recall(self) -> None:
        """Ask again and again about transactions of any age."""
        while self.rng.random() < self.habits.recalling:
            held = self.rng.choice(self.past)
            query = asked.DescribeTransaction(**self.about(held))
            self.heard(held, await self.ask("describe_transaction", query), "")
            if self.rng.random() < 0.3:
                await self.ping(held)

    async def _at_once(self, ref: StreamRef) -> None:
        begun = await self.begin(ref)
        if isinstance(begun, str):
            return
        held, _ = begun
        done = await self.write(held, held.segments)
        if self.rng.random() < self.habits.pausing:
            await self._pause(held)
        if self.rng.random() < 0.3:
            done = await self.elsewhere(held) and done
        await self._finish(held, done)

    async def _strange(self, ref: StreamRef) -> None:
        """Somebody who looks at what is open ends one of them."""
        query = asked.ListTransactions(scope=ref.scope, stream=ref.stream)
        answer = await self.ask("list_transactions", query)
        if answer is None or not answer["ok"] or not answer["transactions"]:
            return
        info = TransactionInfo.model_validate(self.rng.choice(answer["transactions"]))
        held = Held(ref, info.transaction_id, info.incarnation, info.lease_ms)
        await self.end(held, self.rng.choice((COMMIT, COMMIT, ABORT)))

    async def _pause(self, held: Held) -> None:
        """Take time, and ping, or forget to."""
        forgets = self.rng.random() < 0.3
        for _ in range(self.rng.randrange(1, 5)):
            await self.world.clock.sleep(self.rng.random() * held.lease_ms / 1000)
            if not forgets:
                await self.ping(held)

    async def _finish(self, held: Held, done: bool) -> None:
        draw = self.rng.random()
        if draw < 0.1:
            return  # somebody has died
        if draw < 0.2:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.end(held, COMMIT))
                both.create_task(self.end(held, ABORT))
        else:
            await self.end(held, COMMIT if done and draw < 0.85 else ABORT)
        await self._afterwards(held)

    async def _afterwards(self, held: Held) -> None:
        if held.segments and self.rng.random() < 0.3:
            await self.write(held, held.segments)
        if self.rng.random() < 0.6:
            await self.learn(held)

    async def _in_parts(self, ref: StreamRef) -> None:
        begun = await self.begin(ref, parts=True)
        if isinstance(begun, str):
            return
        held, _ = begun
        good: list[str] = []
        late: list[tuple[Sequence[Any], str]] = []
        for _ in range(self.rng.randrange(1, 4)):
            part = f"{self.rng.getrandbits(128):032x}"
            query = asked.AddTransactionPart(**self.about(held), part=part)
            answer = await self.ask("add_transaction_part", query)
            if self.heard(held, answer, "") is None or answer is None:
                continue
            segments = TransactionBegun.model_validate(answer).segments
            late.append((segments, part))
            if await self.write(held, segments, part):
                good.append(part)
        named = [part for part in good if self.rng.random() < 0.7]
        self.rng.shuffle(named)
        if named and self.rng.random() < 0.2:
            await self._named_wrongly(held, named)
        if self.rng.random() < 0.85:
            await self.end(held, COMMIT, _parts(held, named))
        elif self.rng.random() < 0.5:
            await self.end(held, ABORT)
        if late and self.rng.random() < 0.3:
            await self.write(held, *self.rng.choice(late))
        if self.rng.random() < 0.5:
            await self.learn(held)

    async def _named_wrongly(self, held: Held, named: Sequence[str]) -> None:
        wrong = list(_parts(held, named))
        lengths = wrong[0].lengths
        longer = PartLength(segment_id=lengths[0].segment_id, length=lengths[0].length + 1)
        wrong[0] = wrong[0].model_copy(update={"lengths": (longer, *lengths[1:])})
        query = asked.CommitTransaction(**self.about(held), parts=tuple(wrong))
        answer = await self.ask("commit_transaction", query)
        seen = self.world.referee.transactions.seen[held.transaction_id]
        if seen.committed_parts == tuple(named):  # a stranger's commit names none
            self.world.wrong.append(f"{held} was committed with a wrong length")
        if answer is not None and answer.get("error", {}).get("code") == PartMismatch.code:
            self.world.counts[REFUSED_LENGTHS] += 1

    async def _plain(self, ref: StreamRef) -> None:
        """Events without a transaction, in order, for one key."""
        stream = self.world.stream(stream_events(ref))
        incarnation, writer = stream.incarnation, f"{self.name}.{next(self.numbers)}"
        key = self.rng.choice(KEYS)
        for number in range(self.rng.randrange(1, 5)):
            piece = Piece(writer, number, key, self.rng.randrange(1, 50))
            if not await self._plainly(ref, incarnation, piece):
                return
            self.world.counts[PLAIN] += 1

    async def _plainly(self, ref: StreamRef, incarnation: int, piece: Piece) -> bool:
        for _ in range(TRIES_MAX):
            stream = self.world.stream(stream_events(ref))
            if stream.incarnation != incarnation or stream.status is not StreamState.ACTIVE:
                return False
            found = next(
                (s for s in stream.segments if s.keys.start <= piece.key < s.keys.end), None
            )
            if found is None:
                return False
            done = await self.append(segment_name(ref, found.segment_id), piece)
            if done != "sealed":
                return done in ("appended", "repeated")
            await self.world.clock.sleep(0.5)
        return False

    async def _cut(self, ref: StreamRef) -> None:
        answer = await self.ask("tail_cut", TailCut(scope=ref.scope, stream=ref.stream))
        if answer is None or not answer["ok"]:
            return
        reach = {one["name"]: one["offset"] for one in answer["segments"]}
        cut = Cut(answer["incarnation"], str(ref), reach)
        self.world.referee.transactions.cuts.append(cut)
        self.world.counts[CUTS] += 1


class ApplicationInstance(Client):
    """One of several processes of an application, which takes itself for the only one."""

    async def live(self, application: str, versions: int, think_s: float) -> None:
        """Commit so many versions, or see that the other one did."""
        ref = self.refs[0]
        version = 0
        for _ in range(versions * 3):
            await self.world.clock.sleep(self.rng.random() * think_s)
            if version >= versions:
                return
            key = TransactionKey(application=application, version=version)
            begun = await self.begin(ref, key=key)
            if begun == VersionPassed.code:
                version += 1
            if isinstance(begun, str):
                continue
            version += await self._commit(*begun)

    async def _commit(self, held: Held, begun: TransactionBegun) -> bool:
        """Whether the version is committed."""
        if begun.transaction.state in COMMITTED:
            return True
        if not begun.is_new and self.rng.random() < 0.5:
            await self.end(held, ABORT)
            return False
        if held.segments:
            await self.write(held, held.segments)
        if self.rng.random() < 0.2:
            await self.world.clock.sleep(self.rng.random() * 6)
        answer = await self.end(held, COMMIT)
        return answer is not None and (
            answer["ok"] or answer["error"]["code"] == VersionPassed.code
        )


def _parts(held: Held, named: Sequence[str]) -> tuple[CommittedPart, ...]:
    return tuple(
        CommittedPart(
            part=part,
            lengths=tuple(
                PartLength(segment_id=segment, length=length)
                for segment, length in held.lengths.get(part, {}).items()
            ),
        )
        for part in named
    )
