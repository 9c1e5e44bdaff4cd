"""Short commits over a store that loses, refuses, forgets, restarts and is scaled, at random."""

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress

import pytest

from anabranch.client import EventWriter, Transaction
from anabranch.common.errors import AnabranchError, Unavailable, WrongHost
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.wire.messages import AppendedTogether, AppendTogether, Message
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.fake_segstore import Direction, Fault, no_faults
from kit.rng import Random, seeded
from kit.thorough import is_thorough

WRITERS = 4
TURNS = 12
EVENTS = 4
SETTINGS = writer_settings(retry_timeout_s=1.0, ack_timeout_s=0.3)


class Life:
    """One seed: the writers, the trouble, and what each transaction was told."""

    def __init__(self, b: Bench, rng: Random) -> None:
        self.b = b
        self.rng = rng
        self.ended: dict[str, Transaction] = {}
        b.store.fault = self._fault

    def _fault(self, at: Direction, message: Message) -> Fault | AnabranchError | None:
        if not isinstance(message, AppendTogether | AppendedTogether):
            return None
        drawn = self.rng.random()
        if drawn < 0.15:
            return Fault.DROP
        if drawn < 0.25 and at == "in":
            return Unavailable("not now") if drawn < 0.2 else WrongHost("elsewhere")
        return None

    async def write(self, writer: EventWriter, number: int) -> None:
        """One transaction after the other, some cancelled; each one's outcome is learnt before the
        next one, or their order would be open."""
        for turn in range(TURNS):
            name = f"{number}-{turn}"
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._transact(writer, name, number, turn))
                if self.rng.random() < 0.25:
                    for _ in range(self.rng.randint(0, 8)):
                        await asyncio.sleep(0)
                    task.cancel()
            while name in self.ended and self.ended[name].state is None:
                with suppress(AnabranchError):
                    await self.ended[name].commit()

    async def _transact(self, writer: EventWriter, name: str, number: int, turn: int) -> None:
        with suppress(AnabranchError):
            async with writer.transaction() as txn:
                self.ended[name] = txn
                self._fill(txn, name, number, turn)

    def _fill(self, txn: Transaction, name: str, number: int, turn: int) -> None:
        for index in range(EVENTS):
            txn.write(f"{name}:{turn}:{index}".encode(), f"{number}-{index % 3}")

    async def trouble(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0.01 * self.rng.random())
            drawn = self.rng.random()
            if drawn < 0.3:
                await self.b.store.restart()
            elif drawn < 0.7:
                for _stage in self.b.scale_to(1 + int(self.rng.random() * 4)):
                    await asyncio.sleep(0.003 * self.rng.random())

    async def check(self) -> None:
        found: dict[str, Counter[int]] = defaultdict(Counter)
        last: dict[str | None, int] = {}
        for key, payloads in (await self.b.by_key()).items():
            for payload in payloads:
                name, turn, index = payload.decode().split(":")
                found[name][int(index)] += 1
                assert last.get(key, 0) <= int(turn), f"{key} is out of order"
                last[key] = int(turn)
        for name, txn in self.ended.items():
            there = found.pop(name, Counter())
            assert there in (Counter(), Counter(range(EVENTS))), f"{name} is torn or twice"
            assert txn.state in (S.COMMITTED, S.ABORTED), f"{name} is {txn.state}"
            assert bool(there) == (txn.state is S.COMMITTED), f"{name} is {txn.state}"
        assert not found


@pytest.mark.parametrize("seed", range(150 if is_thorough() else 4))
async def test_every_transaction_is_whole_or_not_at_all_and_told_so(seed: int) -> None:
    async with bench(segment_count=3, together=True) as b, b.client.writer(STREAM, SETTINGS) as w:
        life = Life(b, seeded(seed))
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                tasks.create_task(life.write(w, number))
            tasks.create_task(life.trouble())
        b.store.fault = no_faults
        await life.check()
        committed = sum(txn.state is S.COMMITTED for txn in life.ended.values())
        assert committed, "some end in time"
