"""Writes files to a stream: an archive, or a directory of Parquet files; each event once.

    python -m anabranch.spark.pipelines.replay --source archive --stream demo/again \\
        --nats ./endpoints.json

A plan beside the source divides its files into chunks (`replaying.plan`), and each chunk is one
transaction, whose version is the chunk's number. The stream remembers the highest version that is
committed, so a run that was killed continues behind it, and a chunk that was half written is
written anew in place of the half.

Within a chunk, events of one key are in order of their event time; events of the same time are in
their order in the archived stream, if their segment is the same. The chunks follow each other in
order of time for an archive, in order of the files' names for other files.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from anabranch.common.errors import InvalidRequest, ObjectExists, ObjectNotFound
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.spark.pipelines.archiving import place
from anabranch.spark.pipelines.archiving.files import Files, local_path, open_files, url_of
from anabranch.spark.pipelines.archiving.manifest import Contents
from anabranch.spark.pipelines.archiving.tasks import read_named
from anabranch.spark.pipelines.arguments import argument, nats_url
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.pipelines.replaying.plan import (
    Chunk,
    Plan,
    Replay,
    Sized,
    check_chosen,
    chunks_of,
    dumped,
    missing,
    of_archive,
    parsed,
    pause_s,
)
from anabranch.spark.pipelines.replaying.progress_made import committed_chunks, wait

CHUNK_BYTES = 64 * 1024 * 1024
WRITTEN = ("event", "routing_key", "event_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The files, the stream, and how fast."""

    source: str = argument(
        "an archive, or a directory of Parquet files with a column event and, if they have them, "
        "routing_key and event_time",
        metavar="PLACE",
    )
    stream: str = argument("scope/stream that the events are written to")
    nats: str | None = argument(
        "the cluster: a URL, or its endpoints file (default: the variable ANABRANCH_NATS_URL)",
        default=None, metavar="WHERE",
    )  # fmt: skip
    segments: int | None = argument(
        "create the stream, if it does not exist, with so many segments", default=None
    )
    rate: float | None = argument("no more than so many events per second", default=None)
    chunk_bytes: int = argument(
        "about the bytes of the files of one transaction; it divides no day of an archive",
        default=CHUNK_BYTES,
    )
    name: str = argument("begin another replay of the same files", default="")


@dataclass(frozen=True, slots=True)
class Report:
    """`events_before`: those that earlier runs of the replay have committed."""

    application: str
    source: str
    stream: str
    chunks: int
    chunks_before: int
    events: int
    events_before: int


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Write the chunks that the stream does not have yet."""
    clock: Clock = SystemClock()
    url = url_of(arguments.source)
    files = open_files(url)
    replay = Replay(url, str(stream_ref(arguments.stream)), arguments.name)
    where = nats_url(arguments.nats, os.environ)
    progress.phase("planning")
    contents, _ = place.load(files)
    plan = planned(files, replay, contents, arguments.chunk_bytes)
    done = committed_chunks(where, arguments.stream, replay.application)
    check_present(files, plan, done)
    progress.phase("replaying")
    began, written = clock.monotonic(), 0
    for version, chunk in list(enumerate(plan.chunks))[done:]:
        events = ordered(read_named(session, url, contents, chunk.files))
        write(events, arguments, where, (replay.application, version))
        written += chunk.rows
        progress.say(f"chunk {version + 1} of {len(plan.chunks)}: {chunk.rows:,} events")
        if version + 1 < len(plan.chunks):
            wait(clock, pause_s(arguments.rate, written, clock.monotonic() - began))
    return Report(
        application=replay.application,
        source=url,
        stream=replay.target,
        chunks=len(plan.chunks) - done,
        chunks_before=done,
        events=written,
        events_before=_rows(plan.chunks[:done]),
    )


def _rows(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def planned(files: Files, replay: Replay, contents: Contents, chunk_bytes: int) -> Plan:
    """The plan of an earlier run, else a new one, which is written beside the source."""
    is_archive = contents.origin is not None
    try:
        plan = parsed(files.get(replay.plan_name))
    except ObjectNotFound:
        found = of_archive(contents.files.values()) if is_archive else parquet_files(replay.source)
        plan = Plan(replay, is_archive, chunks_of(found, chunk_bytes))
        try:
            files.create(replay.plan_name, dumped(plan))
        except ObjectExists:  # by another run of the same replay, whose plan holds
            plan = parsed(files.get(replay.plan_name))
    check_chosen(plan, replay, archive=is_archive)
    return plan


def parquet_files(url: str) -> list[Sized]:
    """The Parquet files of a directory, by name. Raises InvalidRequest without one."""
    root = local_path(url)
    if root is None:
        raise InvalidRequest(
            "a bucket is replayed only if it holds an archive",
            remedy="copy other Parquet files to a directory, or archive them first", source=url,
        )  # fmt: skip
    found = [
        Sized(str(name), str(name), pq.read_metadata(path).num_rows, path.stat().st_size)
        for path in sorted(root.rglob("*.parquet"))
        if not _is_hidden(name := path.relative_to(root))
    ]
    if not found:
        raise InvalidRequest(
            "the directory has no Parquet files",
            remedy="name an archive, or a directory of Parquet files", source=url,
        )  # fmt: skip
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def check_present(files: Files, plan: Plan, done: int) -> None:
    """Raises InvalidRequest if files of the plan are gone that are not committed yet."""
    gone = missing(plan, done, files.list("data" if plan.archive else ""))
    if gone:
        raise InvalidRequest(
            "files that the replay has not written yet are gone from the source",
            remedy="restore them; after a compaction of the archive, replay it into another stream",
            files=len(gone), first=gone[0],
        )  # fmt: skip


def ordered(events: DataFrame) -> DataFrame:
    """The columns of a write, the events of a key in one task, in order of time."""
    has = set(events.columns)
    if "event" not in has:
        raise InvalidRequest(
            "the files have no column event", remedy="name files with a column event of bytes"
        )
    place_ = ("segment", "offset", "index") if "segment" in has else ("_place",)
    by: list[Column] = [F.col(name) for name in ("event_time", *place_) if name in {*has, "_place"}]
    if "segment" not in has:
        events = events.withColumn("_place", F.monotonically_increasing_id())
    if "routing_key" in has:
        # Events without a key have no order to keep, and spread.
        events = events.repartition(F.coalesce("routing_key", F.sha2("event", 256)))
    return events.sortWithinPartitions(*by).select(*(name for name in WRITTEN if name in has))


def write(events: DataFrame, arguments: Arguments, where: str, key: tuple[str, int]) -> None:
    """Write one chunk as a transaction; one that is committed is not written again."""
    # A write finds sources written in Python only in a thread with an active session, which another
    # thread than the one that made the session gets by making a table.
    events.sparkSession.createDataFrame([], "event binary")
    writer = events.write.format("anabranch").mode("append").option("nats_url", where)
    writer = writer.option("application", key[0]).option("version", key[1])
    if arguments.segments is not None:
        writer = writer.option("create_stream", "true").option("segments", arguments.segments)
    writer.save(arguments.stream)


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    lines = [f"wrote {report.events:,} events to {report.stream} in {report.chunks} transactions"]
    if report.chunks_before:
        lines.append(
            f"earlier runs wrote {report.events_before:,} events in "
            f"{report.chunks_before} transactions"
        )
    lines.append(f"{report.source} is replayed as {report.application}")
    return lines


PIPELINE = Pipeline(
    name="replay",
    help="Write an archive, or a directory of Parquet files, to a stream: each event once.",
    arguments=Arguments,
    run=run,
    summary=summary,
    quick=False,
)

if __name__ == "__main__":
    run_program(PIPELINE)
