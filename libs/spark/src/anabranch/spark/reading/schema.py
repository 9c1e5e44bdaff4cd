"""The columns of a read as Spark's types. `reading.columns` makes the Arrow batches."""

from collections.abc import Mapping

from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.spark.options.columns import Columns

FIELDS: Mapping[str, StructField] = {
    field.name: field
    for field in (
        StructField("event", BinaryType(), nullable=False),
        StructField("routing_key", StringType()),
        StructField("event_time", TimestampType(), nullable=False),
        StructField("segment", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("index", IntegerType(), nullable=False),
        StructField("scope", StringType(), nullable=False),
        StructField("stream", StringType(), nullable=False),
        StructField("writer_id", StringType()),
        StructField("event_number", LongType()),
        StructField("key_position", DoubleType()),
        StructField("watermark", TimestampType()),
    )
}
"""By name. `stream` is the name without its scope; `writer_id` has 32 hexadecimal digits."""


def schema_of(columns: Columns) -> StructType:
    """The columns in their order."""
    return StructType([FIELDS[name] for name in columns])
