"""The processes of a local cluster follow its SPU groups, and no record is lost thereby."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.client import Client, connect
from anabranch.common.errors import AnabranchError

DEADLINE_S = 60.0
LOOK_S = 0.2
STREAM = "groups/numbers"
EVENTS = 200


def of_an_earlier_release(plan: ClusterPlan) -> Sequence[PartSpec]:
    """Parts whose store draws its node id."""
    return cluster_parts(replace(plan, stores=()))


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def spus(client: Client) -> dict[str, str]:
    try:
        return {spu.name: str(spu.resolution) async for spu in client.spus.list()}
    except AnabranchError:
        return {}


def running(cluster: EmbeddedCluster) -> list[str]:
    """The parts of the stores that have a process."""
    return sorted(path.stem for path in (cluster.data_dir / "run").glob("segstore*.pid"))


async def are_online(client: Client, names: list[str]) -> None:
    async def hold() -> bool:
        return await spus(client) == dict.fromkeys(names, "online")

    await eventually(hold)


async def all_open_on(client: Client, names: list[str]) -> None:
    async def hold() -> bool:
        placed = [one async for one in client.containers.list()]
        return all(one.state == "open" and one.node_id in names for one in placed)

    await eventually(hold)


async def write(client: Client, begin: int) -> None:
    async with client.writer(STREAM) as writer:
        for number in range(begin, begin + EVENTS):
            writer.write(b"%d" % number, str(number % 7))
        await writer.flush()


async def read(client: Client, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S), client.reader(STREAM) as reader:
        async for batch in reader.batches():
            found += [int(payload) for payload in batch.payloads]
            if len(found) >= count:
                break
    return sorted(found)


async def test_the_group_main_grows_and_shrinks_and_the_next_start_finds_it_again(
    tmp_path: Path,
) -> None:
    settings = UpSettings(tmp_path / "data", container_count=3)
    async with embedded_cluster(settings) as cluster, connect(cluster.nats) as client:
        await cluster.wait_ready()
        await are_online(client, ["main-0"])
        await client.scopes.create("groups")
        await client.streams.create(STREAM, segments=3)
        await write(client, 0)

        await client.spu_groups.scale("main", 3)
        await are_online(client, ["main-0", "main-1", "main-2"])
        assert running(cluster) == ["segstore", "segstore-2", "segstore-3"]

        async def spread() -> bool:
            return len({one.node_id async for one in client.containers.list()}) == 3

        await eventually(spread)
        await write(client, EVENTS)

        await client.spu_groups.scale("main", 2)
        await are_online(client, ["main-0", "main-1"])
        await all_open_on(client, ["main-0", "main-1"])

        async def stopped() -> bool:
            return running(cluster) == ["segstore", "segstore-2"]

        await eventually(stopped)
        await write(client, 2 * EVENTS)

    async with embedded_cluster(settings) as cluster, connect(cluster.nats) as client:
        await cluster.wait_ready()
        assert running(cluster) == ["segstore", "segstore-2"]
        await are_online(client, ["main-0", "main-1"])
        await client.spu_groups.scale("main", 1)
        await are_online(client, ["main-0"])
        await all_open_on(client, ["main-0"])
        assert await read(client, 3 * EVENTS) == list(range(3 * EVENTS))


async def test_another_group_gets_stores_of_its_own_and_its_deletion_stops_them(
    tmp_path: Path,
) -> None:
    settings = UpSettings(tmp_path / "data", container_count=2)
    async with embedded_cluster(settings) as cluster, connect(cluster.nats) as client:
        await cluster.wait_ready()
        await are_online(client, ["main-0"])
        await client.spu_groups.create("extra", replicas=1, min_id=10, rack="left")
        await are_online(client, ["main-0", "extra-0"])
        stores = {store.node_id: store async for store in client.stores.list()}
        assert stores["extra-0"].rack == "left"

        await client.spu_groups.delete("extra")
        await are_online(client, ["main-0"])

        async def gone() -> bool:
            names = [group.name async for group in client.spu_groups.list()]
            return names == ["main"] and running(cluster) == ["segstore"]

        await eventually(gone)
        await all_open_on(client, ["main-0"])


async def test_a_directory_of_an_earlier_release_keeps_its_store_and_grows_by_the_group_main(
    tmp_path: Path,
) -> None:
    settings = UpSettings(tmp_path / "data", container_count=2)
    async with embedded_cluster(settings, parts=of_an_earlier_release) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats) as client:
            await client.scopes.create("groups")
            await client.streams.create(STREAM, segments=2)
            await write(client, 0)
            (drawn,) = [store.node_id async for store in client.stores.list()]
    (tmp_path / "data" / "spus.json").unlink()

    async with embedded_cluster(replace(settings, store_count=2)) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats) as client:
            await are_online(client, [drawn, "main-0"])
            found = {spu.name: spu.spec async for spu in client.spus.list()}
            assert (found[drawn].type, found[drawn].spu_id) == ("custom", 0)
            assert (found["main-0"].type, found["main-0"].spu_id) == ("managed", 1)
            assert await read(client, EVENTS) == list(range(EVENTS))
