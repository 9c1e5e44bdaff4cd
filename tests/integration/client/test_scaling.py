"""Eight writers and two readers of a stream that is scaled 1 → 4 → 2 → 8 under them.

By the embedded cluster that users have, and by a controller in memory behind a real NATS server.
"""

from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import connect
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.nats_target import nats_target
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.nats_controller import nats_controller
from kit.scaling_traffic import check_traffic_over_scales, scale_to, truncate_to_current

STREAM = stream_ref("scales/numbers")


async def test_a_cluster_scales_a_stream_under_its_writers_and_readers(tmp_path: Path) -> None:
    async with (
        embedded_cluster(UpSettings(tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create(STREAM.scope)
        await client.streams.create(str(STREAM))
        await check_traffic_over_scales(client, STREAM)


async def test_writers_and_readers_pass_over_what_a_truncation_deleted(tmp_path: Path) -> None:
    async with (
        embedded_cluster(UpSettings(tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create(STREAM.scope)
        await client.streams.create(str(STREAM))
        async with client.writer(STREAM) as connected, client.writer(STREAM) as idle:
            await connected.append(b"given up", "k")
            await scale_to(client, STREAM, 2)
            await truncate_to_current(client, STREAM)
            await connected.append(b"1", "k")
            await idle.append(b"2", "k")
        async with client.reader(STREAM, until_tail=True) as reader:
            assert [event.payload async for event in reader] == [b"1", b"2"]


async def test_a_client_follows_scales_that_it_hears_of_by_nats(nats_url: str) -> None:
    connection = await connect_nats(nats_target(nats_url), "fake controller")
    try:
        async with (
            FakeSegmentStore() as store,
            nats_controller(FakeController(store), connection),
            connect(nats_url) as client,
        ):
            await client.scopes.create(STREAM.scope)
            await client.streams.create(str(STREAM))
            await check_traffic_over_scales(client, STREAM)
    finally:
        await connection.close()
