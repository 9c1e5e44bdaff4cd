"""One trial: a cluster, its load, faults for some minutes, and two readings of everything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, embedded_cluster
from anabranch.cli.up.directory import numbered
from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.cli.up.stores import SEGSTORE
from anabranch.cli.up.supervisor import States
from anabranch.client import Client, GroupStream, ReaderGroupConfig, connect
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.ledger import LedgerFollower
from kit.chaos.writer import ledger_path
from kit.failover.cluster import Faults, NotWhole
from kit.failover.copies import Copies
from kit.failover.divergence import divergent
from kit.failover.load import Load
from kit.failover.outages import Struck
from kit.failover.plan import Fault, faults
from kit.failover.readings import (
    Reading,
    Source,
    Told,
    from_stores,
    from_tier2,
    judge_group,
    read_all,
)
from kit.failover.shape import JETSTREAM, STORES, TIER_TWO, Shape
from kit.failover.transactions import TransactionLedger
from kit.failover.transactor import ledger_path as transactions_path
from kit.rng import seeded
from kit.soak.verdict import Verdict as GroupVerdict

EVENTS = "failover/events"
TRANSACTIONS = "failover/transactions"
GROUP = "failover/readers"
SEGMENTS = 4
LEASE_MS = 5_000
WRITER_PAUSE_S = 0.05
ANSWERED_S_MAX = 120.0
DRAINED_S_MAX = 180.0
IN_SYNC_S_MAX = 120.0
FLUSH_S_MAX = 120.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """`directory` gets the cluster and, beside it, ledgers and notes.

    Faults follow one another for so many `seconds`, or until there were `faults_max`.
    """

    directory: Path
    seconds: float
    seed: int
    shape: Shape = JETSTREAM
    faults_max: int | None = None
    writers: int = 4
    callers: int = 2
    readers: int = 3


@dataclass(slots=True)
class TrialResult:
    """`failures`: what went wrong apart from what was read."""

    struck: list[Struck] = field(default_factory=list)
    told: Told = field(default_factory=lambda: Told({}, {}))
    readings: dict[str, Reading] = field(default_factory=dict)
    group: GroupVerdict = field(default_factory=GroupVerdict)
    divergent: list[str] = field(default_factory=list)
    openings: int = 0
    """How often containers were opened, all together."""
    reader_restarts: int = 0
    in_sync_s: float | None = None
    """How long it took after the faults until all copies of the logs were in sync; None without
    replicated logs."""
    failures: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """0 if every promise was kept."""
        return (
            len(self.failures)
            + sum(reading.violations for reading in self.readings.values())
            + len(self.group.violations)
            + len(self.divergent)
        )


class _Trial:
    def __init__(self, settings: TrialSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._notes = settings.directory / "ledgers"
        self._followers = {
            number: LedgerFollower(ledger_path(self._notes, number))
            for number in range(settings.writers)
        }
        self._states: States = {}
        self.result = TrialResult()

    async def perform(self) -> None:
        """All of it; what goes wrong is in `result`."""
        self._notes.mkdir(parents=True)
        holds = self._settings.directory / "holds"
        holds.mkdir()
        held = HeldParts(holds)
        monitor_urls: list[str] = []

        def parts(plan: ClusterPlan) -> list[PartSpec]:
            monitor_urls[:] = plan.nats_monitor_url.split(",")
            return held.holdable(cluster_parts(plan))

        async with embedded_cluster(
            self._settings.shape.settings(self._settings.directory),
            watch=self._watch,
            parts=parts,
        ) as cluster:
            await cluster.wait_ready()
            async with connect(cluster.nats) as client, self._placed(cluster) as copies:
                dealing = Faults(
                    cluster, held, lambda: self._states, self._clock,
                    monitor_urls=monitor_urls,
                    stores_up_min=self._settings.shape.stores_up_min,
                    copies=copies,
                )  # fmt: skip
                await self._create(client)
                load = Load(self._notes, str(cluster.endpoints_file), self._clock)
                try:
                    await self._use(load, dealing, client)
                finally:
                    await load.kill()
                self.result.failures += load.failures
                self.result.reader_restarts = load.reader_restarts
                await self._read("stores", from_stores(client))
                await client.cluster.flush_to_tier2(timeout_s=FLUSH_S_MAX)
        url = (self._settings.directory / TIER_TWO).resolve().as_uri()
        await self._read("tier 2", from_tier2(url))
        self._judge()

    @asynccontextmanager
    async def _placed(self, cluster: EmbeddedCluster) -> AsyncIterator[Copies | None]:
        """The copies of replicated logs; None for other logs."""
        if not self._settings.shape.replication:
            yield None
            return
        nats = await connect_nats(cluster.nats, "trial")
        try:
            placed = JetStreamObjectStore(nats, self._clock, subjects.PLACEMENTS_BUCKET)
            yield Copies(placed, cluster.data_dir, numbered(SEGSTORE, STORES), self._clock)
        finally:
            await nats.close()

    def _watch(self, states: States) -> None:
        self._states = dict(states)

    async def _create(self, client: Client) -> None:
        await client.scopes.create("failover")
        for stream in (EVENTS, TRANSACTIONS):
            await client.streams.create(stream, segments=SEGMENTS)
        config = ReaderGroupConfig((GroupStream(EVENTS),), lease_ms=LEASE_MS)
        await client.reader_groups.create(GROUP, config)

    # --- the load and the faults ----------------------------------------------------------------

    async def _use(self, load: Load, dealing: Faults, client: Client) -> None:
        settings = self._settings
        await load.start_writers(
            "kit.chaos.writer", EVENTS, range(settings.writers), "--pause-s", str(WRITER_PAUSE_S)
        )
        await load.start_writers("kit.failover.transactor", TRANSACTIONS, range(settings.callers))
        for number in range(settings.readers):
            await load.start_reader(GROUP, f"reader-{number}")
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(load.keep_readers(GROUP))
            try:
                await self._strike_and_heal(load, dealing, client)
            except NotWhole as error:
                self.result.failures.append(str(error))
            finally:
                keeping.cancel()
        await load.end_readers()
        events = {number: each.read_on() for number, each in self._followers.items()}
        self.result.told = Told(events, self._transaction_ledgers())
        async for container in client.containers.list():
            self.result.openings += container.container_epoch

    async def _strike_and_heal(self, load: Load, dealing: Faults, client: Client) -> None:
        await self._answered(load)
        await self._strike(dealing, load)
        await dealing.heal()
        await self._answered(load)
        await load.end_writers()
        await self._transactions_ended(client)
        await self._drained(client)
        await self._in_sync(client)

    async def _strike(self, dealing: Faults, load: Load) -> None:
        ends_at_s = self._clock.monotonic() + self._settings.seconds
        drawn = faults(seeded(self._settings.seed), self._settings.shape.weights)
        async with asyncio.TaskGroup() as group:
            for fault in islice(drawn, self._settings.faults_max):
                await self._clock.sleep(fault.pause_s)
                if self._clock.monotonic() >= ends_at_s or not load.writers_run:
                    return
                try:
                    parts = await dealing.choose(fault)
                except NotWhole as error:  # it would leave the group as another exception
                    self.result.failures.append(str(error))
                    return
                group.create_task(self._deal(dealing, fault, parts))

    async def _deal(self, dealing: Faults, fault: Fault, parts: list[str]) -> None:
        try:
            self.result.struck.append(await dealing.deal(fault, parts))
        except NotWhole as error:
            self.result.failures.append(str(error))

    async def _answered(self, load: Load) -> None:
        """Return when every writer has got an answer to a request that begins now."""
        at_s = self._clock.monotonic()
        while not all(each.read_on().answered_after(at_s) for each in self._followers.values()):
            if self._clock.monotonic() > at_s + ANSWERED_S_MAX:
                raise NotWhole(f"a writer got no answer for {ANSWERED_S_MAX:.0f} s")
            if not load.writers_run:
                raise NotWhole("a process of writers ended: see errors.txt")
            await self._clock.sleep(LOOK_S)

    async def _in_sync(self, client: Client) -> None:
        """Wait until every replica of the logs is in sync again, and on a store that exists."""
        if not (count := self._settings.shape.replication):
            return
        begun_s = self._clock.monotonic()
        while short := [
            f"container {found.container}: {len(found.isr)} of {len(found.replicas)} in sync"
            async for found in client.containers.list()
            if found.state != "open" or not len(found.isr) == len(found.replicas) == count
        ]:
            if self._clock.monotonic() > begun_s + IN_SYNC_S_MAX:
                raise NotWhole(f"copies were not in sync for {IN_SYNC_S_MAX:.0f} s: {short}")
            await self._clock.sleep(LOOK_S)
        self.result.in_sync_s = self._clock.monotonic() - begun_s

    def _transaction_ledgers(self) -> dict[int, TransactionLedger]:
        found = {}
        for caller in range(self._settings.callers):
            found[caller] = TransactionLedger()
            with transactions_path(self._notes, caller).open() as lines:
                found[caller].add(lines)
        return found

    async def _transactions_ended(self, client: Client) -> None:
        """Wait until no transaction can still change what readers see."""
        deadline_s = self._clock.monotonic() + DRAINED_S_MAX
        while unended := [
            found.transaction_id
            async for found in client.transactions(TRANSACTIONS).list()
            if not found.state.has_ended
        ]:
            if self._clock.monotonic() > deadline_s:
                raise NotWhole(f"transactions did not end: {unended[:5]}")
            await self._clock.sleep(LOOK_S)

    async def _drained(self, client: Client) -> None:
        """Wait until the group has processed everything."""
        group = client.reader_group(GROUP)
        deadline_s = self._clock.monotonic() + DRAINED_S_MAX
        while (lag := (await group.status()).lag).bytes:
            if self._clock.monotonic() > deadline_s:
                raise NotWhole(f"the group did not process all: {lag}")
            await self._clock.sleep(LOOK_S)

    # --- reading --------------------------------------------------------------------------------

    async def _read(self, place: str, source: Source) -> None:
        self.result.readings[place] = await read_all(self.result.told, source, EVENTS, TRANSACTIONS)

    def _judge(self) -> None:
        histories = {place: each.histories for place, each in self.result.readings.items()}
        self.result.divergent = divergent(histories)
        self.result.group = judge_group(self._notes, histories["stores"], self._settings.writers)


async def run_trial(settings: TrialSettings) -> TrialResult:
    """Perform a trial. What keeps the cluster from running, or from being read, is a failure."""
    trial = _Trial(settings)
    try:
        await trial.perform()
    except* AnabranchError as errors:
        trial.result.failures += [str(error) for error in errors.exceptions]
    return trial.result
