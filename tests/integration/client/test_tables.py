"""Key-value tables on a real cluster, administered over NATS, over HTTP and on the command line."""

from collections.abc import Iterator

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings
from anabranch.client import (
    Client,
    ScopeNotEmpty,
    TableConfig,
    TableNotFound,
    TableState,
    blocking,
    connect,
)
from kit.command_line import CommandLine
from kit.module_cluster import running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(UpSettings(tmp_path_factory.mktemp("tables") / "data")) as running:
        yield running


async def life_of(client: Client, scope: str) -> None:
    """Create, configure, seal and delete a table, and create it again."""
    await client.scopes.create(scope)
    table = f"{scope}/latest"
    await client.tables.create(table, TableConfig(partition_count=3))
    made = await client.tables.describe(table)
    for each in made.partitions:
        info = await client.ranges().info(each.segment)
        assert not info.sealed
    await client.tables.update(table, ttl_ms=60_000)
    assert (await client.tables.describe(table)).config.ttl_ms == 60_000
    await client.tables.seal(table)
    assert (await client.tables.describe(table)).state is TableState.SEALED
    for each in made.partitions:
        assert (await client.ranges().info(each.segment)).sealed
    with pytest.raises(ScopeNotEmpty):
        await client.scopes.delete(scope)
    await client.tables.delete(table)
    with pytest.raises(TableNotFound):
        await client.tables.describe(table)
    await client.tables.create(table, TableConfig(partition_count=1))
    again = await client.tables.describe(table)
    assert {p.segment for p in again.partitions}.isdisjoint(p.segment for p in made.partitions)
    assert [name async for name in client.tables.list(scope)] == ["latest"]
    await client.scopes.delete(scope, recursive=True)


async def test_a_table_lives_in_the_stores_of_a_cluster_by_both_ways(
    cluster: EmbeddedCluster,
) -> None:
    async with connect(cluster.nats) as over_nats:
        await life_of(over_nats, "nats")
    async with connect(str(cluster.endpoints["gateway"])) as over_http:
        await life_of(over_http, "http")


def test_a_blocking_client_administers_tables(cluster: EmbeddedCluster) -> None:
    with blocking.connect(cluster.nats, call_timeout_s=30) as client:
        client.scopes.create("both")
        client.tables.create("both/a", TableConfig(partition_count=1))
        assert list(client.tables.list("both")) == ["a"]
        assert client.tables.describe("both/a").state is TableState.ACTIVE
        client.scopes.delete("both", recursive=True)


async def test_the_command_administers_tables_over_http(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    sh, http = CommandLine(capsys), ("--http", str(cluster.endpoints["gateway"]))
    await sh.lines("scope", "create", "shop", *http)
    await sh.lines("table", "create", "shop/stock", "--partitions", "2", *http)
    assert await sh.lines("table", "list", "shop", *http) == ["shop/stock"]
    await sh.lines("table", "seal", "shop/stock", *http)
    await sh.lines("table", "delete", "shop/stock", *http)
    assert await sh.lines("table", "list", "shop", *http) == []
    await sh.lines("scope", "delete", "shop", *http)
