"""A whole cluster whose NATS data is lost comes back from a backup of its metadata.

Between the backup and the loss its stores open their containers again, so what they find in tier 2
is newer than what the backup says.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import connect
from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import free_port, nats_config, nats_serves

SECONDS_MAX = 60.0
STREAM = "s/x"


@contextmanager
def nats_alone(directory: Path, store: Path) -> Iterator[str]:
    """A NATS server on the cluster's directory, without the cluster; its address."""
    port, monitor_port = free_port(), free_port()
    config = directory / "nats-alone.conf"
    config.write_text(
        nats_config(
            listen=f"{LOOPBACK}:{port}", http=f"{LOOPBACK}:{monitor_port}", store_dir=str(store)
        )
    )
    server = EmbeddedServer(
        f"nats://{LOOPBACK}:{port}",
        (str(find_program("nats-server")), "--config", str(config)),
        directory / "nats-alone.log",
        lambda: nats_serves(monitor_port),
    )
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


async def controller_command(*arguments: str) -> None:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "anabranch.cli", "controller", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    async with asyncio.timeout(SECONDS_MAX):
        _, err = await running.communicate()
    assert running.returncode == 0, err


async def write_and_read(settings: UpSettings, new: list[bytes], backup: str = "") -> list[bytes]:
    """One life of the cluster: write the events, then read all there are."""
    async with embedded_cluster(settings) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats) as client:
            if backup:
                await client.scopes.create("s")
                await client.streams.create(STREAM, segments=2)
            async with client.writer(STREAM) as writer:
                for event in new:
                    writer.write(event, key=event.decode())
            async with client.reader(STREAM, until_tail=True) as reader:
                read = [event.payload async for event in reader]
        if backup:
            await controller_command("backup", backup, "--nats", str(cluster.endpoints_file))
    return sorted(read)


async def test_a_cluster_reads_all_events_and_goes_on_after_its_metadata_was_restored(
    tmp_path: Path,
) -> None:
    settings, backup = UpSettings(data_dir=tmp_path / "data"), (tmp_path / "backup").as_uri()
    first = [b"a%03d" % number for number in range(100)]
    second = [b"b%03d" % number for number in range(100)]
    third = [b"c%03d" % number for number in range(100)]
    assert await write_and_read(settings, first, backup) == first
    assert await write_and_read(settings, second) == [*first, *second]
    store = tmp_path / "data" / "nats"
    shutil.rmtree(store)

    with nats_alone(tmp_path, store) as url:
        await controller_command("restore", backup, "--nats", url)

    assert await write_and_read(settings, third) == [*first, *second, *third]
