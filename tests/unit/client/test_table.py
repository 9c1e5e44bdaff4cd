"""Key-value tables as a program uses them: entries, versions, batches, errors, ends."""

from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from anabranch.client import (
    Closed,
    Entry,
    Insert,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    InvalidSetting,
    JsonSerializer,
    KeyExists,
    KeyNotFound,
    Put,
    PydanticSerializer,
    Remove,
    Replace,
    SerializationFailed,
    Table,
    TableConfig,
    TableKey,
    TableNotFound,
    TableSealed,
    TableSettings,
    TextSerializer,
    Version,
    VersionMismatch,
)
from anabranch.common.model.table import VALUE_SIZE_BYTES_MAX, TableState
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX
from anabranch.common.wire.table_columns import decode_numbers
from kit.table_bench import PAIRS, SETTINGS, TABLE, collected, table_bench


class Stock(BaseModel):
    count: int


# --- entries ------------------------------------------------------------------------------


async def test_an_entry_that_was_put_is_got() -> None:
    async with table_bench() as b, b.table() as table:
        assert await table.get("apple") is None
        version = await table.put("apple", "5")
        assert await table.get("apple") == Entry(b"apple", b"5", version, 0)
        assert await table.get(b"apple") == await table.get(bytearray(b"apple"))
        assert await table.exists("apple")
        assert not await table.exists("pear")


async def test_every_update_gives_an_entry_another_version() -> None:
    async with table_bench() as b, b.table() as table:
        versions = [await table.put("apple", "5") for _ in range(3)]
        assert len(set(versions)) == 3
        entry = await table.get("apple")
        assert entry is not None
        assert entry.version == versions[-1]


async def test_serializers_make_the_keys_and_values() -> None:
    async with table_bench() as b:
        table: Table[str, Stock] = b.client.table(
            TABLE, SETTINGS, key=TextSerializer(), value=PydanticSerializer(Stock)
        )
        async with table:
            await table.put("apple", Stock(count=5))
            entry = await table.get("apple")
            assert entry is not None
            assert (entry.key, entry.value.count) == ("apple", 5)
            with pytest.raises(SerializationFailed):
                await table.put("apple", 5)  # type: ignore[arg-type]
            assert b.entries() == {b"apple": b'{"count":5}'}


async def test_a_value_that_cannot_be_deserialized_raises_its_error() -> None:
    async with table_bench() as b, b.table() as raw:
        await raw.put("apple", "no number")
        async with b.client.table(TABLE, SETTINGS, value=JsonSerializer()) as table:
            with pytest.raises(SerializationFailed):
                await table.get("apple")
            assert await table.exists("apple")


async def test_insert_takes_a_new_key_alone() -> None:
    async with table_bench() as b, b.table() as table:
        version = await table.insert("apple", "5")
        with pytest.raises(KeyExists) as refused:
            await table.insert("apple", "6")
        fields = refused.value.fields
        assert (fields["table"], fields["key"]) == (TABLE, "apple")
        assert Version.parse(str(fields["version"])) == version
        assert b.entries() == {b"apple": b"5"}


async def test_replace_demands_the_present_version() -> None:
    async with table_bench() as b, b.table() as table:
        first = await table.put("apple", "5")
        second = await table.replace("apple", "6", first)
        with pytest.raises(VersionMismatch) as refused:
            await table.replace("apple", "7", first)
        assert not isinstance(refused.value, KeyExists)
        assert Version.parse(str(refused.value.fields["version"])) == second
        await table.remove("apple")
        with pytest.raises(KeyNotFound) as gone:
            await table.replace("apple", "7", second)
        assert gone.value.fields["key"] == "apple"
        assert b.entries() == {}


async def test_remove_may_demand_a_version() -> None:
    async with table_bench() as b, b.table() as table:
        first = await table.put("apple", "5")
        second = await table.put("apple", "6")
        with pytest.raises(VersionMismatch):
            await table.remove("apple", first)
        removed = await table.remove("apple", second)
        assert removed not in (first, second)
        with pytest.raises(KeyNotFound):
            await table.remove("apple", second)
        await table.remove("apple")
        assert b.entries() == {}


async def test_a_version_of_another_partition_never_matches() -> None:
    async with table_bench() as b, b.table() as table:
        versions = {key: await table.put(key, "x") for key in "abcdefgh"}
        own = versions["a"]
        other = next(each for each in versions.values() if each.segment_id != own.segment_id)
        forged = Version(other.segment_id, own.segment_number, own.number)
        for wrong in (other, forged, own._replace(segment_number=own.segment_number + 1)):
            with pytest.raises(VersionMismatch) as refused:
                await table.replace("a", "y", wrong)
            assert Version.parse(str(refused.value.fields["version"])) == own
        with pytest.raises(KeyNotFound):
            await table.replace("none", "y", forged)


async def test_a_version_of_an_earlier_life_of_the_table_never_matches() -> None:
    async with table_bench() as b:
        async with b.table() as table:
            before = await table.put("apple", "5")
        b.recreate(TableConfig())
        async with b.table() as table:
            present = await table.put("apple", "5")
            assert present != before
            with pytest.raises(VersionMismatch):
                await table.replace("apple", "6", before)


async def test_a_version_is_a_token() -> None:
    version = Version(3, 17, 4711)
    assert str(version) == "3.17.4711"
    assert Version.parse(str(version)) == version
    assert len({version, Version.parse("3.17.4711")}) == 1
    for wrong in ("", "1.2", "1.2.3.4", "1.2.x", "1.-2.3", "1.2.٣", f"1.2.{1 << 63}"):
        with pytest.raises(InvalidRequest):
            Version.parse(wrong)


# --- time to live -------------------------------------------------------------------------


async def test_puts_live_as_long_as_the_table_says() -> None:
    async with table_bench(TableConfig(ttl_ms=1000)) as b, b.table() as table:
        await table.put("apple", "5")
        await table.put_many([("pear", "7")])
        entry = await table.get("apple")
        assert entry is not None
        assert entry.expires_ms == 1000
        for segment in b.segments:
            segment.now_ms = 1000
        assert await table.get("apple") is None
        assert await collected(table.keys()) == []
        await table.insert("apple", "6")


async def test_a_put_may_have_a_time_to_live_of_its_own() -> None:
    async with table_bench(TableConfig(ttl_ms=1000)) as b, b.table() as table:
        await table.put("brief", "x", ttl_ms=10)
        await table.insert("endless", "x", ttl_ms=0)
        await table.put_many([("many", "x")], ttl_ms=20)
        await table.update([Put("batch", "x")], ttl_ms=30)
        found = await table.get_many(["brief", "endless", "many", "batch"])
        assert [entry.expires_ms for entry in found if entry] == [10, 0, 20, 30]
        with pytest.raises(InvalidRequest):
            await table.put("wrong", "x", ttl_ms=-1)


# --- many entries -------------------------------------------------------------------------


async def test_many_entries_are_put_and_got_in_the_order_of_the_call() -> None:
    async with table_bench() as b, b.table() as table:
        pairs = [(f"key {n}", f"value {n}") for n in range(200)]
        versions = await table.put_many(pairs)
        assert len(versions) == 200
        found = await table.get_many([key for key, _ in pairs] + ["none", "key 7"])
        entries = [entry for entry in found if entry]
        assert [entry.version for entry in entries[:200]] == list(versions)
        assert versions[-1] == versions[199] == entries[199].version
        assert versions[3:5] == [entries[3].version, entries[4].version]
        assert [entry.value.decode() for entry in entries[:200]] == [value for _, value in pairs]
        assert found[200] is None
        assert found[201] == entries[7]
        assert len(b.requests()) == 4, "one request per partition"


async def test_a_mapping_is_put_and_nothing_is_put_by_nothing() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put_many({"a": "1", "b": "2"})
        assert (list(await table.put_many({})), await table.get_many([])) == ([], [])
        assert b.entries() == {b"a": b"1", b"b": b"2"}


async def test_of_two_entries_with_one_key_the_later_one_stays() -> None:
    async with table_bench(TableConfig(partition_count=1)) as b, b.table() as table:
        pairs = [("same", "first"), *((f"{n}", "") for n in range(UPDATE_ENTRIES_MAX))]
        versions = await table.put_many([*pairs, ("same", "last")])
        assert b.entries()[b"same"] == b"last"
        assert versions[0] != versions[-1]
        assert len(b.requests()) == 2


async def test_a_batch_is_divided_at_the_limits_of_a_request() -> None:
    async with table_bench(TableConfig(partition_count=1)) as b, b.table() as table:
        await table.put_many([(f"{n}", bytes(700_000)) for n in range(14)])
        assert len(b.entries()) == 14
        sizes = [list(decode_numbers(each.units, "I")) or [1] for each in b.requests()]
        assert [len(units) for units in sizes] == [5, 2], "several batches travel in a request"
        assert {size for units in sizes for size in units} == {2}


@pytest.mark.parametrize("count", [1, 5, 100])
async def test_a_failed_batch_fails_the_whole_call(count: int) -> None:
    async with table_bench() as b, b.table() as table:
        b.seal()
        with pytest.raises(TableSealed):
            await table.put_many([(f"{n}", "") for n in range(count)])
        assert b.entries() == {}


# --- atomic batches -----------------------------------------------------------------------


async def test_a_batch_is_performed_whole() -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        apple = await table.put(("shop", "apple"), "5")
        await table.put(("shop", "old"), "x")
        versions = await table.update(
            [
                Replace(("shop", "apple"), "4", apple),
                Insert(("shop", "sold"), "1"),
                Put(("shop", "pear"), "7"),
                Remove(("shop", "old")),
            ]
        )
        entries = [entry async for entry in table.entries(primary="shop")]
        assert [(entry.key, entry.value) for entry in entries] == [
            ((b"shop", b"apple"), b"4"), ((b"shop", b"pear"), b"7"), ((b"shop", b"sold"), b"1"),
        ]  # fmt: skip
        assert [entry.version for entry in entries] == [versions[0], versions[2], versions[1]]
        assert len(set(versions)) == 4
        assert len(b.requests()) == 3


REFUSED = [
    ([Put(("s", "a"), "x"), Insert(("s", "b"), "x")], KeyExists, "s, b"),
    ([Put(("s", "a"), "x"), Replace(("s", "c"), "x", Version(0, 10, 5))], KeyNotFound, "s, c"),
    ([Remove(("s", "b"), Version(0, 10, 5))], VersionMismatch, "s, b"),
    ([Remove(("s", "c"), Version(0, 10, 5)), Put(("s", "a"), "x")], KeyNotFound, "s, c"),
]


@pytest.mark.parametrize(("updates", "error", "key"), REFUSED)
async def test_a_batch_whose_condition_does_not_hold_changes_nothing_and_names_the_key(
    updates: Sequence[Put[tuple[str, str], str]], error: type[Exception], key: str
) -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        await table.put(("s", "b"), "old")
        with pytest.raises(error) as refused:
            await table.update(updates)
        assert refused.value.fields["key"] == key  # type: ignore[attr-defined]
        assert [entry.value async for entry in table.entries()] == [b"old"]


async def test_a_batch_may_have_versions_of_several_lives() -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        first, second = await table.put(("s", "a"), "1"), await table.put(("s", "b"), "2")
        stale = second._replace(segment_number=second.segment_number - 1)
        with pytest.raises(VersionMismatch) as refused:
            await table.update([Replace(("s", "a"), "x", first), Replace(("s", "b"), "y", stale)])
        assert refused.value.fields["key"] == "s, b"
        await table.update([Replace(("s", "a"), "x", first), Replace(("s", "b"), "y", second)])
        assert sorted(b.entries().values()) == [b"x", b"y"]


async def test_the_keys_of_a_batch_share_their_primary_key() -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        with pytest.raises(InvalidRequest):
            await table.update([Put(("s", "a"), "1"), Put(("t", "a"), "1")])
        assert list(await table.update([])) == []
        assert b.requests() == []


async def test_the_keys_of_a_batch_may_be_any_if_there_is_one_partition() -> None:
    async with table_bench(TableConfig(partition_count=1)) as b, b.table() as table:
        await table.update([Put("a", "1"), Put("b", "2")])
        assert b.entries() == {b"a": b"1", b"b": b"2"}


async def test_a_batch_over_the_limits_is_refused() -> None:
    async with table_bench(TableConfig(partition_count=1)) as b, b.table() as table:
        with pytest.raises(InvalidRequest):
            await table.update([Put(f"{n}", "") for n in range(UPDATE_ENTRIES_MAX + 1)])
        with pytest.raises(InvalidRequest):
            await table.update([Put(f"{n}", bytes(1_000_000)) for n in range(9)])
        assert b.requests() == []


# --- keys and values that do not fit ------------------------------------------------------


@pytest.mark.parametrize("key", ["", b"", 5, None, ("a", "b"), "\ud800"])
async def test_a_key_that_is_none_is_refused_before_it_is_sent(key: object) -> None:
    async with table_bench() as b, b.table() as table:
        for call in (table.get(key), table.put(key, "x"), table.get_many([key]),
                     table.put_many([(key, "x")])):  # fmt: skip
            with pytest.raises(InvalidKey):
                await call
        assert b.requests() == []


@pytest.mark.parametrize("key", ["a", ("a",), ("a", "b", "c"), ("", "b"), (5, "b"), b"ab"])
async def test_a_key_of_a_table_with_secondary_keys_is_a_pair(key: object) -> None:
    async with table_bench(PAIRS) as b, b.table() as table:
        with pytest.raises(InvalidKey):
            await table.put(key, "x")
        with pytest.raises(InvalidKey):
            await table.put_many([(("fine", ""), "x"), (key, "x")])
        assert b.requests() == []


async def test_both_parts_of_a_key_may_have_a_serializer_of_their_own() -> None:
    async with table_bench(PAIRS) as b:
        table = b.client.table(
            TABLE, SETTINGS, key=(TextSerializer(), JsonSerializer()), value=TextSerializer()
        )
        async with table:
            await table.put(("shop", 5), "five")
            entry = await table.get(("shop", 5))
            assert entry is not None
            assert (entry.key, entry.value) == (("shop", 5), "five")
        async with b.table() as raw:
            assert await collected(raw.keys()) == [TableKey(b"shop", b"5")]


async def test_two_serializers_are_refused_for_plain_keys() -> None:
    async with table_bench() as b:
        table = b.client.table(TABLE, key=(TextSerializer(), TextSerializer()))
        with pytest.raises(InvalidRequest):
            await table.open()


@pytest.mark.parametrize(
    "value",
    [5, None, "\ud800", bytes(VALUE_SIZE_BYTES_MAX + 1)],
    ids=["number", "none", "surrogate", "too large"],
)
async def test_a_value_that_is_none_is_refused_before_it_is_sent(value: object) -> None:
    async with table_bench() as b, b.table() as table:
        with pytest.raises(InvalidRequest):
            await table.put("a", value)
        with pytest.raises(InvalidRequest):
            await table.put_many([("b", b"fine"), ("a", value)])
        assert b.requests() == []


async def test_the_largest_key_and_value_are_taken() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put(b"k" * 8192, bytes(VALUE_SIZE_BYTES_MAX))
        entry = await table.get(b"k" * 8192)
        assert entry is not None
        assert len(entry.value) == VALUE_SIZE_BYTES_MAX


async def test_the_sizes_of_keys_are_those_of_the_table() -> None:
    config = TableConfig(primary_key_size=2, secondary_key_size=0)
    async with table_bench(config) as b, b.table() as table:
        await table.put("ab", "x")
        for wrong in ("a", "abc"):
            with pytest.raises(InvalidKey):
                await table.put(wrong, "x")
            with pytest.raises(InvalidKey):
                await table.put_many([("cd", "x"), (wrong, "x")])
        assert b.entries() == {b"ab": b"x"}


# --- life ---------------------------------------------------------------------------------


async def test_a_table_is_used_while_it_is_open() -> None:
    async with table_bench() as b:
        table = b.table()
        for _ in range(2):
            with pytest.raises(Closed):
                await table.put("a", "1")
            with pytest.raises(Closed):
                table.entries()
            assert await table.open() is await table.open()
            await table.put("a", "1")
            assert table.description.config == TableConfig()
            await table.close()
            await table.close()
        with pytest.raises(Closed):
            assert table.description


async def test_a_table_that_does_not_exist_cannot_be_opened() -> None:
    async with table_bench() as b:
        with pytest.raises(TableNotFound):
            await b.client.table("shop/none").open()
        with pytest.raises(InvalidName):
            b.client.table("shop")
        for state in (TableState.DELETING, TableState.CREATING):
            b.controller.tables.change(b.ref, state)
            with pytest.raises(TableNotFound):
                await b.table().open()


async def test_a_deleted_table_is_not_found_by_any_call() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put("a", "1")
        b.delete()
        for call in (table.put("a", "2"), table.get("a"), table.put_many([("a", "2")]),
                     table.get_many(["a"]), table.update([Put("a", "2")])):  # fmt: skip
            with pytest.raises(TableNotFound):
                await call
        with pytest.raises(TableNotFound):
            await anext(table.entries())
        with pytest.raises(TableNotFound):
            await anext(table.watch())


async def test_a_new_table_under_the_name_is_not_the_one_that_was_opened() -> None:
    async with table_bench() as b, b.table() as table:
        await table.put("a", "1")
        b.recreate(TableConfig())
        with pytest.raises(TableNotFound, match="another one was created"):
            await table.put("a", "2")
        with pytest.raises(TableNotFound):
            await table.get("a")
        assert b.entries() == {}


async def test_a_sealed_table_is_read() -> None:
    async with table_bench() as b:
        async with b.table() as table:
            version = await table.put("a", "1")
            b.seal()
            with pytest.raises(TableSealed):
                await table.put("a", "2")
            with pytest.raises(TableSealed):
                await table.remove("a")
        async with b.table() as table:
            assert await table.get("a") == Entry(b"a", b"1", version)


async def test_a_client_that_ends_ends_its_tables() -> None:
    tables: list[Table[bytes, bytes]] = []
    async with table_bench() as b:
        tables.append(await b.table().open())
        await tables[0].put(b"a", b"1")
    with pytest.raises(Closed):
        await tables[0].get(b"a")


def test_settings_out_of_range_are_refused() -> None:
    for wrong in (
        {"buffer_size_bytes": 0}, {"requests_in_flight_max": 0}, {"requests_in_flight_max": 9},
        {"retry_timeout_s": 0}, {"ack_timeout_s": 0}, {"page_size": 0}, {"wait_ms": 0},
    ):  # fmt: skip
        with pytest.raises(InvalidSetting):
            TableSettings(**wrong)


async def test_a_unit_larger_than_the_buffer_passes_alone() -> None:
    async with table_bench() as b, b.table(buffer_size_bytes=1000) as table:
        await table.put("a", bytes(5000))
        assert len(b.entries()[b"a"]) == 5000
