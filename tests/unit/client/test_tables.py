"""Administration of key-value tables by the client, against a controller in memory."""

import pytest

from anabranch.client import (
    KeyRange,
    OperationState,
    ScopeNotFound,
    TableConfig,
    TableExists,
    TableNotFound,
    TableSealed,
    TableState,
)
from anabranch.common.errors import InvalidName, InvalidRequest, ScopeNotEmpty
from kit.client_bench import bench

TABLE = "plant/latest"
DAY_MS = 24 * 3600 * 1000


async def test_a_table_is_described_with_its_partitions_and_configuration() -> None:
    async with bench() as b:
        config = TableConfig(partition_count=2, primary_key_size=8, ttl_ms=DAY_MS)

        done = await b.client.tables.create(TABLE, config)
        found = await b.client.tables.describe(TABLE)

        assert done.state is OperationState.SUCCEEDED
        assert (found.scope, found.table, found.incarnation) == ("plant", "latest", 1)
        assert (found.state, found.config, found.epoch) == (TableState.ACTIVE, config, 0)
        halves = [KeyRange(each.key_start, each.key_end) for each in found.partitions]
        assert halves == [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
        assert {each.segment for each in found.partitions} <= b.store.segments.keys()


async def test_a_table_has_four_partitions_by_default() -> None:
    async with bench() as b:
        await b.client.tables.create(TABLE)

        assert (await b.client.tables.describe(TABLE)).config == TableConfig()
        assert len((await b.client.tables.describe(TABLE)).partitions) == 4


async def test_tables_are_listed_page_by_page() -> None:
    async with bench() as b:
        for name in ("c", "a", "b"):
            await b.client.tables.create(f"plant/{name}")

        first = await b.client.tables.page("plant", page_size=2)

        assert [name async for name in b.client.tables.list("plant")] == ["a", "b", "c"]
        assert (first.tables, first.next_page_token) == (("a", "b"), "b")
        with pytest.raises(ScopeNotFound):
            [name async for name in b.client.tables.list("none")]


async def test_an_update_changes_the_time_to_live_and_nothing_else() -> None:
    async with bench() as b:
        await b.client.tables.create(TABLE, TableConfig(partition_count=3, ttl_ms=5))

        await b.client.tables.update(TABLE, ttl_ms=DAY_MS)

        config = (await b.client.tables.describe(TABLE)).config
        assert config == TableConfig(partition_count=3, ttl_ms=DAY_MS)
        with pytest.raises(InvalidRequest):
            await b.client.tables.update(TABLE, ttl_ms=-1)


async def test_an_update_of_a_table_that_was_created_anew_meanwhile_changes_nothing() -> None:
    async with bench() as b:
        await b.client.tables.create(TABLE)
        plain = b.control.execute

        async def late(*args: object, **how: object) -> OperationState:
            b.control.execute = plain  # type: ignore[method-assign]
            await b.client.tables.delete(TABLE)
            await b.client.tables.create(TABLE)
            return await plain(*args, **how)  # type: ignore[arg-type]

        b.control.execute = late  # type: ignore[method-assign]
        with pytest.raises(TableNotFound):
            await b.client.tables.update(TABLE, ttl_ms=DAY_MS)

        found = await b.client.tables.describe(TABLE)
        assert (found.incarnation, found.config.ttl_ms) == (2, 0)


async def test_a_sealed_table_can_be_described_and_deleted_but_not_configured() -> None:
    async with bench() as b:
        await b.client.tables.create(TABLE)
        segments = [each.segment for each in (await b.client.tables.describe(TABLE)).partitions]

        await b.client.tables.seal(TABLE)
        await b.client.tables.seal(TABLE)

        assert (await b.client.tables.describe(TABLE)).state is TableState.SEALED
        assert all(b.store.segments[name].sealed for name in segments)
        with pytest.raises(TableSealed):
            await b.client.tables.update(TABLE, ttl_ms=1)
        await b.client.tables.delete(TABLE)
        assert not b.store.segments.keys() & set(segments)
        with pytest.raises(TableNotFound):
            await b.client.tables.describe(TABLE)


async def test_a_taken_name_is_refused_and_a_repeated_command_is_not() -> None:
    async with bench() as b:
        await b.client.tables.create(TABLE, command_id="once")
        again = await b.client.tables.create(TABLE, command_id="once")

        assert again.operation_id == "once"
        with pytest.raises(TableExists) as refused:
            await b.client.tables.create(TABLE)
        assert f'client.tables.describe("{TABLE}")' in refused.value.remedy_for("api")


async def test_a_scope_with_a_table_is_not_deleted() -> None:
    async with bench() as b:
        await b.client.scopes.create("other")
        await b.client.tables.create("other/t")

        with pytest.raises(ScopeNotEmpty):
            await b.client.scopes.delete("other")
        await b.client.tables.delete("other/t")
        await b.client.scopes.delete("other")


@pytest.mark.parametrize("name", ["plant", "plant/", "plant/_t", "plant/a/b", "/t", ""])
async def test_a_malformed_name_is_refused_before_anything_is_sent(name: str) -> None:
    async with bench() as b:
        for call in (b.client.tables.describe, b.client.tables.seal, b.client.tables.delete):
            with pytest.raises(InvalidName):
                await call(name)
