"""Plans a write: options and columns → a sink. Spark calls it in a process of the driver."""

from collections.abc import Mapping

from pyspark.sql.types import StructType

from anabranch.common.runtime.ids import SystemIds
from anabranch.spark.options.write import WriteOptions, parse_write
from anabranch.spark.writing.reports import SinkKey
from anabranch.spark.writing.schema import written_columns
from anabranch.spark.writing.source import BatchSink, MicroBatchSink


def plan_batch(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchSink:
    """The sink of a batch write, whose target exists. Raises Invalid errors, StreamNotFound,
    ScopeNotFound, TopicNotFound, Unavailable."""
    from anabranch.spark.writing.tasks import prepare

    parsed = parse_write(options, overwrite=overwrite, streaming=False)
    has = written_columns(schema)
    prepare(parsed)
    return BatchSink(parsed, _batch_key(parsed) if parsed.exactly_once else None, has)


def plan_micro_batch(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> MicroBatchSink:
    """The sink of a micro-batch. Raises Invalid errors."""
    parsed = parse_write(options, overwrite=overwrite, streaming=True)
    return MicroBatchSink(parsed, written_columns(schema))


def _batch_key(options: WriteOptions) -> SinkKey:
    if options.application is None or options.version is None:
        return SinkKey(f"spark-{SystemIds().new_id()}", 0, is_drawn=True)
    return SinkKey(options.application, options.version)
