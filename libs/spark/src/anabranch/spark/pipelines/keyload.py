"""Measures a stream's load over the key space, and divides its segments into equal shares.

    python -m anabranch.spark.pipelines.keyload --stream demo/flights --nats ./endpoints.json \\
        --out out/keyload [--apply]

Spark reads the events once and sums them by key and by cell of the key space; the driver divides
each current segment by the rule of auto-scaling. The events of all epochs count, each in the
segment that takes its key now. `--apply` scales the stream, unless it has been scaled meanwhile;
without it the report has the command.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from anabranch.common.errors import InvalidRequest
from anabranch.spark.pipelines.arguments import StreamInput, argument
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.keyloads.cluster import current_segments, scale
from anabranch.spark.pipelines.keyloads.plot import plot_load
from anabranch.spark.pipelines.keyloads.shares import Cell, Divided, Segment, command, divided
from anabranch.spark.pipelines.progress import Progress

BITS_MAX = 12
PARTS_MAX = 64
COLUMNS = "event,routing_key,key_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(StreamInput):
    """The stream, and how its segments are divided."""

    out: Path = argument("directory of the report and the plot")
    parts: int = argument("divide each segment into so many parts", default=2)
    segments: tuple[int, ...] = argument(
        "divide only these current segments, by id (default: all)", default=(), metavar="ID"
    )
    by: str = argument("what is divided evenly", default="bytes", choices=("bytes", "events"))
    start: str | None = argument(
        "only events from here: a time such as 2013-01-01T00:00:00Z", default=None, metavar="TIME"
    )
    cells: int = argument("the cells of the key space, a power of two up to 4096", default=1024)
    keys: int = argument("how many of the heaviest keys to name", default=20)
    apply: bool = argument("scale the stream", default=False)

    @property
    def bits(self) -> int:
        """A cell is 2^-bits wide. Raises InvalidRequest."""
        bits = self.cells.bit_length() - 1
        if self.cells != 1 << max(bits, 0) or not 1 <= bits <= BITS_MAX:
            raise InvalidRequest(
                "the number of cells is no power of two", remedy=f"give 2 to {2**BITS_MAX}"
            )
        return bits


@dataclass(frozen=True, slots=True)
class Key:
    """A routing key, its place in the key space, its load, and its share of all bytes."""

    key: str
    position: float
    events: int
    bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class Report:
    """The load of the stream's events, and the parts of its segments. `applied`: they are made."""

    stream: str
    epoch: int
    by: str
    events: int
    bytes: int
    keyless_events: int
    keyless_bytes: int
    distinct_keys: int
    heaviest: tuple[Key, ...]
    segments: tuple[Divided, ...]
    command: str
    applied: bool
    plots: tuple[str, ...]


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Measure, divide, and scale if asked to. Raises Invalid errors and StreamNotFound, and
    ScaleRefused if the stream has been scaled meanwhile."""
    source, bits = arguments.source(os.environ), arguments.bits
    _check(arguments, source)
    progress.phase("reading")
    epoch, segments = current_segments(session, arguments.stream, source)
    keys = load_by_key(session, arguments, source).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        keyless = _sums(keys.where("routing_key IS NULL"))
        cells = cells_of(keys, segments, bits)
        heaviest = keys.where("routing_key IS NOT NULL").orderBy(
            F.desc(arguments.by), "routing_key"
        )
        rows = heaviest.limit(arguments.keys).collect()
        distinct = keys.where("routing_key IS NOT NULL").count()
    finally:
        keys.unpersist()
    by_events = arguments.by == "events"
    found = divided(
        segments, cells, keyless, bits=bits, count=arguments.parts, by_events=by_events
    )  # fmt: skip
    found = chosen(found, arguments.segments)
    flat = [cell for each in cells.values() for cell in each]
    size = sum(cell.bytes for cell in flat) + keyless[1]
    progress.phase("drawing")
    plot = plot_load(
        arguments.stream, flat, found, arguments.out / "keyload.png", bits=bits, by_events=by_events
    )
    line = command(arguments.stream, epoch, found)
    if arguments.apply and line:
        progress.phase("scaling")
        scale(source[1], arguments.stream, epoch, found)
    return Report(
        stream=arguments.stream,
        epoch=epoch,
        by=arguments.by,
        events=sum(cell.events for cell in flat) + keyless[0],
        bytes=size,
        keyless_events=keyless[0],
        keyless_bytes=keyless[1],
        distinct_keys=distinct,
        heaviest=tuple(
            Key(row.routing_key, row.key_position, row.events, row.bytes, row.bytes / max(1, size))
            for row in rows
        ),
        segments=found,
        command=line,
        applied=arguments.apply and bool(line),
        plots=(str(plot.resolve()),),
    )


def _check(arguments: Arguments, source: tuple[str, str]) -> None:
    if not 2 <= arguments.parts <= PARTS_MAX:
        raise InvalidRequest(
            "a segment cannot be divided so", remedy=f"give --parts 2 to {PARTS_MAX}"
        )
    if arguments.apply and source[0] != "nats_url":
        raise InvalidRequest(
            "only a running cluster can scale a stream",
            remedy="give --nats in place of --tier2, or omit --apply and run the command later",
        )


def load_by_key(session: SparkSession, arguments: Arguments, source: tuple[str, str]) -> DataFrame:
    """A row per key: `routing_key`, `key_position`, `events`, `bytes`."""
    reader = session.read.format("anabranch").option(*source).option("columns", COLUMNS)
    if arguments.start is not None:
        reader = reader.option("start", arguments.start)
    return (
        reader.load(arguments.stream)
        .groupBy("routing_key")
        .agg(
            F.first("key_position").alias("key_position"),
            F.count("*").alias("events"),
            F.sum(F.length("event")).alias("bytes"),
        )
    )


def cells_of(keys: DataFrame, segments: Sequence[Segment], bits: int) -> dict[int, list[Cell]]:
    """The cells with load, by the segment that takes their keys. A bound of a segment may lie in
    a cell, of which both segments then have a part."""
    number = F.floor(F.col("key_position") * 2**bits).alias("cell")
    rows = (
        keys.where("key_position IS NOT NULL")
        .groupBy(_segment_number(segments).alias("at"), number)
        .agg(
            F.sum("events").alias("events"),
            F.sum("bytes").alias("bytes"),
            F.max_by("key_position", "bytes").alias("top"),
        )
        .orderBy("at", "cell")
        .collect()
    )
    found: dict[int, list[Cell]] = defaultdict(list)
    for row in rows:
        cell = Cell(row["cell"], row["events"], row["bytes"], row["top"])
        found[segments[row["at"]].segment_id].append(cell)
    return found


def _segment_number(segments: Sequence[Segment]) -> Column:
    """The place in `segments`, which are ordered by their keys and cover all of them."""
    starts = F.array(*(F.lit(each.keys.start) for each in segments))
    return F.size(F.filter(starts, lambda start: start <= F.col("key_position"))) - 1


def _sums(keys: DataFrame) -> tuple[int, int]:
    found = keys.agg(F.sum("events"), F.sum("bytes")).first()
    assert found is not None
    return found[0] or 0, found[1] or 0


def chosen(found: Sequence[Divided], only: Sequence[int]) -> tuple[Divided, ...]:
    """The segments, of which those that are not in `only`, unless it is empty, stay whole.

    Raises InvalidRequest for an id that is none of a current segment.
    """
    unknown = {*only} - {each.segment_id for each in found}
    if unknown:
        raise InvalidRequest(
            "there is no such current segment",
            remedy="name ids of the report, or omit --segments", found=min(unknown),
        )  # fmt: skip
    return tuple(
        each if not only or each.segment_id in only else whole(each) for each in found
    )  # fmt: skip


def whole(each: Divided) -> Divided:
    """The segment without parts."""
    return replace(each, parts=())


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    lines = [
        f"{report.stream} has {report.events:,} events of {report.bytes:,} bytes with "
        f"{report.distinct_keys:,} keys; {report.keyless_events:,} events have no key"
    ]
    for each in report.segments:
        lines.append(f"segment {each.segment_id} has {each.share:.1%} of all {report.by}")
        lines += [
            f"  [{part.start:.6f}, {part.end:.6f}) would have {part.share:.1%} of that"
            for part in each.parts
        ]
    lines += [
        f"key {each.key!r} at {each.position:.6f} has {each.share:.2%} of all bytes"
        for each in report.heaviest[:5]
    ]
    if report.applied:
        lines.append(f"scaled {report.stream} to these parts")
    elif report.command:
        lines.append(f"to make these parts: {report.command}")
    else:
        lines.append("no segment can be divided: each has the load of a single cell, or none")
    return (*lines, *(f"drew {path}" for path in report.plots))


PIPELINE = Pipeline(
    name="keyload",
    help="Measure the load over the key space, and divide the segments into equal shares.",
    arguments=Arguments,
    run=run,
    summary=summary,
    results_in=lambda arguments: arguments.out,
)

if __name__ == "__main__":
    run_program(PIPELINE)
