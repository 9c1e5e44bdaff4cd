"""The demo's reader group on a real cluster: real processes, of which one is really killed."""

from pathlib import Path

from anabranch.cli.demo.check import Written
from anabranch.cli.demo.group_reading import LEASE_MS, READERS, group_reading
from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import connect
from anabranch.common.runtime.clock import SystemClock

STREAM = "demo/flights"
ROWS = 4_000


async def test_a_group_of_processes_loses_nothing_when_one_of_them_is_killed(
    tmp_path: Path,
) -> None:
    written = Written()
    async with embedded_cluster(UpSettings(tmp_path / "data")) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats) as client:
            await client.scopes.create("demo")
            await client.streams.create(STREAM, segments=4)
            folder = tmp_path / "readers"
            where = cluster.endpoints_file
            async with group_reading(client, where, STREAM, folder, SystemClock()) as reading:
                async with client.writer(STREAM) as writer:
                    for row in range(ROWS):
                        event = b'{"row":%d}' % row
                        written.add(event)
                        writer.write(event, f"key {row % 7}")
                        if row % 100 == 99:
                            await writer.flush()
                            reading.look(row + 1, ROWS // 4)
                outcome = await reading.finish(written)

    assert outcome.is_right(LEASE_MS / 1000)
    assert outcome.events == ROWS
    assert outcome.kill is not None
    assert {share.reader_id for share in outcome.readers} == set(READERS)
    assert sum(share.events for share in outcome.readers) == ROWS
