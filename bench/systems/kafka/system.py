"""Kafka: topics of one partition, written by `confluent-kafka` with `acks=all`.

As installed it acknowledges what is in the page cache of all replicas that are in sync (D1). With
`flush.messages=1` every replica syncs a batch before it is acknowledged (D2). The
modules that need the Python client are imported when brokers start: a run without Kafka has none.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from bench.case import MIB, Case, case_of
from bench.systems.kafka.brokers import Brokers, running_brokers
from bench.systems.kafka.setup import KafkaPrograms
from bench.systems.port import Label
from bench.systems.process import until

if TYPE_CHECKING:
    from bench.systems.kafka.stream import KafkaStream
    from bench.systems.kafka.topics import Topics

UNSYNCED = "unsynced"
SYNCED = "flush.messages 1"
BROKERS = 3
REMOVE_SECONDS_MAX = 60.0
_WARM_UP_BYTES = 64 * MIB
_WARM_UP_SIZES = (100, 1_024)
_WARM_UP_AWAITED = 500


@dataclass(frozen=True, slots=True)
class TopicKind:
    """How many brokers have a copy of a topic, and whether they sync before they acknowledge."""

    replication: int
    synced: bool


def topic_config(kind: TopicKind) -> dict[str, str]:
    """The configuration of such a topic, beyond Kafka's defaults."""
    in_sync = {"min.insync.replicas": str(min(2, kind.replication))}
    return {**in_sync, **({"flush.messages": "1"} if kind.synced else {})}


def label_of(synced: bool, brokers: int = 1) -> Label:
    """What stands in a row."""
    settings = SYNCED if synced else UNSYNCED
    where = "" if brokers == 1 else f"{brokers} brokers, "
    return Label("kafka", where + settings, "D2" if synced else "D1")


LABELS = tuple(label_of(synced) for synced in (False, True))
"""Those of one broker."""
REPLICATED_LABELS = tuple(label_of(synced, BROKERS) for synced in (False, True))


class KafkaCluster:
    """Brokers that run."""

    def __init__(self, brokers: Brokers, topics: "Topics") -> None:
        self._brokers = brokers
        self._topics = topics
        self._numbers = count(1)

    def pids(self) -> list[int]:
        return list(self._brokers.pids)

    @asynccontextmanager
    async def stream(self, kind: TopicKind, partitions: int = 1) -> "AsyncIterator[KafkaStream]":
        """A fresh topic. After the block it is deleted, and no broker has files of it left."""
        from bench.systems.kafka.stream import KafkaStream

        name = f"bench-{next(self._numbers)}"
        topic = await self._topics.create(name, partitions, kind.replication, topic_config(kind))
        stream = KafkaStream(topic)
        try:
            yield stream
        finally:
            await stream.close()
            await self._topics.delete(name)
            await self._removed(name)

    async def _removed(self, name: str) -> None:
        """Return when the files are gone: the next round has the disk and its room for itself."""

        async def is_removed() -> bool:
            return not any(any(data.glob(f"{name}-*")) for data in self._brokers.data)

        await until(is_removed, REMOVE_SECONDS_MAX)

    async def warm_up(self, kind: TopicKind) -> None:
        """Write and read until the Java runtime has compiled what a measurement runs."""
        for size in _WARM_UP_SIZES:
            case = case_of(size)
            async with self.stream(kind) as stream:
                await stream.write_all(repeat(case.events, _WARM_UP_BYTES // case.pool_bytes))
                async for _ in stream.read_back():
                    pass
        async with self.stream(kind) as stream:
            for event in case.events[:_WARM_UP_AWAITED]:
                await stream.append(event)


@asynccontextmanager
async def kafka_cluster(
    programs: KafkaPrograms, brokers: int, directory: Path, *, synced: bool
) -> AsyncIterator[KafkaCluster]:
    """So many brokers, warmed up, for as long as the block lasts."""
    from bench.systems.kafka.topics import Topics

    async def knows_all(addresses: str) -> bool:
        return await Topics(addresses).broker_count() == brokers

    async with running_brokers(
        programs, brokers, directory, synced=synced, knows_all=knows_all
    ) as running:
        cluster = KafkaCluster(running, Topics(running.addresses))
        await cluster.warm_up(TopicKind(brokers, synced))
        yield cluster


class Kafka:
    """A broker of its own. If `synced`, it syncs its transaction log too."""

    def __init__(self, programs: KafkaPrograms, *, synced: bool) -> None:
        self.label = label_of(synced)
        self._programs = programs
        self._kind = TopicKind(1, synced)
        self._cluster: KafkaCluster | None = None

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        running = kafka_cluster(self._programs, 1, directory, synced=self._kind.synced)
        async with running as self._cluster:
            yield

    def pids(self) -> list[int]:
        return self._running().pids()

    def stream(
        self,
        case: Case,  # noqa: ARG002
        segments: int = 1,
    ) -> "AbstractAsyncContextManager[KafkaStream]":
        return self._running().stream(self._kind, segments)

    def _running(self) -> KafkaCluster:
        assert self._cluster is not None, "the broker does not run"
        return self._cluster


class KafkaTopics:
    """Topics of one kind on brokers that run already."""

    def __init__(self, label: Label, cluster: KafkaCluster, kind: TopicKind) -> None:
        self.label = label
        self._cluster = cluster
        self._kind = kind

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:  # noqa: ARG002
        yield

    def pids(self) -> list[int]:
        return self._cluster.pids()

    def stream(self, case: Case) -> "AbstractAsyncContextManager[KafkaStream]":  # noqa: ARG002
        return self._cluster.stream(self._kind)


class KafkaApart:
    """Three brokers, which a workload starts once for the rows with and without syncs.

    Each start has a fresh directory, because several workloads share the one of a run.
    """

    def __init__(self, programs: KafkaPrograms, *, synced: bool) -> None:
        self.label = label_of(synced, BROKERS)
        self.synced = synced
        self._programs = programs
        self._numbers = count(1)
        self._directory: Path | None = None

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        self._directory = directory
        yield

    @asynccontextmanager
    async def brokers(self) -> AsyncIterator[KafkaCluster]:
        """Fresh brokers; whether they sync is said by each topic. Their data go with the block."""
        assert self._directory is not None, "not run"
        own = self._directory / str(next(self._numbers))
        own.mkdir()
        async with kafka_cluster(self._programs, BROKERS, own, synced=False) as cluster:
            yield cluster
        shutil.rmtree(own)

    def on(self, cluster: KafkaCluster, replication: int) -> KafkaTopics:
        """Topics with so many copies as a system."""
        return KafkaTopics(self.label, cluster, TopicKind(replication, self.synced))

    def pids(self) -> list[int]:
        return []

    def stream(self, case: Case) -> AbstractAsyncContextManager["KafkaStream"]:
        raise AssertionError(f"the brokers do not run: {case.event_bytes}")
