"""Archives as tables of Delta Lake or Iceberg, whose jars the user adds to Spark.

Their streaming sinks record the query's id and the number of each batch in the table's own log, so
that a batch that runs twice counts once. The query's checkpoint lies beside the data.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from anabranch.common.errors import InvalidSetting
from anabranch.spark.pipelines.archiving.manifest import UNITS

CLASSES = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.SparkCatalog",
}
FORMATS = tuple(CLASSES)
_REMEDIES = {
    "delta": (
        "add Delta Lake to the session: spark-submit --packages io.delta:delta-spark_2.13:VERSION "
        "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "iceberg": (
        "add Iceberg to the session: spark-submit --packages "
        "org.apache.iceberg:iceberg-spark-runtime-SPARKVERSION_2.13:VERSION, with a catalog in "
        "spark.sql.catalog.NAME"
    ),
}


@dataclass(frozen=True, slots=True)
class Counted:
    """The work of a query since its start."""

    batches: int = 0
    events: int = 0
    end: str = ""


def check_present(session: SparkSession, kind: str) -> None:
    """Raises InvalidSetting, which names the jars to add, if Spark lacks the format."""
    java = session._jvm  # noqa: SLF001
    assert java is not None
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    resource = CLASSES[kind].replace(".", "/") + ".class"
    if loader.getResource(resource) is None:
        raise InvalidSetting(
            f"the session of Spark has no {kind}", remedy=_REMEDIES[kind], missing=CLASSES[kind]
        )


def writer(events: DataFrame, kind: str, out: str, unit: str) -> DataStreamWriter:
    """The stream on its way into the table, with the column of its partitions."""
    column = UNITS[unit]
    form = "yyyy-MM-dd" if unit == "day" else "yyyy-MM-dd-HH"
    dated = events.withColumn(column, F.date_format("event_time", form))
    checkpoint = f"{out.rstrip('/')}/_checkpoint"
    written = dated.writeStream.format(kind).option("checkpointLocation", checkpoint)
    return written.partitionBy(column).option("fanout-enabled", "true")


def counted(query: StreamingQuery) -> Counted:
    """The batches of a query that has ended, as far as Spark still tells of them."""
    done = [told for told in query.recentProgress if told.numInputRows]
    end = done[-1].sources[0].endOffset if done else ""
    return Counted(len(done), sum(told.numInputRows for told in done), str(end))
