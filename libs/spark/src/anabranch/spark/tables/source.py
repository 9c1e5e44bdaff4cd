"""The reader of tables with Spark's interface: one task per table, several for `blocks`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.options.places import TierTwo
from anabranch.spark.tables.options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.spark.tables.block_reading import BlockTask


class WholeTable(InputPartition):
    """The one partition of a table that is asked for at once."""


@dataclass
class BlocksPartition(InputPartition):
    """One task's share of the table `blocks`."""

    task: "BlockTask"


class TableReader(DataSourceReader):
    """A read of a table, as it is when the task runs; of `blocks`, as it is when it is planned."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        place = self._options.place
        if self._options.table != "blocks" or not isinstance(place, TierTwo):
            return [WholeTable(None)]
        from anabranch.spark.tables.block_reading import plan

        with told_to_users():
            _, tasks = plan(place, self._options.which, self._options.division)
        return [BlocksPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        place = self._options.place
        with told_to_users():
            if isinstance(partition, WholeTable):
                from anabranch.spark.tables.arrow import batch
                from anabranch.spark.tables.asking import table_rows
                from anabranch.spark.tables.schema import SCHEMAS

                yield batch(SCHEMAS[self._options.table], table_rows(self._options))
            elif isinstance(partition, BlocksPartition) and isinstance(place, TierTwo):
                from anabranch.spark.tables.block_reading import read

                yield from read(place, partition.task)
