"""`format("anabranch")`: the data source with Spark's interface.

Spark imports this module in every session, even if no stream is read. Each method therefore imports
the code behind it when it is called.

    read         .load("scope/stream")          → `reading.source.StreamReader`
    read         .option("table", "streams")    → `tables.source.TableReader`
    readStream                                  → `following.source.StreamFollower`
    write, writeStream                          → `writing.source.BatchSink`, `MicroBatchSink`
"""

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from anabranch.spark.errors_shown import told_to_users

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class AnabranchDataSource(DataSource):
    """Reads and writes streams of Anabranch; docs/spark.md lists the options and columns."""

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> StructType | str:
        from anabranch.spark.reading.source import read_schema

        with told_to_users():
            if "table" in self.options:
                return self._table_schema()
            return read_schema(dict(self.options))

    def _table_schema(self) -> StructType:
        from anabranch.spark.tables.options import parse_table_name
        from anabranch.spark.tables.schema import SCHEMAS, spark_schema

        return spark_schema(SCHEMAS[parse_table_name(dict(self.options))])

    def reader(self, schema: StructType) -> "DataSourceReader":
        """Parse the options, and return a reader. Raises Invalid errors, Unavailable."""
        from anabranch.spark.reading.source import batch_reader

        with told_to_users():
            if "table" in self.options:
                return self._table_reader(schema)
            return batch_reader(dict(self.options), schema)

    def _table_reader(self, schema: StructType) -> "DataSourceReader":
        from anabranch.spark.tables.options import parse_table
        from anabranch.spark.tables.source import TableReader

        refuse_other_columns(schema, self._table_schema())
        return TableReader(parse_table(dict(self.options)))

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802
        """Parse the options, and return a reader. Raises Invalid errors, Unavailable."""
        from anabranch.spark.options.follow import parse_follow
        from anabranch.spark.reading.source import check_columns

        with told_to_users():
            refuse_old_spark(pyspark.__version__)
            options = parse_follow(dict(self.options))
            check_columns(options, schema)
        from anabranch.spark.following.source import StreamFollower

        return StreamFollower(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """Parse the options, and return a sink. Raises Invalid and NotFound errors, Unavailable."""
        from anabranch.spark.writing.planning import plan_batch

        with told_to_users():
            return plan_batch(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        """Parse the options, and return the sink of one micro-batch. Raises Invalid errors."""
        from anabranch.spark.writing.planning import plan_micro_batch

        with told_to_users():
            return plan_micro_batch(dict(self.options), schema, overwrite=overwrite)


def refuse_old_spark(version: str) -> None:
    """Raises InvalidRequest before 4.2, in which sources learn where a micro-batch begins."""
    from anabranch.common.errors import InvalidRequest

    if tuple(map(int, version.split(".")[:2])) < (4, 2):
        raise InvalidRequest(
            "following a stream needs Spark 4.2 or newer",
            remedy="update pyspark, or read the stream in batches", found=version,
        )  # fmt: skip


def refuse_other_columns(schema: StructType, fixed: StructType) -> None:
    """Raises InvalidRequest if a user gave columns of their own."""
    from anabranch.common.errors import InvalidRequest

    if schema != fixed:
        raise InvalidRequest(
            "the columns of a stream are fixed",
            remedy="omit the schema, and select columns from the result",
        )
