"""`spark.read.format("anabranch")`: the data source with Spark's interface.

Spark imports this module in every session, even if no stream is read. The module therefore imports
the code for reading only when it reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.spark.options import ReadOptions
    from anabranch.spark.partitioning import Partition

SCHEMA = StructType(
    [
        StructField("event", BinaryType(), nullable=False),
        StructField("routing_key", StringType()),
        StructField("event_time", TimestampType(), nullable=False),
        StructField("segment", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("index", IntegerType(), nullable=False),
    ]
)


class AnabranchDataSource(DataSource):
    """Reads streams of Anabranch; docs/spark.md lists the options and columns."""

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "StreamReader":
        """Parse the options, find the topic's stream, and return a reader.

        Raises Invalid errors, TopicNotFound, TopicNotProvisioned, Unavailable.
        """
        from anabranch.common.errors import InvalidRequest
        from anabranch.spark.options import parse_options
        from anabranch.spark.reading import found

        with told_to_users():
            if schema != SCHEMA:
                raise InvalidRequest(
                    "the columns of a stream are fixed",
                    remedy="omit the schema, and select columns from the result",
                )
            return StreamReader(found(parse_options(dict(self.options))))


@dataclass
class ReadPartition(InputPartition):
    """One task's share of one incarnation of a stream."""

    incarnation: int
    pieces: "Partition"


class StreamReader(DataSourceReader):
    """A batch read of the events that exist when it is planned."""

    def __init__(self, options: "ReadOptions") -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        from anabranch.spark.reading import plan

        with told_to_users():
            incarnation, partitions = plan(self._options)
        return [ReadPartition(incarnation, pieces) for pieces in partitions]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from anabranch.spark.reading import read

        if isinstance(partition, ReadPartition):  # An empty plan gets one of Spark's own.
            with told_to_users():
                yield from read(self._options, partition.incarnation, partition.pieces)


@contextmanager
def told_to_users() -> Iterator[None]:
    """Add the remedy to an error's text, because Spark shows only the text."""
    from anabranch.common.errors import AnabranchError

    try:
        yield
    except AnabranchError as error:
        raise type(error)(
            f"{error.message}; {error.remedy}", remedy=error.remedy, **error.fields
        ) from error
