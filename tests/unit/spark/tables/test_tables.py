"""The options of tables, and their rows from descriptions in tier 2."""

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from anabranch.common.errors import CorruptManifest, InvalidRequest
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import stream_ref
from anabranch.common.tier2.names import manifest_name
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.streams import Matching, Named
from anabranch.spark.tables.arrow import TEXTS, TIME, batch
from anabranch.spark.tables.asking import tier_two_rows
from anabranch.spark.tables.options import NAMES, TableOptions, parse_table
from anabranch.spark.tables.schema import SCHEMAS, spark_schema
from kit.tier2_made import BASE_MS, HIGH, LOW, Made, MadeTierTwo, blocks, flipped

LOWS = blocks(LOW, 2)
SIZE = len(LOWS[0])
ALL = Matching(".*")
TIER2 = {"tier2": "file:///t"}


def scaled() -> MadeTierTwo:
    """A truncated stream whose lower segment was replaced once, and another stream."""
    made = MadeTierTwo()
    made.add_stream(
        "demo/one",
        [
            Made(0, [LOWS], keys=LOW, start=SIZE, sealed_epoch=1),
            Made(1, keys=HIGH, is_flushed=False),
            Made(2, [LOWS], keys=LOW, epoch=1),
        ],
    )
    made.add_stream("other/two", [Made(0)])
    return made


def rows(made: MadeTierTwo, table: str, which: Any = ALL) -> list[dict[str, Any]]:
    asked = TableOptions(table, which, TierTwo("memory:"))
    found = asyncio.run(tier_two_rows(made.storage(), asked))
    listed: list[dict[str, Any]] = batch(SCHEMAS[table], found).to_pylist()
    return listed


def test_streams_have_their_state_and_their_bytes() -> None:
    one, two = rows(scaled(), "streams")
    assert (one["scope"], one["stream"], one["state"]) == ("demo", "one", "active")
    assert (one["epoch"], one["segment_count"], one["is_truncated"]) == (1, 2, True)
    assert one["stored_bytes"] == 3 * SIZE
    assert one["created_time"].timestamp() == BASE_MS / 1000
    assert one["tags"] is None, "tier 2 does not know the configuration"
    assert (two["stream"], two["is_truncated"], two["stored_bytes"]) == ("two", False, 0)


def test_segments_have_their_epochs_keys_and_bounds() -> None:
    old, unflushed, new = rows(scaled(), "segments", Named((stream_ref("demo/one"),)))
    assert (old["state"], old["created_epoch"], old["sealed_epoch"]) == ("sealed", 0, 1)
    assert (old["key_start"], old["key_end"]) == (0.0, 0.5)
    assert (old["start_offset"], old["end_offset"], old["stored_bytes"]) == (SIZE, 2 * SIZE, SIZE)
    assert (old["event_count"], old["container"]) == (6, 0)
    assert (unflushed["state"], unflushed["end_offset"]) == ("active", 0)
    assert (unflushed["event_count"], unflushed["written_time"]) == (None, None)
    assert (new["segment"], new["created_epoch"]) == ("demo/one/2.#epoch.1", 1)


def test_epochs_list_their_segments_by_key() -> None:
    first, second = rows(scaled(), "epochs", Named((stream_ref("demo/one"),)))
    assert first["segments"] == ["demo/one/0.#epoch.0", "demo/one/1.#epoch.0"]
    assert second["segments"] == ["demo/one/2.#epoch.1", "demo/one/1.#epoch.0"]
    assert (second["epoch"], second["segment_count"], second["created_time"]) == (1, 2, None)


def test_a_scope_or_a_pattern_narrows_a_table() -> None:
    asked = parse_table({"table": "streams", "scope": "other", **TIER2})
    assert [row["stream"] for row in rows(scaled(), "streams", asked.which)] == ["two"]
    asked = parse_table({"table": "streams", "pattern": ".*/one", **TIER2})
    assert [row["stream"] for row in rows(scaled(), "streams", asked.which)] == ["one"]


def test_a_table_of_damaged_descriptions_is_an_error_that_names_the_object() -> None:
    made = scaled()
    storage = made.storage()
    name = manifest_name(0, 1)
    storage.objects[name] = flipped(30)(storage.objects[name])
    asked = TableOptions("segments", ALL, TierTwo("memory:"))
    with pytest.raises(CorruptManifest, match=name):
        asyncio.run(tier_two_rows(storage, asked))


def test_all_streams_are_meant_unless_some_are_named() -> None:
    assert parse_table({"table": "blocks", **TIER2}).which == ALL
    named = parse_table({"table": "blocks", "path": "demo/one", **TIER2}).which
    assert named == Named((stream_ref("demo/one"),))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "events", **TIER2}, "there is no such table"),
        ({"table": "transactions", **TIER2}, "not read from there"),
        ({"table": "blocks", "nats_url": "nats://127.0.0.1:1"}, "not read from there"),
        ({"table": "streams", "start": "head", **TIER2}, "no option 'start'"),
        ({"table": "streams", "min_partitions": "2", **TIER2}, "no option 'min_partitions'"),
        ({"table": "streams"}, "exactly one source"),
    ],
)
def test_options_that_make_no_table_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parse_table(options)


@pytest.mark.parametrize("table", NAMES)
def test_the_columns_are_the_same_for_arrow_and_spark(table: str) -> None:
    schema = SCHEMAS[table]
    assert spark_schema(schema).names == schema.names
    assert batch(schema, []).schema == schema


def test_arrow_columns_keep_values_nulls_lists_and_times_beyond_sparks_range() -> None:
    schema = pa.schema({"n": pa.int32(), "b": pa.bool_(), "t": TIME, "l": TEXTS, "s": pa.string()})
    found = batch(schema, [[1, True, 0, ["a", "ü"], "x"], [None] * 5, [3, False, 2**62, [], ""]])
    found.validate(full=True)
    assert found.column("n").to_pylist() == [1, None, 3]
    assert found.column("b").to_pylist() == [True, None, False]
    assert found.column("l").to_pylist() == [["a", "ü"], None, []]
    assert found.column("s").to_pylist() == ["x", None, ""]
    assert found.column("t").cast(pa.int64()).to_pylist() == [0, None, (2**63 - 1) // 1000 * 1000]


def test_a_range_beyond_its_epoch_is_not_in_it() -> None:
    made = MadeTierTwo()
    whole = Made(0, keys=KeyRange(0.0, 1.0), sealed_epoch=1)
    made.add_stream("demo/one", [whole, replace(whole, number=1, epoch=1, sealed_epoch=None)])
    first, second = rows(made, "epochs")
    assert (first["segments"], second["segments"]) == (
        ["demo/one/0.#epoch.0"], ["demo/one/1.#epoch.1"],
    )  # fmt: skip
