"""Writers that commit short and long transactions in one stream, and the ledger of their outcomes.

The ledger is outside of the cluster: what each writer was told. `assert_whole` reads all of the
stream: no transaction is torn, none is there twice, none that was committed is missing, and none
that was aborted is there. The events of each key are in the order of the writes.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from anabranch.client import (
    Client,
    EventWriter,
    ScalingPolicy,
    StreamConfig,
    Transaction,
    TransactionSettings,
)
from anabranch.common.errors import AnabranchError, Busy, Conflict, OutcomeUnknown, StreamSealed
from anabranch.common.model.transaction import TransactionState as S

EVENTS = 6
RECOVERED_S_MAX = 90.0
SCALE_S = 0.7
LONG = TransactionSettings(short=False, lease_ms=20_000, commit_timeout_s=60.0)


@dataclass
class Told:
    """The last that a writer was told about a transaction. `state` None: unknown. `is_carried`: its
    events went to a controller with its commit."""

    state: S | None
    is_short: bool
    is_carried: bool


@dataclass
class ShortKills:
    """The work on one stream, until `done`."""

    client: Client
    stream: str
    done: asyncio.Event
    told: dict[str, Told] = field(default_factory=dict)
    scales: int = 0
    _noted: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, *, together: bool) -> None:
        """Create the stream, of three segments."""
        config = StreamConfig(ScalingPolicy(min_segments=3), together=together)
        await self.client.streams.create(self.stream, config)

    def count(self, state: S, *, is_short: bool) -> int:
        """How many transactions of this way ended so; a carried one is none of the short ones."""
        return sum(each.state is state and each.is_short is is_short for each in self.told.values())

    def carried(self) -> int:
        """How many carried transactions are committed."""
        return sum(each.state is S.COMMITTED and each.is_carried for each in self.told.values())

    async def committed_more(self, many: int) -> None:
        """Wait until so many more short or carried ones are committed."""

        def committed() -> int:
            return self.count(S.COMMITTED, is_short=True) + self.carried()

        enough = committed() + many
        async with asyncio.timeout(RECOVERED_S_MAX):
            while committed() < enough:
                self._noted.clear()
                await self._noted.wait()

    async def write(self, writers: int, first: int = 0) -> None:
        """Let so many writers, numbered from `first`, commit one transaction after the other until
        `done`."""
        async with self.client.writer(self.stream) as writer, asyncio.TaskGroup() as group:
            for number in range(first, first + writers):
                group.create_task(self._transact(writer, number))

    async def _transact(self, writer: EventWriter, number: int) -> None:
        """Mostly short ones; every fifth is long, every seventh aborted, every third has one key
        alone."""
        turn = 0
        while not self.done.is_set():
            turn += 1
            try:
                txn = await writer.transaction(LONG if turn % 5 == 0 else None).__aenter__()
                await self._end(txn, f"{number}-{turn}", number, turn)
            except StreamSealed:
                self.done.set()
            except OutcomeUnknown:
                pass
            except AnabranchError:
                await asyncio.sleep(0.05)

    async def _end(self, txn: Transaction, name: str, number: int, turn: int) -> None:
        try:
            for index in range(EVENTS):
                key = f"{number}-{index % 3}" if turn % 3 else f"{number}-0"
                txn.write(f"{name}:{turn}:{index}".encode(), key)
            await (txn.abort() if turn % 7 == 0 else txn.commit())
        finally:
            await txn.close()
            is_carried = bool(txn.id) and turn % 5 != 0
            self.told[name] = Told(txn.state, not txn.id, is_carried)
            self._noted.set()

    async def scale(self) -> None:
        """Split the first segment, merge the last two, and so on, until `done`."""
        streams = self.client.streams
        while not self.done.is_set():
            await asyncio.sleep(SCALE_S)
            present = (await streams.current_segments(self.stream)).segments
            ids = [segment.segment_id for segment in present]
            try:
                if len(ids) < 5:
                    await streams.split_segment(self.stream, ids[0], 2, timeout_s=60)
                else:
                    await streams.merge_segments(self.stream, ids[-2:], timeout_s=60)
                self.scales += 1
            except (Busy, Conflict):
                continue  # others changed the stream meanwhile: it may have rolled

    async def assert_whole(self) -> None:
        """Compare all of the stream with the ledger."""
        found = await self._found()
        unknown = 0
        for name, told in self.told.items():
            there = found.pop(name, Counter())
            assert there in (Counter(), Counter(range(EVENTS))), f"{name} is torn, or twice"
            if told.state in (None, S.COMMITTING, S.OPEN):
                unknown += 1
            else:
                assert bool(there) == (told.state is S.COMMITTED), f"{name} is {told.state}"
        assert not found, "events of transactions that nobody wrote"
        assert unknown < len(self.told) / 4

    async def _found(self) -> dict[str, Counter[int]]:
        """Transaction → how often each of its events is there. Fails if a key is out of order."""
        found: dict[str, Counter[int]] = defaultdict(Counter)
        last: dict[str | None, tuple[int, int]] = {}
        async with self.client.reader(self.stream, until_tail=True) as reader:
            async for batch in reader.batches():
                for payload, key in zip(batch.payloads, batch.keys, strict=True):
                    name, turn, index = payload.decode().split(":")
                    found[name][int(index)] += 1
                    place = (int(turn), int(index))
                    assert last.get(key, (0, -1)) < place, f"{key} is out of order"
                    last[key] = place
        return found
