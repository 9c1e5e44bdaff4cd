"""Containers that move between two real segment stores while a stream is written and read.

Every event is read exactly once, and those of one key in the order of their writing.
"""

import asyncio
from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import Client, connect
from anabranch.common.errors import BufferFull

STREAM = "moves/numbers"
KEYS = 5
MOVES = 4
CONTAINERS = 2
MOVED_S_MAX = 60.0


class Audit:
    """How many events were written, and which were read."""

    def __init__(self) -> None:
        self.written = 0
        self.read = 0
        self.total: int | None = None
        self.done = asyncio.Event()
        self._last: dict[int, int] = {}

    async def reads_on(self) -> None:
        """Return when something was read from now on."""
        before = self.read
        async with asyncio.timeout(MOVED_S_MAX):
            while self.read == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def note_read(self, payload: bytes) -> None:
        """Events of a key must come as 0, KEYS, 2 · KEYS …: none lost, repeated or moved."""
        number = int(payload)
        key = number % KEYS
        assert number == self._last.get(key, key - KEYS) + KEYS, "lost or out of order"
        self._last[key] = number
        self.read += 1


async def write(client: Client, audit: Audit) -> None:
    async with client.writer(STREAM) as writer:
        while not audit.done.is_set():
            try:
                for _ in range(20):
                    writer.write(b"%d" % audit.written, str(audit.written % KEYS))
                    audit.written += 1
            except BufferFull:
                await writer.drain()
            await asyncio.sleep(0.005)


async def read(client: Client, audit: Audit) -> None:
    async with client.reader(STREAM) as reader:
        async for batch in reader.batches():
            for payload in batch.payloads:
                audit.note_read(payload)
            if audit.total is not None and audit.read >= audit.total:
                return


async def move_everything(client: Client) -> None:
    """Each container to the store that it is not on; returns when all are open there."""
    nodes = [node.node_id async for node in client.stores.list()]
    wanted: dict[int, str] = {}
    async for found in client.containers.list():
        (other,) = set(nodes) - {found.node_id}
        wanted[found.container] = other
        await client.containers.move(found.container, other)
    async with asyncio.timeout(MOVED_S_MAX):
        while True:
            placed = [one async for one in client.containers.list()]
            if all((c.node_id, c.state) == (wanted[c.container], "open") for c in placed):
                return
            await asyncio.sleep(0.05)


async def test_every_event_is_read_once_and_in_order_while_containers_move(tmp_path: Path) -> None:
    audit = Audit()
    settings = UpSettings(tmp_path / "data", store_count=2, container_count=CONTAINERS)
    async with (
        embedded_cluster(settings) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        assert len(cluster.segstore_pids()) == 2
        await client.scopes.create("moves")
        await client.streams.create(STREAM, segments=3)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(client, audit))
            writing = group.create_task(write(client, audit))
            for _ in range(MOVES):
                await move_everything(client)
                await audit.reads_on()
            audit.done.set()
            await writing
            audit.total = audit.written + 1
            async with client.writer(STREAM) as last:  # so that a reader at the tail looks again
                await last.append(b"%d" % audit.written, str(audit.written % KEYS))
            async with asyncio.timeout(MOVED_S_MAX):
                await reading
        epochs = [found.container_epoch async for found in client.containers.list()]
    assert audit.read == audit.total
    assert min(epochs) > MOVES
