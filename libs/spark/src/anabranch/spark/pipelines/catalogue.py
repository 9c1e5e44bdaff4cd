"""The pipelines: a row each. A new pipeline is one module with a `PIPELINE`, and one row here.

Nothing is imported here, so that `anabranch pipeline list` starts no Spark.
"""

from dataclasses import dataclass

PACKAGE = "anabranch.spark.pipelines"


@dataclass(frozen=True, slots=True)
class Row:
    """A pipeline. Its module, below `anabranch.spark.pipelines`, has the constant `PIPELINE`."""

    name: str
    module: str
    help: str


CATALOGUE = (
    Row(
        "archive",
        "archive",
        "Archive a stream as Parquet files, partitioned by event time: each event once.",
    ),
    Row(
        "replay",
        "replay",
        "Write an archive, or a directory of Parquet files, to a stream: each event once.",
    ),
    Row(
        "audit",
        "audit",
        "Prove from tier 2 alone that streams are whole: blocks, numbers, keys and epochs.",
    ),
    Row(
        "windows",
        "windows",
        "Count and sum a stream by windows of event time into a stream and a table: once each.",
    ),
    Row(
        "keyload",
        "keyload",
        "Measure the load over the key space, and divide the segments into equal shares.",
    ),
    Row(
        "flight-delays",
        "flight_delays",
        "Turn the flights of the demo into a table of delays per hour and two plots.",
    ),
    Row(
        "flight-year",
        "flight_year",
        "Archive, count by windows and audit the flights of the demo.",
    ),
)


def row_of(name: str) -> Row | None:
    """The row with this name; a name may be written with `_` too."""
    return next((row for row in CATALOGUE if row.name == name.replace("_", "-")), None)
