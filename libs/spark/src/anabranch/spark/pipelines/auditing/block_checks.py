"""Checks of all blocks at once, as Spark computes them from rows of the table `blocks`.

    blocks      rows with a damage
    bytes       a row that does not begin where the one before it ends
    numbers     a writer's block that does not continue its block before
    duplicates  a writer's block with numbers that the segment has, and the same block in a segment
                and in one that replaced it
    keys        events whose key lies outside of the segment's range

A damage explains the gap around it, so that gap is not found once more. The result is one frame of
findings: check, stream, segment, offset, text.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from anabranch.spark.pipelines.auditing.findings import SHOWN_MAX, Finding
from anabranch.spark.tables.arrow import batch
from anabranch.spark.tables.stored import StoredStream

_SEGMENTS = pa.schema(
    {
        "segment": pa.string(),
        "segment_id": pa.int64(),
        "start_offset": pa.int64(),
        "end_offset": pa.int64(),
        "key_start": pa.float64(),
        "key_end": pa.float64(),
    }
)
_PLACES = pa.schema({"segment": pa.string(), "place": pa.int64(), "text": pa.string()})
_BEFORE = (Window.unboundedPreceding, -1)


def segment_frame(session: SparkSession, streams: Sequence[StoredStream]) -> DataFrame:
    """A row per segment that has bytes."""
    rows = [
        (each.name, each.segment_id, *each.bounds, each.keys.start, each.keys.end)
        for stream in streams
        for each in stream.segments
        if each.state is not None
    ]
    return _frame(session, _SEGMENTS, rows)


def _frame(session: SparkSession, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """The rows as a frame; from an Arrow table, for which Spark starts no Python worker."""
    return session.createDataFrame(pa.Table.from_batches([batch(schema, rows)]))


def prepared(blocks: DataFrame, segments: DataFrame) -> DataFrame:
    """The rows with their stream's full name, their segment's facts, the end of the row before
    (null for the first), and the number of damages up to each."""
    in_segment = Window.partitionBy("segment").orderBy("offset", "size_bytes")
    so_far = in_segment.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        blocks.where("segment <> ''")
        .withColumn("stream", F.concat_ws("/", "scope", "stream"))
        .join(F.broadcast(segments), "segment")
        .withColumn("end_before", F.lag(F.expr("offset + size_bytes")).over(in_segment))
        .withColumn("damages", F.count("damage").over(so_far))
    )


def finding_frame(rows: DataFrame) -> DataFrame:
    """All findings in prepared rows."""
    numbered = _numbered(rows)
    place = F.format_string(" (%s at %d)", "object", "object_offset")
    parts = [
        _of("blocks", rows.where("damage IS NOT NULL"), F.concat("damage", place)),
        _of(
            "bytes",
            rows.where("offset <> end_before"),
            F.format_string("the bytes before it end at %d", "end_before"),
        ),
        _of(
            "numbers",
            numbered.where(
                "first_event_number > expected AND (damages = damages_before "
                "OR last_before IS NULL AND damages = 0 AND start_offset = 0)"
            ),
            F.format_string(
                "events %d to %d of writer %s are missing before it",
                "expected", F.expr("first_event_number - 1"), "writer_id",
            ),
        ),
        _of(
            "duplicates",
            numbered.where("first_event_number < expected"),
            F.format_string(
                "events %d to %d of writer %s are stored again",
                "first_event_number",
                F.expr("least(expected - 1, first_event_number + event_count - 1)"),
                "writer_id",
            ),
        ),
        _of(
            "duplicates",
            _copies(rows),
            F.format_string("the block is also at %d of %s", "first_offset", "first_segment"),
        ),
        _of(
            "keys",
            rows.where("misplaced_event_count > 0"),
            F.format_string(
                "%d of %d events have a key outside of [%s, %s)", "misplaced_event_count",
                "event_count", F.col("key_start").cast("string"), F.col("key_end").cast("string"),
            ),
        ),
    ]  # fmt: skip
    return reduce(DataFrame.union, parts)


def _of(check: str, rows: DataFrame, text: Column) -> DataFrame:
    return rows.select(
        F.lit(check).alias("check"), "stream", "segment", "offset", text.alias("text")
    )


def _numbered(rows: DataFrame) -> DataFrame:
    """Blocks with events: the highest number that the writer's blocks before have (`last_before`),
    the number that should come next, and the damages up to the block before."""
    of_writer = Window.partitionBy("segment", "writer_id").orderBy("offset")
    last = F.expr("first_event_number + event_count - 1")
    return (
        rows.where("event_count > 0 AND writer_id IS NOT NULL")
        .withColumn("last_before", F.max(last).over(of_writer.rowsBetween(*_BEFORE)))
        .withColumn("damages_before", F.lag("damages").over(of_writer))
        .withColumn("expected", F.expr("coalesce(last_before, 0) + 1"))
    )


def _copies(rows: DataFrame) -> DataFrame:
    """Blocks that a segment with common keys, created before, holds too, byte for byte.

    A writer numbers and dates a block anew when it sends its events to a successor; equal blocks
    are therefore one block that was stored twice, for example by merging a transaction twice.
    """
    keys = ("stream", "writer_id", "first_event_number", "event_count", "crc32c")
    some = rows.where("event_count > 0 AND damage IS NULL")
    several = some.groupBy(*keys).agg(F.count_distinct("segment").alias("n")).where("n > 1")
    candidates = some.join(several.drop("n"), list(keys), "left_semi")
    first = candidates.select(
        *keys,
        F.col("segment").alias("first_segment"),
        F.col("segment_id").alias("first_id"),
        F.col("offset").alias("first_offset"),
        F.col("key_start").alias("first_start"),
        F.col("key_end").alias("first_end"),
    )
    return candidates.join(first, list(keys)).where(
        "first_id < segment_id AND first_start < key_end AND key_start < first_end"
    )


def misplaced_merges(
    session: SparkSession, rows: DataFrame, places: Sequence[tuple[str, int, str]]
) -> DataFrame:
    """Findings for the places (segment, offset, text) that lie inside a block."""
    wanted = _frame(session, _PLACES, places)
    inside = (
        rows.where("damage IS NULL")
        .join(F.broadcast(wanted), "segment")
        .where("offset < place AND place < offset + size_bytes")
    )
    return inside.select(
        F.lit("transactions").alias("check"), "stream", "segment", F.col("place").alias("offset"),
        "text",
    )  # fmt: skip


def first_findings(findings: DataFrame) -> dict[str, tuple[list[Finding], int]]:
    """The first findings of each check, and their number in all. Runs a job."""
    of_check = Window.partitionBy("check")
    shown = (
        findings.withColumn(
            "rank", F.row_number().over(of_check.orderBy("stream", "segment", "offset"))
        )
        .withColumn("total", F.count("*").over(of_check))
        .where(F.col("rank") <= SHOWN_MAX)
        .orderBy("check", "rank")
    )
    found: dict[str, tuple[list[Finding], int]] = {}
    for row in shown.collect():
        listed, _ = found.setdefault(row["check"], ([], 0))
        listed.append(
            Finding(row["check"], row["stream"], row["segment"], row["offset"], row["text"])
        )
        found[row["check"]] = (listed, row["total"])
    return found


def segment_sums(rows: DataFrame) -> list[Any]:
    """A row per segment with the sums and bounds of its blocks. Runs a job."""
    return (
        rows.groupBy("stream", "segment")
        .agg(
            F.count_if(F.col("damage").isNull()).alias("blocks"),
            F.sum("event_count").alias("events"),
            F.sum("size_bytes").alias("stored_bytes"),
            F.count("damage").alias("damages"),
            F.count_distinct(F.when(F.col("event_count") > 0, F.col("writer_id"))).alias("writers"),
            F.sum(F.when(F.col("key_position_min").isNotNull(), F.col("event_count"))).alias(
                "keyed_events"
            ),
            F.min("offset").alias("first_offset"),
            F.max(F.expr("offset + size_bytes")).alias("end_offset"),
            F.unix_millis(F.min("block_time")).alias("first_ms"),
            F.unix_millis(F.max("block_time")).alias("last_ms"),
        )
        .collect()
    )
