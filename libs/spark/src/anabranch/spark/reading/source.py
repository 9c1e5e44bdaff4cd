"""The batch readers with Spark's interface: one of them takes filters.

Spark refuses a reader that takes filters in a session that pushes none, so a user asks for it. Up
to Spark 4.3, all frames of one `load` share the plan of the last one whose filters were pushed;
this is why it is not the default.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from anabranch.common.errors import InvalidRequest
from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.options.payload import parse_payload, parse_read_columns
from anabranch.spark.options.read import ReadOptions, parse_options
from anabranch.spark.options.texts import Texts
from anabranch.spark.reading.schema import schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.common.model.names import StreamRef
    from anabranch.spark.partitioning import Partition
    from anabranch.spark.reading.filters import Wanted


@dataclass
class ReadPartition(InputPartition):
    """One task's share of streams, each of one incarnation."""

    incarnations: "Mapping[StreamRef, int]"
    pieces: "Partition"
    watermarks: "Mapping[StreamRef, int]" = field(default_factory=dict)


def read_schema(options: Texts) -> StructType | str:
    """The columns of a read, as a text that Spark parses if the user gave them as one.

    Raises Invalid errors; for Arrow payloads without `payload_schema` as `inferred`.
    """
    about = schema_of(parse_read_columns(options))
    payload = parse_payload(options)
    if payload is None:
        return about
    if payload.ddl is not None:
        rest = [
            f"`{field.name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
            for field in about
        ]
        return ", ".join((payload.ddl, *rest))
    from anabranch.spark.reading.inference import inferred

    found = inferred(parse_options(options))
    return StructType([*found.fields, *about.fields])


def batch_reader(options: Texts, schema: StructType) -> "StreamReader":
    """The reader of columns that Spark has settled. Raises Invalid errors, Unavailable."""
    parsed = parse_options(options)
    check_columns(parsed, schema)
    return PushingReader(parsed, schema) if parsed.push_filters else StreamReader(parsed, schema)


def check_columns(options: ReadOptions, schema: StructType) -> None:
    """Raises InvalidRequest for columns that the read cannot have."""
    about = schema_of(options.columns)
    if options.payload is None and schema != about:
        raise InvalidRequest(
            "the columns of a stream are fixed",
            remedy="omit the schema, and select columns from the result",
        )
    names = schema.fieldNames()
    if len(set(names)) != len(names):
        raise InvalidRequest(
            "a column of the payload has the name of another column",
            remedy="omit that column from the option columns, or name other columns with "
            "payload_schema",
            columns=", ".join(sorted({name for name in names if names.count(name) > 1})),
        )
    if not all(field in schema.fields for field in about.fields):
        raise InvalidRequest(
            "the schema lacks columns that the option columns names",
            remedy=f"add {about.simpleString()} with the same types and nullability; or omit the "
            "option",
        )


class StreamReader(DataSourceReader):
    """A batch read of the events that exist when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted: Wanted | None = None
        """The part of the read that pushed filters need; None: Spark pushed no filters."""

    def partitions(self) -> list[InputPartition]:
        from anabranch.spark.places.opening import spare_imported
        from anabranch.spark.reading.batch import plan
        from anabranch.spark.reading.filters import ALL

        with told_to_users():
            found = plan(self._options, self._wanted or ALL)
        spare_imported()
        return [
            ReadPartition(found.incarnations, pieces, found.watermarks)
            for pieces in found.partitions
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from anabranch.spark.places.opening import spare_imported
        from anabranch.spark.reading.batch import PartitionRead, read

        if not isinstance(partition, ReadPartition):  # An empty plan gets one of Spark's own.
            return
        options = self._options
        payload = None if options.payload is None else arrow_schema_of(self._schema)
        how = PartitionRead(options.place, options.columns, partition.watermarks, payload)
        with told_to_users():
            yield from read(how, partition.incarnations, partition.pieces)
        spare_imported()


class PushingReader(StreamReader):
    """A batch read that leaves out what filters exclude, if the session passes filters on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        from anabranch.spark.reading.filters import pushed

        self._wanted, left = pushed(filters, self._options.columns)
        return left


def arrow_schema_of(schema: StructType) -> "pa.Schema":
    """The Arrow schema that Spark expects of a read's batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
