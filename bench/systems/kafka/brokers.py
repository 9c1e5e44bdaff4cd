"""Kafka brokers as child processes on the loopback address, with KRaft and without ZooKeeper.

The first broker is the controller too. Everything that no line below sets is Kafka's default, the
options of the Java runtime are those of Kafka's own start script.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.up.ports import LOOPBACK, choose_port
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.ids import system_rng
from bench.systems.kafka.setup import KafkaPrograms
from bench.systems.process import answers, server

CLUSTER_ID = "YW5hYnJhbmNoLWJlbmNoIQ"
MESSAGE_BYTES_MAX = 2 * 2**20
"""So that a batch of 1 MiB passes with its header."""
READY_SECONDS_MAX = 90.0
FORMAT_SECONDS_MAX = 60.0
_HEAP = ("-Xms1g", "-Xmx1g")
_RUNTIME = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker among `count`.

    node: its number, from 1
    count: how many brokers the cluster has
    port, controller_port: where it serves clients, and where node 1 serves as the controller
    data: the directory of its logs
    synced: whether it syncs every message of every topic, the transaction log among them
    """

    node: int
    count: int
    port: int
    controller_port: int
    data: Path
    synced: bool


@dataclass(frozen=True, slots=True)
class Brokers:
    """Processes that run, and where."""

    addresses: str
    pids: tuple[int, ...]
    data: tuple[Path, ...]


def properties(plan: BrokerPlan) -> str:
    """The configuration file of a broker."""
    leads = plan.node == 1
    client = f"PLAINTEXT://{LOOPBACK}:{plan.port}"
    controller = f"{LOOPBACK}:{plan.controller_port}"
    copies = min(3, plan.count)
    lines = {
        "process.roles": "broker,controller" if leads else "broker",
        "node.id": plan.node,
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"{client},CONTROLLER://{controller}" if leads else client,
        "advertised.listeners": client,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": plan.data,
        "auto.create.topics.enable": "false",
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "log.segment.delete.delay.ms": 100,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min(2, copies),
        "transaction.state.log.num.partitions": 16,
    }
    if plan.synced:
        lines["log.flush.interval.messages"] = 1
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def format_command(programs: KafkaPrograms, config: Path) -> tuple[str, ...]:
    """Prepares the directory of a broker, before its first start."""
    tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
    return (*_java(programs), *tool)


def broker_command(programs: KafkaPrograms, config: Path) -> tuple[str, ...]:
    """Runs a broker until it is terminated."""
    return (*_java(programs, *_HEAP, *_RUNTIME), "kafka.Kafka", str(config))


def _java(programs: KafkaPrograms, *options: str) -> tuple[str, ...]:
    # Without the property, the logger of Kafka's artifacts writes a line for each partition.
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return (str(programs.java), *options, quiet, "-cp", f"{programs.lib}/*")


def plans(count: int, directory: Path, ports: Sequence[int], *, synced: bool) -> list[BrokerPlan]:
    """`ports`: that of the controller, then one for each broker."""
    controller_port, *broker_ports = ports
    return [
        BrokerPlan(node, count, port, controller_port, directory / f"broker-{node}", synced)
        for node, port in enumerate(broker_ports[:count], start=1)
    ]


@asynccontextmanager
async def running_brokers(
    programs: KafkaPrograms,
    count: int,
    directory: Path,
    *,
    synced: bool,
    knows_all: Callable[[str], Awaitable[bool]],
) -> AsyncIterator[Brokers]:
    """Run brokers with fresh data until the block ends.

    `knows_all`: whether a client at these addresses sees all brokers. Raises Unavailable.
    """
    planned = plans(count, directory, _ports(count + 1), synced=synced)
    configs = [directory / f"broker-{plan.node}.properties" for plan in planned]
    for plan, config in zip(planned, configs, strict=True):
        config.write_text(properties(plan))
    async with asyncio.TaskGroup() as group:
        for config in configs:
            group.create_task(_format(format_command(programs, config), config))
    addresses = ",".join(f"{LOOPBACK}:{plan.port}" for plan in planned)

    async def are_ready() -> bool:
        for plan in planned:
            if not await answers(plan.port):
                return False
        return await knows_all(addresses)

    async with AsyncExitStack() as stack:
        pids = []
        for config in configs:  # they start beside each other: only the last one is waited for
            command, log = broker_command(programs, config), config.with_suffix(".log")
            is_ready = are_ready if config is configs[-1] else _at_once
            starting = server(command, log, is_ready, ready_seconds_max=READY_SECONDS_MAX)
            pids.append(await stack.enter_async_context(starting))
        yield Brokers(addresses, tuple(pids), tuple(plan.data for plan in planned))


def _ports(count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(choose_port(0, system_rng(), frozenset(chosen)))
    return chosen


async def _at_once() -> bool:
    return True


async def _format(command: Sequence[str], config: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(FORMAT_SECONDS_MAX):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = output.decode(errors="replace").strip().splitlines()
        raise Unavailable(
            "Kafka does not prepare the directory of a broker",
            remedy=f"read {config}", reason=text[-1] if text else "", returncode=process.returncode,
        )  # fmt: skip
