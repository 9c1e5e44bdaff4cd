"""Sixteen writers commit transactions while stores and controllers are killed, and it is scaled.

Every transaction ends whole or not at all, its writer learns which, and the events of each key are
in commit order. In two further streams of the same cluster, sixteen writers commit short, carried
and long transactions under the same kills: one stream keeps its segments together, and has no
carried ones. At the end that one is sealed under its writers.
"""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, TransactionSettings, connect
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    Conflict,
    NotFound,
    OutcomeUnknown,
    TransactionEnded,
)
from anabranch.common.model.transaction import TransactionState
from kit.short_kills import ShortKills

STREAM = "kills/orders"
WRITERS = 16
SHORT_WRITERS = 8
"""In each of the other streams."""
EVENTS = 10
KEYS = 3
KILLED = ("segstore", "controller", "segstore", "controller")
SETTLED_S_MAX = 60.0
RECOVERED_S_MAX = 90.0
SETTINGS = TransactionSettings(lease_ms=20_000, commit_timeout_s=60.0, short=False)


@dataclass
class Ledger:
    """What the writers were told: transaction → its outcome, None until they know."""

    outcomes: dict[str, TransactionState | None] = field(default_factory=dict)
    noted: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, state: TransactionState) -> int:
        return sum(1 for found in self.outcomes.values() if found is state)

    def note(self, transaction: str, state: TransactionState | None) -> None:
        self.outcomes[transaction] = state
        self.noted.set()


async def transact(client: Client, ledger: Ledger, writer_number: int, done: asyncio.Event) -> None:
    """One transaction after the other, each of events of several keys; every seventh is aborted."""
    number = 0
    async with client.writer(STREAM) as writer:
        while not done.is_set():
            number += 1
            try:
                async with writer.transaction(SETTINGS) as transaction:
                    ledger.note(transaction.id, None)
                    for index in range(EVENTS):
                        event = f"{transaction.id}:{writer_number}:{number}:{index}"
                        transaction.write(event.encode(), f"{writer_number}-{index % KEYS}")
                    if number % 7 == 0:
                        await transaction.flush()
                        await transaction.abort()
                        ledger.note(transaction.id, TransactionState.ABORTED)
                        continue
                ledger.note(transaction.id, TransactionState.COMMITTED)
            except TransactionEnded as ended:
                ledger.note(transaction.id, TransactionState(str(ended.fields["state"])))
            except OutcomeUnknown:
                pass  # asked for afterwards
            except AnabranchError:
                await asyncio.sleep(0.1)  # not begun, or given up: asked for afterwards


async def kill_one_after_the_other(
    cluster: EmbeddedCluster, ledger: Ledger, others: Sequence[ShortKills]
) -> None:
    for part in KILLED:
        await committed_more(ledger)
        for other in others:
            await other.committed_more(2 * SHORT_WRITERS)
        pids = cluster.segstore_pids() if part == "segstore" else cluster.controller_pids()
        os.kill(pids[0], signal.SIGKILL)
    await committed_more(ledger)


async def committed_more(ledger: Ledger) -> None:
    """Wait until as many transactions are committed again as there are writers."""
    enough = ledger.count(TransactionState.COMMITTED) + 2 * WRITERS
    async with asyncio.timeout(RECOVERED_S_MAX):
        while ledger.count(TransactionState.COMMITTED) < enough:
            ledger.noted.clear()
            await ledger.noted.wait()


async def scale_until(client: Client, done: asyncio.Event) -> int:
    """Split the first segment, merge the last two, and so on; how often it was done."""
    scales = 0
    while not done.is_set():
        await asyncio.sleep(0.7)
        present = (await client.streams.current_segments(STREAM)).segments
        ids = [segment.segment_id for segment in present]
        try:
            if len(ids) < 5:
                await client.streams.split_segment(STREAM, ids[0], 2, timeout_s=60)
            else:
                await client.streams.merge_segments(STREAM, ids[-2:], timeout_s=60)
            scales += 1
        except (Busy, Conflict):
            continue  # others changed the stream meanwhile: it may have rolled
    return scales


async def settle(client: Client, ledger: Ledger) -> None:
    """Ask for every outcome that is not known yet."""
    transactions = client.transactions(STREAM)
    for identity, known in ledger.outcomes.items():
        async with asyncio.timeout(SETTLED_S_MAX):
            while known is None or not known.has_ended:
                try:
                    known = (await transactions.describe(identity)).state  # noqa: PLW2901
                except NotFound as error:
                    raise AssertionError(f"nobody knows what became of {identity}") from error
                if known is TransactionState.OPEN:
                    await transactions.abort(identity)
                await asyncio.sleep(0 if known.has_ended else 0.05)
        ledger.outcomes[identity] = known


async def read_all(client: Client) -> list[tuple[str, str, int, int, int]]:
    """(key, transaction, writer, number, index) of every event, segment by segment in order."""
    found = []
    async with client.reader(STREAM, until_tail=True) as reader:
        async for batch in reader.batches():
            for payload, key in zip(batch.payloads, batch.keys, strict=True):
                identity, writer, number, index = payload.decode().split(":")
                found.append((str(key), identity, int(writer), int(number), int(index)))
    return found


async def seal_under_writers(client: Client, work: ShortKills) -> None:
    """Write again, and seal the stream meanwhile."""
    work.done.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(work.write(SHORT_WRITERS, first=SHORT_WRITERS))
        await work.committed_more(SHORT_WRITERS)
        await client.streams.seal(work.stream)


async def test_every_transaction_ends_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = Ledger()
    settings = UpSettings(data_dir=tmp_path / "data", controller_count=2)
    async with (
        embedded_cluster(settings) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create("kills")
        await client.streams.create(STREAM, segments=3)
        done = asyncio.Event()
        others = [ShortKills(client, f"kills/{name}", done) for name in ("spread", "together")]
        for other in others:
            await other.create(together=other is others[1])
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(transact(client, ledger, number, done))
            scaling = group.create_task(scale_until(client, done))
            for other in others:
                group.create_task(other.write(SHORT_WRITERS))
                group.create_task(other.scale())
            await kill_one_after_the_other(cluster, ledger, others)
            done.set()
        await seal_under_writers(client, others[1])
        for other in others:
            await other.assert_whole()
        await settle(client, ledger)
        found = await read_all(client)
        rolled = [e async for e in client.streams.epochs(STREAM)]
    indices: dict[str, list[int]] = defaultdict(list)
    last: dict[str, tuple[int, int]] = {}
    for key, identity, _, number, index in found:
        indices[identity].append(index)
        assert last.get(key, (0, -1)) < (number, index), f"key {key} is out of order"
        last[key] = (number, index)
    for identity, state in ledger.outcomes.items():
        whole = sorted(indices.pop(identity, [])) == list(range(EVENTS))
        assert whole == (state is TransactionState.COMMITTED), f"{identity} is {state} and torn"
    assert indices == {}, "events of transactions that nobody began"
    assert ledger.count(TransactionState.COMMITTED) > 100
    assert ledger.count(TransactionState.ABORTED) > 5
    assert scaling.result() > 2
    for other in others:
        assert other.scales > 2
        assert other.count(TransactionState.COMMITTED, is_short=True) > 20
        assert other.count(TransactionState.COMMITTED, is_short=False) > 5
    assert others[0].carried() > 50
    assert others[1].carried() == 0
    assert any(epoch.reference_epoch != epoch.stream_epoch for epoch in rolled), "nothing rolled"
