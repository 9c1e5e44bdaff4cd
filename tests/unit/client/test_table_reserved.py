"""Rows that the client keeps for itself beside those of programs, in any partition of a table."""

from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from anabranch.client import Insert, TableConfig
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.table import Table
from anabranch.client.tables.units import Performed, Refused
from anabranch.common.errors import InvalidKey
from anabranch.common.model.table import RESERVED_KEYS
from anabranch.common.wire.table_columns import ABSENT
from kit.table_bench import TableBench, table_bench

T = TypeVar("T")

OWN = RESERVED_KEYS + b"own"
PAIRS = TableConfig(partition_count=1, primary_key_size=4, secondary_key_size=None)


async def put_own(table: Table[bytes, bytes], value: bytes = b"place") -> None:
    """A reserved row in every partition."""
    for index in range(table.stored.partition_count):
        update = StoredUpdate((OWN,), (value,), (ABSENT,), 0)
        assert isinstance(await (await table.stored.update(index, update)), Performed)


async def collected(items: AsyncIterator[T]) -> list[T]:
    """Everything that the iterator yields."""
    return [item async for item in items]


def own_rows(b: TableBench) -> int:
    return sum(OWN in each.entries for each in b.segments)


async def test_a_reserved_row_lies_in_the_partition_that_is_named() -> None:
    async with table_bench() as b, b.table() as table:
        await put_own(table)
        assert own_rows(b) == 4
        found = await (await table.stored.look_up(2, (b"no", OWN)))
        assert list(found.values) == [b"", b"place"]


async def test_rows_and_a_reserved_row_change_together_or_not_at_all() -> None:
    async with table_bench() as b, b.table() as table:
        (index,), (stored,) = table.stored.places(["apple"])
        update = StoredUpdate((OWN, stored), (b"1", b"a"), (ABSENT, ABSENT), 0)
        done = await (await table.stored.update(index, update))
        assert isinstance(done, Performed)
        again = await (await table.stored.update(index, update))
        assert again == Refused(done.segment_number, done.version, 0)
        versions = (done.version, done.version + 1)
        both = StoredUpdate((OWN, stored), (b"2", None), versions, done.segment_number)
        assert isinstance(await (await table.stored.update(index, both)), Performed)
        assert await table.get("apple") is None


async def test_no_iteration_yields_a_reserved_row() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many({b"a": b"1", b"b": b"2", b"\xff" * 31: b"3"})
        await put_own(table)
        assert [each.value for each in await collected(table.entries())] == [b"1", b"2", b"3"]
        assert len(await collected(table.entries(start=b"\xff"))) == 1
        assert len(await collected(table.keys(prefix=b"\xff", end=b"\xff" * 100))) == 1
        assert await collected(table.entries(start=OWN)) == []
        assert await collected(table.entries(prefix=OWN)) == []
        assert sum(each.num_rows for each in await collected(table.scan_arrow())) == 3


async def test_a_family_of_secondary_keys_ends_before_reserved_rows() -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        await table.put((b"\xff" * 4, b"\xff"), b"1")
        await put_own(table)
        found = await collected(table.entries(primary=b"\xff" * 4))
        assert [each.value for each in found] == [b"1"]


async def test_no_watch_yields_a_reserved_row() -> None:
    async with table_bench() as b, b.table() as table:
        await put_own(table)
        await table.put(b"a", b"1")
        async with table.watch() as changes, table.watch("earliest") as all_changes:
            assert (await anext(changes)).value == b"1"
            assert (await anext(all_changes)).value == b"1"
            (index,), (stored,) = table.stored.places([b"b"])
            update = StoredUpdate((OWN + b"2", stored, OWN + b"3"), (b"x", b"2", b"y"), (), 0)
            await (await table.stored.update(index, update))
            await table.put(b"c", b"3")
            assert {(await anext(changes)).value for _ in range(2)} == {b"2", b"3"}
            assert {(await anext(all_changes)).value for _ in range(2)} == {b"2", b"3"}
            token = str(changes.position)
        await table.put(b"d", b"4")
        async with table.watch(token) as continued:
            assert (await anext(continued)).value == b"4"


async def test_a_program_cannot_name_a_reserved_row() -> None:
    async with table_bench() as b, b.table() as table:
        await put_own(table)
        with pytest.raises(InvalidKey):
            await table.put(OWN, b"1")
        with pytest.raises(InvalidKey):
            await table.get(OWN)
        with pytest.raises(InvalidKey):
            await table.get_many([b"a", OWN])
        with pytest.raises(InvalidKey):
            await table.put_many([(b"a", b"1"), (OWN, b"2")])
        with pytest.raises(InvalidKey):
            await table.update([Insert(OWN, b"1")])
        with pytest.raises(InvalidKey):
            await table.remove(OWN)
        assert await collected(table.entries()) == []


async def test_a_reserved_row_outlives_the_time_to_live_of_the_table() -> None:
    async with table_bench(TableConfig(partition_count=1, ttl_ms=60_000)) as b, b.table() as table:
        update = StoredUpdate((OWN, b"row"), (b"1", b"2"), (), 0)
        await (await table.stored.update(0, update))
        (segment,) = b.segments
        assert segment.entries[OWN].expires_ms == 0
        assert segment.entries[b"row"].expires_ms > 0
