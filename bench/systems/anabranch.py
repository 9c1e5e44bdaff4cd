"""Anabranch as a user gets it: `embedded_cluster`, the client library, one segment.

Events are synced before they are acknowledged (D2). Whether the store moves them to tier 2
meanwhile is a setting: with flushing on both share the disk, with flushing off a flush is put
off beyond any run and what waits for it is not bounded.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from anabranch.cli.perf.load.appends import take
from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.cli.up.supervisor import States
from anabranch.client import (
    Client,
    EventWriter,
    ReaderSettings,
    ScalingPolicy,
    StreamConfig,
    TableSettings,
    connect,
)
from anabranch.common.errors import BufferFull
from bench.case import Case
from bench.systems.anabranch_table import AnabranchTable
from bench.systems.port import HttpTarget, Label, ReadingWay, SparkSource

SCOPE = "bench"
APART = "apart"
TIER_TWO = Path("segstore/tier2")
_NEVER = str(2**50)
_MEASURED = ("nats", "controller", "segstore", "gateway")
"""How the names of the parts begin whose processor time counts."""
Parts = Callable[[ClusterPlan], Sequence[PartSpec]]

ONE_OF_EACH = UpSettings(data_dir=None)
"""A controller, a store and a NATS server."""


def shared_logs(nats_servers: int, stores: int = 1, controllers: int = 1) -> UpSettings:
    """A cluster with its logs on JetStream, each on every NATS server, of which it has 1 or 3."""
    return UpSettings(
        data_dir=None,
        store_count=stores,
        controller_count=controllers,
        nats_count=nats_servers,
        log="jetstream",
    )


def stores(count: int, replication: int | None = None, controllers: int = 1) -> UpSettings:
    """A cluster of so many stores; `replication`: the copies of each log, which stores make."""
    return UpSettings(
        data_dir=None, store_count=count, controller_count=controllers, replication=replication
    )


def flushing(flush_bytes: int) -> Mapping[str, str]:
    """The store's environment to flush whenever so many bytes wait."""
    return {"ANABRANCH_SEGSTORE_FLUSH_BYTES": str(flush_bytes)}


NOT_FLUSHING: Mapping[str, str] = {
    "ANABRANCH_SEGSTORE_FLUSH_BYTES": _NEVER,
    "ANABRANCH_SEGSTORE_FLUSH_AGE_S": "1000000",
    "ANABRANCH_SEGSTORE_UNTIERED_BYTES_MAX": _NEVER,
}


class AnabranchStream:
    """A stream of one segment with one writer."""

    sends_in_flight_max = 256

    def __init__(
        self,
        client: Client,
        name: str,
        writer: EventWriter,
        cluster: EmbeddedCluster,
        *,
        flushes: bool,
    ) -> None:
        self._client = client
        self.name = name
        self._writer = writer
        self._cluster = cluster
        self._flushes = flushes
        self.directory = cluster.data_dir
        gateway = str(cluster.endpoints["gateway"])
        path = f"/v1/scopes/{name.replace('/', '/streams/')}/events"
        host, _, port = gateway.removeprefix("http://").rpartition(":")
        self.http = HttpTarget(host, int(port), path, f"{path}?from=head&max_events=1")

    async def spark_source(self, source: str) -> SparkSource:
        if source == "stores":
            options = {"nats_url": str(self._cluster.endpoints_file)}
        else:
            await self._client.cluster.flush_to_tier2()
            options = {"tier2": (self._cluster.data_dir / TIER_TWO).resolve().as_uri()}
        return SparkSource("anabranch", {**options, "stream": self.name})

    @asynccontextmanager
    async def appenders(
        self, count: int
    ) -> AsyncIterator[Sequence[Callable[[bytes], Awaitable[None]]]]:
        async with AsyncExitStack() as stack:
            yield [
                (await stack.enter_async_context(self._client.writer(self.name))).append
                for _ in range(count)
            ]

    @asynccontextmanager
    async def transactors(
        self, count: int, keys: Sequence[str] | None = None
    ) -> AsyncIterator[Sequence[Callable[[Sequence[bytes]], Awaitable[None]]]]:
        """As `Transactional.transactors`; with `keys`, one for each event of a transaction."""
        async with AsyncExitStack() as stack:
            writers = [
                await stack.enter_async_context(self._client.writer(self.name))
                for _ in range(count)
            ]
            yield [partial(_transact, writer, keys) for writer in writers]

    async def settle(self) -> None:
        if self._flushes:
            await self._client.cluster.flush_to_tier2()

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        await self._write_all(batches, None)

    async def write_all_keyed(
        self, batches: Iterable[Sequence[bytes]], keys: Sequence[str]
    ) -> None:
        await self._write_all(batches, keys)

    async def _write_all(
        self, batches: Iterable[Sequence[bytes]], keys: Sequence[str] | None
    ) -> None:
        writer = self._writer
        for batch in batches:
            await take(writer, batch, keys)
            await writer.drain()
        await writer.flush()

    async def write_each(self, batches: Iterable[Sequence[bytes]]) -> None:
        writer = self._writer
        for batch in batches:
            try:
                for event in batch:
                    writer.write(event)
            except BufferFull as error:
                raise AssertionError("the buffer holds more than a batch") from error
            await writer.drain()
        await writer.flush()

    async def read_in(self, way: ReadingWay) -> int:
        read = 0
        async with self._client.reader(self.name, until_tail=True) as reader:
            match way:
                case "arrow":
                    async for rows in reader.arrow_batches():
                        read += rows.num_rows
                case "batches":
                    async for batch in reader.batches():
                        read += len(batch.payloads)
                case "async for":
                    async for _ in reader:
                        read += 1
        return read

    async def append(self, event: bytes) -> None:
        await self._writer.append(event)

    async def send(self, events: Sequence[bytes]) -> None:
        self._writer.write_batch(events)
        await self._writer.flush()

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        async with self._client.reader(self.name, until_tail=True) as reader:
            async for batch in reader.batches():
                yield batch.payloads

    @asynccontextmanager
    async def tail(self) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        settings = ReaderSettings()
        async with self._client.reader(self.name, "tail", settings=settings) as reader:
            yield (batch.payloads async for batch in reader.batches())


async def _transact(
    writer: EventWriter, keys: Sequence[str] | None, events: Sequence[bytes]
) -> None:
    async with writer.transaction() as transaction:
        transaction.write_batch(events, keys)


class Anabranch:
    """An embedded cluster with its own data directory and NATS server."""

    def __init__(
        self,
        settings: str,
        environment: Mapping[str, str],
        *,
        up: UpSettings = ONE_OF_EACH,
        parts: Parts = cluster_parts,
    ) -> None:
        self.label = Label("anabranch", settings, "D2")
        self._environment = environment
        self._up = up
        self._plan_parts = parts
        self._numbers = count(1)
        self._cluster: EmbeddedCluster | None = None
        self._client: Client | None = None
        self.part_names: list[str] = []
        """The services and the NATS servers of the cluster."""
        self.states: States = {}
        """The supervisor's view of all parts."""

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        settings = replace(self._up, data_dir=directory / "cluster")
        async with embedded_cluster(settings, watch=self._watch, parts=self._parts) as cluster:
            await cluster.wait_ready()
            async with connect(cluster.nats, name="bench") as client:
                await client.scopes.create(SCOPE)
                self._cluster, self._client = cluster, client
                yield

    def _watch(self, states: States) -> None:
        self.states = dict(states)

    def _parts(self, plan: ClusterPlan) -> list[PartSpec]:
        parts = [
            replace(part, environment={**part.environment, **self._environment})
            if part.name.startswith("segstore")
            else part
            for part in self._plan_parts(plan)
        ]
        names = [part.name for part in parts]
        self.part_names = [name for name in names if name.startswith(_MEASURED)]
        return parts

    def pids(self) -> list[int]:
        return [pid for part in self.part_names for pid in self.pids_of(part)]

    @property
    def embedded(self) -> EmbeddedCluster:
        """The cluster while it runs."""
        assert self._cluster is not None, "the cluster does not run"
        return self._cluster

    @property
    def endpoints_file(self) -> Path:
        """What clients connect by."""
        return self.embedded.endpoints_file

    @property
    def data_dir(self) -> Path:
        """Where the cluster's parts keep their data."""
        return self.embedded.data_dir

    @property
    def client(self) -> Client:
        """Connected while the cluster runs."""
        assert self._client is not None, "the cluster does not run"
        return self._client

    def pids_of(self, part: str) -> list[int]:
        """The processes of one part."""
        return self.embedded.pids(part)

    def signal(self, part: str, how: signal.Signals) -> None:
        """Send a signal to the processes of one part, which are started again if they end."""
        for pid in self.pids_of(part):
            os.kill(pid, how)

    @asynccontextmanager
    async def named_stream(
        self, segments: int = 1, *, together: bool = False
    ) -> AsyncIterator[str]:
        """The name of a fresh stream of so many segments; `together`: in one container."""
        name = f"{SCOPE}/s{next(self._numbers)}"
        config = StreamConfig(ScalingPolicy(min_segments=segments), together=together)
        await self.client.streams.create(name, config)
        yield name
        await self.client.streams.seal(name)
        await self.client.streams.delete(name)

    @asynccontextmanager
    async def stream(
        self,
        case: Case,  # noqa: ARG002
        segments: int = 1,
        *,
        together: bool = False,
    ) -> AsyncIterator[AnabranchStream]:
        async with (
            self.named_stream(segments, together=together) as name,
            self.client.writer(name) as writer,
        ):
            flushes = not NOT_FLUSHING.items() <= self._environment.items()
            yield AnabranchStream(self.client, name, writer, self.embedded, flushes=flushes)

    @asynccontextmanager
    async def table(self, settings: TableSettings | None = None) -> AsyncIterator[AnabranchTable]:
        """A fresh table with the configuration that tables have by default."""
        name = f"{SCOPE}/t{next(self._numbers)}"
        await self.client.tables.create(name)
        async with self.client.table(name, settings) as table:
            yield AnabranchTable(table)
        await self.client.tables.delete(name)


class AnabranchApart:
    """Clusters of a workload's own, each in a fresh directory: it fills them, or kills them."""

    def __init__(self) -> None:
        self.label = Label("anabranch", APART, "D2")
        self._numbers = count(1)
        self._directory: Path | None = None

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        self._directory = directory
        yield

    @asynccontextmanager
    async def cluster(
        self,
        environment: Mapping[str, str],
        *,
        up: UpSettings = ONE_OF_EACH,
        parts: Parts = cluster_parts,
    ) -> AsyncIterator[Anabranch]:
        """A cluster that runs while the block lasts; its stores have this environment."""
        assert self._directory is not None, "not run"
        own = self._directory / str(next(self._numbers))
        own.mkdir()
        cluster = Anabranch(APART, environment, up=up, parts=parts)
        async with cluster.run(own):
            yield cluster
        shutil.rmtree(own)

    def pids(self) -> list[int]:
        return []

    def stream(self, case: Case) -> AbstractAsyncContextManager[AnabranchStream]:
        raise AssertionError(f"{APART} has clusters, not streams: {case.event_bytes}")
