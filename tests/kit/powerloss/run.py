"""One round: a fresh cluster, its power cut at a moment, the same directory started again."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.up.directory import NATS_CREDENTIALS
from anabranch.cli.up.ports import choose_port
from anabranch.client import Client, TextSerializer, connect
from anabranch.common.errors import AnabranchError, NotFound, TableNotFound
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import system_rng
from kit.powerloss.disk import PoweredDisk, powered_disk
from kit.powerloss.ledger import (
    EVENTS,
    SCOPE,
    TABLE,
    TRANSACTIONS,
    Found,
    Kind,
    Ledger,
    read_ledger,
    violations,
)
from kit.powerloss.processes import ClusterProcess

PROGRAM = "anabranch.cli"
READY_S_MAX = 60.0
ASK_S_MAX = 60.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Round:
    """`directory` is empty and on another file system; the power goes `at_s` seconds after `up`
    was started, or after it was ready. `program`: what stands for the command `anabranch`."""

    directory: Path
    at_s: float
    when_ready: bool = False
    program: str = PROGRAM


@dataclass(slots=True)
class RoundResult:
    """What became of a round."""

    was_ready: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    restart_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def line(self) -> str:
        """In one line."""
        counted = [f"{len(self.ledger.acknowledged[kind]):,} {kind}s" for kind in Kind]
        before = "after" if self.was_ready else "before"
        return (
            f"{before} ready; acknowledged {', '.join(counted)}; ready again in "
            f"{self.restart_s:.1f} s; {len(self.violations)} violations"
        )


async def perform(round_: Round) -> RoundResult:
    """Perform it. Nothing of it runs or is mounted afterwards; logs stay in `directory`."""
    result = RoundResult()
    with powered_disk(round_.directory) as disk:
        ledger, port = round_.directory / "ledger", choose_port(0, system_rng())
        with _workload(_early_endpoints(round_, disk, port), ledger):
            await _live_until_the_cut(round_, disk, port, result)
        result.ledger = read_ledger(ledger)
        with _cluster(round_, disk, port) as cluster:
            try:
                await _come_back(cluster, disk, result)
            except (AnabranchError, TimeoutError, RuntimeError) as error:
                result.violations.append(f"{type(error).__name__}: {error}")
    return result


async def _live_until_the_cut(
    round_: Round, disk: PoweredDisk, port: int, result: RoundResult
) -> None:
    with _cluster(round_, disk, port) as cluster:
        if round_.when_ready:
            await _until_ready(cluster, disk)
        await SystemClock().sleep(round_.at_s)
        result.was_ready = _endpoints(disk).exists()
    disk.come_back()
    _endpoints(disk).unlink(missing_ok=True)  # it is there again when all is ready again


@contextmanager
def _cluster(round_: Round, disk: PoweredDisk, port: int) -> Iterator[ClusterProcess]:
    """A cluster in the block, whose power is cut at its end."""
    log = round_.directory / "up.log"
    cluster = ClusterProcess(disk.root / "data", port, log, round_.program)
    try:
        yield cluster
    finally:
        frozen = cluster.freeze()
        disk.cut()
        cluster.end(frozen)


@contextmanager
def _workload(endpoints: Path, ledger: Path) -> Iterator[None]:
    with (ledger.parent / "workload.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kit.powerloss.workload",
             "--nats", str(endpoints), "--ledger", str(ledger)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _come_back(cluster: ClusterProcess, disk: PoweredDisk, result: RoundResult) -> None:
    began_s = SystemClock().monotonic()
    await _until_ready(cluster, disk)
    result.restart_s = SystemClock().monotonic() - began_s
    async with connect(_endpoints(disk)) as client:
        async with _in_time("reading everything"):
            found = await _find(client)
        result.violations += violations(result.ledger, found)
        async with _in_time("new work"):
            await _work_on(client)


@asynccontextmanager
async def _in_time(doing: str) -> AsyncIterator[None]:
    """Raises TimeoutError, which says what took too long."""
    try:
        async with asyncio.timeout(ASK_S_MAX):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{doing} took more than {ASK_S_MAX:g} s") from error


async def _until_ready(cluster: ClusterProcess, disk: PoweredDisk) -> None:
    async with asyncio.timeout(READY_S_MAX):
        while not _endpoints(disk).exists():
            if cluster.ended:
                raise RuntimeError("the cluster does not start on what the disk holds")
            await SystemClock().sleep(LOOK_S)


async def _find(client: Client) -> Found:
    """Everything that a cluster shows."""
    try:
        streams = frozenset([f"{SCOPE}/{name}" async for name in client.streams.list(SCOPE)])
    except NotFound:
        return Found()
    events: list[tuple[str | None, str]] = []
    transactions: list[str] = []
    if EVENTS in streams:
        async with client.reader(EVENTS, until_tail=True) as reader:
            async for batch in reader.batches():
                texts = [payload.decode() for payload in batch.payloads]
                events += zip(batch.keys, texts, strict=True)
    if TRANSACTIONS in streams:
        # Up to a tail cut, which divides no transaction: a commit may be under way again.
        tail = await client.streams.tail_cut(TRANSACTIONS)
        for segment_range in await client.batch.segment_ranges(TRANSACTIONS, end=tail):
            async with client.batch.read_range(segment_range) as reader:
                async for batch in reader:
                    transactions += [payload.decode() for payload in batch.payloads]
    return Found(streams, events, transactions, await _entries(client))


async def _entries(client: Client) -> dict[tuple[str, str], int]:
    """The entries of the table; none if it was not created."""
    keys = (TextSerializer(), TextSerializer())
    with suppress(TableNotFound):
        async with client.table(TABLE, key=keys) as table:
            return {entry.key: int(entry.value) async for entry in table.entries()}
    return {}


async def _work_on(client: Client) -> None:
    """New work is done as if nothing had been: a stream, an event, a transaction, an entry."""
    with suppress(AnabranchError):
        await client.scopes.create("after")
    await client.streams.create("after/loss")
    async with client.writer("after/loss") as writer:
        writer.write(b"event", "key")
        await writer.flush()
        async with writer.transaction() as transaction:
            transaction.write(b"in a transaction", "key")
    await client.tables.create("after/table")
    async with client.table("after/table") as table:
        await table.insert(b"key", b"value")


def _endpoints(disk: PoweredDisk) -> Path:
    return disk.root / "data" / "endpoints.json"


def _early_endpoints(round_: Round, disk: PoweredDisk, port: int) -> Path:
    """An endpoints file for a workload that begins before the cluster is ready."""
    credentials = disk.root / "data" / NATS_CREDENTIALS
    told = {"nats": f"nats://127.0.0.1:{port}", "nats_credentials": str(credentials)}
    file = round_.directory / "endpoints.json"
    file.write_text(json.dumps(told))
    return file
