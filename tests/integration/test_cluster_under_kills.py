"""A real cluster whose parts are killed one after the other while a stream is written and read.

Whatever dies, every event that was written is read exactly once, and those of one key in the order
of their writing.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import os
import signal
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, connect
from anabranch.common.errors import BufferFull

STREAM = "kills/numbers"
KEYS = 7
WRITERS = 2
KILLED = ("segstore", "controller", "nats", "segstore")
ALL_READ_S_MAX = 30.0


class Audit:
    """Who wrote how many events, and which were read."""

    def __init__(self) -> None:
        self.written = [0] * WRITERS
        self.read = 0
        self.total: int | None = None
        """How many events there are, once that is known."""
        self.done = asyncio.Event()
        self._last: dict[tuple[int, int], int] = {}

    def note_read(self, payload: bytes) -> None:
        """Events of a key must come as 0, KEYS, 2 · KEYS …: none lost, repeated or moved."""
        writer, number = map(int, payload.split(b":"))
        key = (writer, number % KEYS)
        assert number == self._last.get(key, number % KEYS - KEYS) + KEYS, "lost or out of order"
        self._last[key] = number
        self.read += 1


async def write(client: Client, audit: Audit, writer_number: int) -> None:
    async with client.writer(STREAM) as writer:
        number = 0
        while not audit.done.is_set():
            try:
                for _ in range(50):
                    key = f"{writer_number}-{number % KEYS}"
                    writer.write(b"%d:%d" % (writer_number, number), key)
                    number += 1
            except BufferFull:
                await writer.drain()
            await asyncio.sleep(0.005)
    audit.written[writer_number] = number


async def read(client: Client, audit: Audit) -> None:
    async with client.reader(STREAM) as reader:
        async for batch in reader.batches():
            for payload in batch.payloads:
                audit.note_read(payload)
            if audit.total is not None and audit.read >= audit.total:
                return


async def kill_one_after_the_other(cluster: EmbeddedCluster, client: Client) -> None:
    for part in KILLED:
        (pid,) = cluster.pids(part)
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5)  # long enough to be noticed, so that "ready" means again
        await cluster.wait_ready()
        async with client.writer(STREAM) as probe:
            await probe.flush()


async def test_every_event_survives_the_death_of_any_part(tmp_path: Path) -> None:
    audit = Audit()
    async with (
        embedded_cluster(UpSettings(data_dir=tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await client.scopes.create("kills")
        await client.streams.create(STREAM, segments=3)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(client, audit))
            writing = [group.create_task(write(client, audit, number)) for number in range(WRITERS)]
            await kill_one_after_the_other(cluster, client)
            audit.done.set()
            await asyncio.wait(writing)
            audit.total = sum(audit.written) + 1
            async with client.writer(STREAM) as last:  # so that a reader at the tail looks again
                number = audit.written[0]
                await last.append(b"0:%d" % number, f"0-{number % KEYS}")
            async with asyncio.timeout(ALL_READ_S_MAX):
                await reading
    assert audit.read == audit.total
    assert min(audit.written) > 1000
