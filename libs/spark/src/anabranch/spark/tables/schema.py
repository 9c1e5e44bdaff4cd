"""The columns of the tables, once for Arrow and, derived from it, for Spark.

A column that only one place knows is null from the other. Times are UTC; a name ends with its unit
(`_bytes`, `_ms`), except that counts end with `_count` and places in a segment with `_offset`.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.spark.tables import blocks
from anabranch.spark.tables.arrow import TEXTS, TIME

_TEXT, _LONG, _INT, _REAL, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_()
_STREAM = {"scope": _TEXT, "stream": _TEXT}

_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "streams": {
        **_STREAM, "state": _TEXT, "incarnation": _LONG, "epoch": _LONG, "segment_count": _INT,
        "created_time": TIME, "is_truncated": _BOOL, "stored_bytes": _LONG, "tags": TEXTS,
        "scaling": _TEXT, "scaling_target_rate": _LONG, "segment_count_min": _INT,
        "retention_min_ms": _LONG, "retention_max_ms": _LONG, "retention_min_bytes": _LONG,
        "retention_max_bytes": _LONG,
    },
    "segments": {
        **_STREAM, "segment": _TEXT, "segment_id": _LONG, "state": _TEXT, "created_epoch": _LONG,
        "sealed_epoch": _LONG, "key_start": _REAL, "key_end": _REAL, "start_offset": _LONG,
        "end_offset": _LONG, "stored_bytes": _LONG, "tiered_bytes": _LONG, "event_count": _LONG,
        "written_time": TIME, "container": _INT, "node_id": _TEXT,
    },
    "epochs": {
        **_STREAM, "epoch": _LONG, "reference_epoch": _LONG, "created_time": TIME, "cause": _TEXT,
        "split_count": _INT, "merge_count": _INT, "segment_count": _INT, "segments": TEXTS,
    },
    "transactions": {
        **_STREAM, "transaction_id": _TEXT, "state": _TEXT, "epoch": _LONG, "writer": _TEXT,
        "opened_time": TIME, "deadline_time": TIME, "ended_time": TIME, "lease_ms": _LONG,
        "lease_left_ms": _LONG, "part_count": _INT, "application": _TEXT, "version": _LONG,
    },
    "reader_groups": {
        "scope": _TEXT, "reader_group": _TEXT, "state": _TEXT, "generation": _LONG,
        "created_time": TIME, "streams": TEXTS, "retention": _TEXT, "lease_ms": _LONG,
        "automatic_checkpoint_ms": _LONG, "reader_count": _INT, "unread_event_count": _LONG,
        "unread_bytes": _LONG, "lag_seconds": _REAL,
    },
}  # fmt: skip
_KEYS = frozenset(("scope", "stream", "segment", "epoch", "transaction_id", "reader_group"))

SCHEMAS: Mapping[str, pa.Schema] = {
    **{
        table: pa.schema([pa.field(name, kind, name not in _KEYS) for name, kind in each.items()])
        for table, each in _COLUMNS.items()
    },
    "blocks": blocks.SCHEMA,
}
"""By table."""

_SPARK_TYPES: Mapping[pa.DataType, DataType] = {
    _TEXT: StringType(),
    _LONG: LongType(),
    _INT: IntegerType(),
    _REAL: DoubleType(),
    _BOOL: BooleanType(),
    TIME: TimestampType(),
    TEXTS: ArrayType(StringType()),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns in Spark's types."""
    return StructType(
        [StructField(each.name, _SPARK_TYPES[each.type], each.nullable) for each in schema]
    )
