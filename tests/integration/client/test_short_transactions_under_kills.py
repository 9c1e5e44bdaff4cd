"""Sixteen writers commit short and long transactions while the store is killed, and it is scaled.

The ledger is outside: what each writer was told. Afterwards all of the stream is read. No
transaction is torn, none is there twice, none that was committed is missing, and none that was
aborted is there.
"""

import asyncio
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import (
    Client,
    EventWriter,
    ScalingPolicy,
    StreamConfig,
    TransactionSettings,
    connect,
)
from anabranch.common.errors import AnabranchError, Busy, Conflict, OutcomeUnknown, StreamSealed
from anabranch.common.model.transaction import TransactionState as S

STREAM = "kills/orders"
WRITERS = 16
EVENTS = 6
KILLS = 4
RECOVERED_S_MAX = 90.0
LONG = TransactionSettings(short=False, lease_ms=20_000, commit_timeout_s=60.0)


@dataclass
class Ledger:
    """Name of a transaction → its outcome; None: unknown. `short`: those that had no id."""

    outcomes: dict[str, S | None] = field(default_factory=dict)
    short: set[str] = field(default_factory=set)
    noted: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, name: str, state: S | None, *, is_short: bool) -> None:
        self.outcomes[name] = state
        if is_short:
            self.short.add(name)
        self.noted.set()

    def count(self, state: S, *, is_short: bool) -> int:
        return sum(
            found is state and (name in self.short) is is_short
            for name, found in self.outcomes.items()
        )

    async def committed_more(self, many: int) -> None:
        """Wait until so many more short ones are committed."""
        enough = self.count(S.COMMITTED, is_short=True) + many
        async with asyncio.timeout(RECOVERED_S_MAX):
            while self.count(S.COMMITTED, is_short=True) < enough:
                self.noted.clear()
                await self.noted.wait()


async def transact(writer: EventWriter, ledger: Ledger, number: int, done: asyncio.Event) -> None:
    """One transaction after the other: mostly short ones, every fifth long, every seventh aborted,
    and some with one key alone."""
    turn = 0
    while not done.is_set():
        turn += 1
        name = f"{number}-{turn}"
        ledger.note(name, S.ABORTED, is_short=False)  # until it is asked to commit
        try:
            txn = await writer.transaction(LONG if turn % 5 == 0 else None).__aenter__()
        except StreamSealed:
            done.set()
            return
        except AnabranchError:
            continue
        try:
            for index in range(EVENTS):
                key = f"{number}-{index % 3}" if turn % 3 else f"{number}-0"
                txn.write(f"{name}:{turn}:{index}".encode(), key)
            if turn % 7 == 0:
                await txn.abort()
            else:
                ledger.note(name, None, is_short=not txn.id)
                await txn.commit()
        except StreamSealed:
            done.set()
        except OutcomeUnknown:
            pass
        except AnabranchError:
            await asyncio.sleep(0.05)
        finally:
            await txn.close()
            ledger.note(name, txn.state, is_short=not txn.id)


async def scale_until(client: Client, done: asyncio.Event) -> int:
    scales = 0
    while not done.is_set():
        await asyncio.sleep(0.5)
        present = (await client.streams.current_segments(STREAM)).segments
        ids = [segment.segment_id for segment in present]
        try:
            if len(ids) < 5:
                await client.streams.split_segment(STREAM, ids[0], 2, timeout_s=60)
            else:
                await client.streams.merge_segments(STREAM, ids[-2:], timeout_s=60)
            scales += 1
        except (Busy, Conflict):
            continue
    return scales


async def kill_stores(cluster: EmbeddedCluster, ledger: Ledger) -> None:
    for _ in range(KILLS):
        await ledger.committed_more(2 * WRITERS)
        os.kill(cluster.segstore_pids()[0], signal.SIGKILL)
    await ledger.committed_more(2 * WRITERS)


@asynccontextmanager
async def cluster_with_stream(
    path: Path, *, together: bool
) -> AsyncIterator[tuple[EmbeddedCluster, Client]]:
    async with (
        embedded_cluster(UpSettings(data_dir=path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create("kills")
        config = StreamConfig(ScalingPolicy(min_segments=3), together=together)
        await client.streams.create(STREAM, config)
        yield cluster, client


async def assert_whole(client: Client, ledger: Ledger) -> None:
    """Compare all of the stream with what the writers were told."""
    found: Counter[tuple[str, int]] = Counter()
    last: dict[str | None, tuple[int, int]] = {}
    indices: dict[str, set[int]] = defaultdict(set)
    async with client.reader(STREAM, until_tail=True) as reader:
        async for batch in reader.batches():
            for payload, key in zip(batch.payloads, batch.keys, strict=True):
                name, turn, index = payload.decode().split(":")
                found[name, int(index)] += 1
                indices[name].add(int(index))
                assert last.get(key, (0, -1)) < (int(turn), int(index)), f"{key} is out of order"
                last[key] = (int(turn), int(index))
    assert max(found.values()) == 1, "an event is there twice"
    unknown = 0
    for name, state in ledger.outcomes.items():
        there = indices.pop(name, set())
        assert there in (set(), set(range(EVENTS))), f"{name} is torn"
        if state in (None, S.COMMITTING):
            unknown += 1
        else:
            assert bool(there) == (state is S.COMMITTED), f"{name} is {state}"
    assert not indices
    assert unknown < len(ledger.outcomes) / 4


@pytest.mark.parametrize("together", [False, True])
async def test_no_transaction_is_torn_or_twice_or_lost(tmp_path: Path, together: bool) -> None:
    ledger, done = Ledger(), asyncio.Event()
    async with cluster_with_stream(tmp_path, together=together) as (cluster, client):
        async with client.writer(STREAM) as writer, asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(transact(writer, ledger, number, done))
            scaling = group.create_task(scale_until(client, done))
            await kill_stores(cluster, ledger)
            done.set()
        await assert_whole(client, ledger)
    assert scaling.result() > 2
    assert ledger.count(S.COMMITTED, is_short=True) > 100
    assert ledger.count(S.COMMITTED, is_short=False) > 10
    assert ledger.count(S.ABORTED, is_short=True) > 5


async def test_a_stream_that_is_sealed_under_commits_has_each_of_them_or_nothing(
    tmp_path: Path,
) -> None:
    ledger, done = Ledger(), asyncio.Event()
    async with cluster_with_stream(tmp_path, together=True) as (_, client):
        async with client.writer(STREAM) as writer, asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(transact(writer, ledger, number, done))
            await ledger.committed_more(WRITERS)
            await client.streams.seal(STREAM)
            await done.wait()
        await assert_whole(client, ledger)
        await client.streams.delete(STREAM)
    assert ledger.count(S.COMMITTED, is_short=True) > WRITERS
