"""The batch reader with Spark's interface."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.options.read import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.common.model.names import StreamRef
    from anabranch.spark.partitioning import Partition


@dataclass
class ReadPartition(InputPartition):
    """One task's share of streams, each of one incarnation."""

    incarnations: "Mapping[StreamRef, int]"
    pieces: "Partition"
    watermarks: "Mapping[StreamRef, int]"


class StreamReader(DataSourceReader):
    """A batch read of the events that exist when it is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        from anabranch.spark.reading.batch import plan

        with told_to_users():
            found = plan(self._options)
        return [
            ReadPartition(found.incarnations, pieces, found.watermarks)
            for pieces in found.partitions
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from anabranch.spark.reading.batch import PartitionRead, read

        if isinstance(partition, ReadPartition):  # An empty plan gets one of Spark's own.
            options = self._options
            how = PartitionRead(options.place, options.columns, partition.watermarks)
            with told_to_users():
                yield from read(how, partition.incarnations, partition.pieces)
