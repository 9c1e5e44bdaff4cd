"""Key-value tables of the blocking client: calls, iteration, watches, time limits, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from anabranch.client import (
    Change,
    Closed,
    Entry,
    JsonSerializer,
    KeyExists,
    Put,
    Remove,
    TableConfig,
    TableSettings,
    TextSerializer,
    TimedOut,
    Version,
)
from anabranch.client.blocking import Blocking
from anabranch.client.blocking.background import LoopThread
from kit.blocking_bench import BlockingBench, blocking_bench

TABLE = "plant/stock"
SETTINGS = TableSettings(retry_timeout_s=5.0, ack_timeout_s=2.0, wait_ms=50)


@contextmanager
def opened(config: TableConfig | None = None) -> Iterator[tuple[BlockingBench, Any]]:
    """A bench, and an open table with keys of text and values of JSON."""
    with blocking_bench() as bench:
        bench.client.tables.create(TABLE, config)
        table = bench.client.table(TABLE, SETTINGS, key=TextSerializer(), value=JsonSerializer())
        with table as entered:
            yield bench, entered


def test_entries_are_put_and_got_without_awaiting() -> None:
    with opened() as (_, table):
        version = table.put("apple", 5)
        assert table.get("apple") == Entry("apple", 5, version)
        assert isinstance(table.replace("apple", 6, version), Version)
        with pytest.raises(KeyExists):
            table.insert("apple", 7)
        table.remove("apple")
        assert (table.exists("apple"), table.get("apple")) == (False, None)
        versions = table.put_many([("a", 1), ("b", 2)])
        assert [entry.version for entry in table.get_many(["a", "b"])] == list(versions)
        assert table.description.config == TableConfig()


def test_a_table_is_opened_and_closed_without_a_block_too() -> None:
    with blocking_bench() as bench:
        bench.client.tables.create(TABLE)
        table = bench.client.table(TABLE)
        with pytest.raises(Closed):
            table.get("a")
        assert table.open() is table
        table.put("a", "1")
        table.close()
        with pytest.raises(Closed):
            table.get("a")


def test_batches_take_the_same_updates() -> None:
    with opened(TableConfig(partition_count=1)) as (_, table):
        table.update([Put("a", 1), Put("b", 2), Remove("a")])
        assert [entry.key for entry in table.entries()] == ["b"]


def test_iterating_crosses_to_the_loop_once_per_page_and_not_per_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    perform = LoopThread.wait

    def counting(thread: LoopThread, *arguments: Any) -> object:
        nonlocal calls
        calls += 1
        return perform(thread, *arguments)

    with opened() as (_, table):
        table.put_many([(f"{n:04}", n) for n in range(2000)])
        scan = table.entries()
        assert isinstance(scan, Blocking)
        monkeypatch.setattr(LoopThread, "wait", counting)
        assert [entry.value for entry in scan] == list(range(2000))
        assert calls < 40
        assert [key for key in table.keys(start="1998")] == ["1998", "1999"]  # noqa: C416


def test_arrow_batches_are_iterated() -> None:
    with opened() as (_, table):
        table.put_many([(f"{n}", n) for n in range(10)])
        assert sum(batch.num_rows for batch in table.scan_arrow()) == 10


def test_a_watch_is_an_iterator_with_time_limits() -> None:
    with opened() as (_, table):
        table.put("a", 1)
        with table.watch() as changes:
            first = next(changes)
            assert isinstance(first, Change)
            assert (first.key, first.value) == ("a", 1)
            with pytest.raises(TimedOut):
                next(changes.with_timeout(0.02))
            table.remove("a")
            assert next(changes).removed
            table.put("b", 2)
            position = next(changes).position
            assert changes.position == position
        table.put("c", 3)
        assert next(iter(table.watch(str(position)))).key == "c"


def test_a_client_that_ends_ends_its_tables_and_watches() -> None:
    with blocking_bench() as bench:
        bench.client.tables.create(TABLE)
        table = bench.client.table(TABLE, SETTINGS).open()
        changes = table.watch("now")
        with pytest.raises(TimedOut):
            next(changes.with_timeout(0.02))
        bench.client.close()
        with pytest.raises(Closed):
            table.get("a")
        with pytest.raises(Closed):
            next(changes)
