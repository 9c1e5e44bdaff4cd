"""Archives as tables of Delta Lake or Iceberg, whose jars the user adds to Spark.

Their streaming sinks record the query's id and the number of each batch in the table's own log, so
that a batch that runs twice counts once. The query's checkpoint lies beside the data.

Jars that are built for another Spark may write a table that they cannot read again. A run therefore
begins with a trial.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.ids import SystemIds
from anabranch.spark.pipelines.archiving.manifest import UNITS
from anabranch.spark.pipelines.frame import was_interrupted

_CAUSE_MAX = 300


@dataclass(frozen=True, slots=True)
class Lake:
    """A format of tables.

    `marker`: a class of its jars. `to_add`: how to add them. `trial`: uses the table at a place, or
    one beside it, and raises Spark's error if the jars do not fit.
    """

    title: str
    marker: str
    to_add: str
    trial: Callable[[SparkSession, str], object]


def _write_and_read(session: SparkSession, out: str) -> None:
    place = f"{out.rstrip('/')}/_trial-{SystemIds().new_id()}"
    try:
        session.range(1).write.format("delta").save(place)
        session.read.format("delta").load(place).count()
    finally:
        _delete(session, place)


def _delete(session: SparkSession, place: str) -> None:
    java = session._jvm  # noqa: SLF001
    assert java is not None
    path = java.org.apache.hadoop.fs.Path(place)
    settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    path.getFileSystem(settings).delete(path, True)


LAKES: Mapping[str, Lake] = {
    "delta": Lake(
        "Delta Lake",
        "io.delta.sql.DeltaSparkSessionExtension",
        "add it to the session: spark-submit --packages io.delta:delta-spark_2.13:VERSION --conf "
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        _write_and_read,
    ),
    "iceberg": Lake(
        "Iceberg",
        "org.apache.iceberg.spark.SparkCatalog",
        "add it to the session: spark-submit --packages "
        "org.apache.iceberg:iceberg-spark-runtime-SPARKVERSION_2.13:VERSION, with a catalog in "
        "spark.sql.catalog.NAME, and create the table",
        lambda session, out: session.read.format("iceberg").load(out).schema,
    ),
}
FORMATS = tuple(LAKES)


@dataclass(frozen=True, slots=True)
class Counted:
    """The work of a query since its start."""

    batches: int = 0
    events: int = 0
    end: str = ""


def check_usable(session: SparkSession, kind: str, out: str) -> None:
    """Raises InvalidSetting if Spark lacks the jars of the format, which the remedy then names, or
    has some that do not work."""
    lake = LAKES[kind]
    java = session._jvm  # noqa: SLF001
    assert java is not None
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(lake.marker.replace(".", "/") + ".class") is None:
        raise InvalidSetting(
            f"the session of Spark has no {lake.title}", remedy=lake.to_add, missing=lake.marker
        )
    try:
        lake.trial(session, out)
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        raise InvalidSetting(
            f"a trial of {lake.title} failed in this session of Spark",
            remedy=f"take a release of {lake.title} that is built for this version of Spark: "
            "docs/pipelines.md lists those that we have tried; or omit --format",
            spark=session.version,
            cause=_cause(error),
        ) from error


def _cause(error: PySparkException | Py4JError) -> str:
    told = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(told).splitlines()[0][:_CAUSE_MAX]


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
