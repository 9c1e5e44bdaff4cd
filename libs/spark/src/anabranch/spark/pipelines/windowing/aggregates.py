"""Windows of event time: what they are, their columns, and the events that tell them.

    window_start, window_end   [start, end), UTC
    key                        the group; null: events without one
    events, bytes              counts of the events, and of their bytes
    value_…                    with a value: how many events have it, its sum, mean, p50 and p90

An event of the target has these columns as JSON, the group as its routing key, and the start of the
window as its event time.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

KEYS = ("window_start", "window_end", "key")
COUNTS = ("events", "bytes")
VALUES = ("value_count", "value_sum", "value_mean", "value_p50", "value_p90")
_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXXX",
    "ignoreNullFields": "false",
}


@dataclass(frozen=True, slots=True)
class Windowing:
    """What the windows are, which the first run into a directory fixes.

    stream    the source
    to        the target; None: only the table
    window_s  the length of a window, in seconds; windows begin at multiples of it (Unix time)
    delay_s   a window is written when an event is later than its end by so many seconds
    by        the group: a field of the events' JSON; empty: the routing key; None: one group
    value     a field of the events' JSON, a number; None: events are only counted
    """

    stream: str
    to: str | None
    window_s: int
    delay_s: int
    by: str | None
    value: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a window, in their order."""
        return (*KEYS, *COUNTS, *(VALUES if self.value else ()))


def windows_of(events: DataFrame, windowing: Windowing) -> DataFrame:
    """A row per window and group. A row of `events` with `counted` 0 moves the watermark only.

    As a streaming table it has each window once, when the watermark passes the window's end.
    """
    sizes = F.when(F.col("counted") == 1, F.length("event")).otherwise(0)
    measured = (
        events.withWatermark("event_time", f"{windowing.delay_s} seconds")
        .select("event_time", "counted", sizes.alias("size"), *_of_event(windowing))
        .groupBy(F.window("event_time", f"{windowing.window_s} seconds").alias("window"), "key")
        .agg(
            F.sum("counted").alias("events"), F.sum("size").alias("bytes"), *_of_value(windowing)
        )
    )  # fmt: skip
    bounds = (
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
    )
    # The filter is behind the counts, where Spark does not move it in front of the watermark.
    counted = measured.where("events > 0")
    return counted.select(*bounds, *(name for name in windowing.columns if name not in KEYS[:2]))


def _of_event(windowing: Windowing) -> list[Column]:
    key: Column
    match windowing.by:
        case None:
            key = F.lit(None).cast("string")
        case "":
            key = F.col("routing_key")
        case field:
            key = _field(field)
    value = [_field(windowing.value).try_cast("double").alias("value")] if windowing.value else []
    return [key.alias("key"), *value]


def _field(name: str) -> Column:
    return F.get_json_object(F.col("event").cast("string"), path_of(name))


def path_of(name: str) -> str:
    """The JSON path of a field; dots lead into objects."""
    return "$" + "".join(f"['{part}']" for part in name.split("."))


def _of_value(windowing: Windowing) -> list[Column]:
    if windowing.value is None:
        return []
    p50, p90 = (F.percentile_approx("value", share).alias("p") for share in (0.5, 0.9))
    found = (F.count("value"), F.sum("value"), F.mean("value"), p50, p90)
    return [column.alias(name) for column, name in zip(found, VALUES, strict=True)]


def told(windows: DataFrame) -> DataFrame:
    """The windows as events of a stream, in order of time within a task."""
    event = F.to_json(F.struct(*windows.columns), _JSON)
    return windows.sortWithinPartitions("window_start", "key").select(
        event.alias("event"),
        F.col("key").alias("routing_key"),
        F.col("window_start").alias("event_time"),
    )
