"""Everything on a Spark cluster whose executors have only the packed environment; tier 2 on S3."""

import json
import os
import signal
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from anabranch.cli.demo.flights import flights, table_path
from anabranch.client import Client
from anabranch.spark.pipelines import archive as archive_pipeline
from anabranch.spark.pipelines import audit as audit_pipeline
from anabranch.spark.pipelines import flight_delays, keyload, windows
from anabranch.spark.pipelines import replay as replay_pipeline
from kit.spark_cluster import programs
from kit.spark_cluster.far import EVENTS, SEGMENTS, SOURCE, Far, payload
from kit.spark_cluster.standalone import HOME, WORKERS, Standalone
from kit.spark_cluster.submitting import Submitter, await_file, ended, said
from tidy.source import ROOT

READ_ALL = Path(programs.__path__[0], "read_all.py")
COPY = Path(programs.__path__[0], "copy_stream.py")
SPECULATE = Path(programs.__path__[0], "speculate.py")
FLIGHTS = 4000
STORED = sorted(payload(number) for number in range(EVENTS))
SUMS = [EVENTS, sum(map(crc32, STORED))]


def test_executors_without_the_repository_read_streams_and_tables_from_stores_and_from_s3(
    far: Far,
) -> None:
    found = far.submit.run(READ_ALL, far.streams.nats_url, far.tier2, SOURCE)
    assert len(found["places"]) == WORKERS
    for project, pyspark, directory in found["places"]:
        assert Path(project).is_relative_to(Path(directory, "environment"))
        assert not Path(project).is_relative_to(ROOT)
        assert Path(pyspark).is_relative_to(HOME / "python/lib")
    assert found["stores"] == SUMS
    assert found["tier2"] == SUMS
    tables = found["tables"]
    assert tables["streams"] >= 1
    assert tables["segments"] >= SEGMENTS
    assert tables["epochs"] >= 1
    assert tables["blocks"] >= SEGMENTS


def test_a_query_copies_each_event_once_although_an_executor_is_killed_in_the_middle(
    far: Far, tmp_path: Path
) -> None:
    target = far.create("far/copied")
    places = (SOURCE, target, str(tmp_path / "checkpoint"), str(tmp_path))
    with far.submit.running(COPY, far.streams.nats_url, *places) as process:
        await_file(tmp_path / "held", process)
        task = int((tmp_path / "held").read_text())
        os.kill(far.spark.executor_of(task), signal.SIGKILL)
        (tmp_path / "go").touch()
        code, out, errors = ended(process)
    assert code == 0, said(out, errors)
    assert far.events(target) == STORED


@pytest.mark.parametrize("winner", ["second", "first", "race"])
def test_a_query_writes_each_event_once_although_spark_speculates(
    far: Far, tmp_path: Path, winner: str
) -> None:
    target = far.create(f"far/speculated-{winner}")
    places = (SOURCE, target, str(tmp_path / "checkpoint"), str(tmp_path), winner)
    told = far.submit.run(SPECULATE, far.streams.nats_url, *places)["attempts"]
    first, second = (
        [each for each in told if each["index"] == 0 and each["speculative"] is speculative]
        for speculative in (False, True)
    )
    assert len(first) == len(second) == 1, told
    assert first[0]["host"] != second[0]["host"]
    won = [each["speculative"] for each in (*first, *second) if each["status"] == "SUCCESS"]
    assert won in {"second": [[True]], "first": [[False]], "race": [[True], [False]]}[winner]
    assert far.events(target) == STORED


def test_the_pipelines_archive_replay_and_audit_run_by_spark_submit(far: Far) -> None:
    out, nats = f"{far.bucket}/archive", ("--nats", far.streams.nats_url, "--json")
    archived = far.submit.run(
        Path(archive_pipeline.__file__), "--stream", SOURCE, "--out", out, *nats
    )
    assert [archived["archive_events"], archived["archive_crc_sum"]] == SUMS

    again = ("--source", out, "--stream", "far/again", "--segments", str(SEGMENTS))
    far.submit.run(Path(replay_pipeline.__file__), *again, *nats)
    assert far.events("far/again") == STORED

    far.streams.run(flush)
    audited = far.submit.run(Path(audit_pipeline.__file__), "--tier2", far.tier2, "--json")
    assert sum(stream["events"] for stream in audited["streams"]) >= 2 * EVENTS


def test_the_pipelines_of_flights_run_by_spark_submit(far: Far, tmp_path: Path) -> None:
    stream = "far/flights"
    far.streams.run(write_flights)
    nats = ("--nats", far.streams.nats_url, "--json")

    def run(module: object, *words: str) -> dict[str, Any]:
        out = tmp_path / str(vars(module)["PIPELINE"].name)
        program = Path(str(vars(module)["__file__"]))
        told = far.submit.run(program, "--stream", stream, "--out", str(out), *words, *nats)
        assert [Path(plot).stat().st_size > 0 for plot in told["plots"]], told
        return told

    delays = run(flight_delays)
    assert (delays["events"], delays["not_flights"]) == (FLIGHTS, 0)

    told = run(windows, "--by", "origin", "--to", "far/windows", "--segments", "2", "--close")
    assert (told["table_events"], told["late_groups"]) == (FLIGHTS, 0)
    events = [json.loads(event) for event in far.events("far/windows")]
    assert len(events) == told["table_windows"] == told["windows"]
    assert sum(event["events"] for event in events) == FLIGHTS

    load = run(keyload, "--apply")
    assert (load["events"], load["applied"]) == (FLIGHTS, True)
    described = far.streams.run(lambda client: client.streams.describe(stream))
    assert described.segment_count == sum(len(each["parts"]) or 1 for each in load["segments"])


async def write_flights(client: Client) -> None:
    await client.streams.create("far/flights", segments=2)
    async with client.writer("far/flights") as writer:
        for row in islice(flights(table_path()), FLIGHTS):
            writer.write(row.event, row.key, row.timestamp_ms)


def test_executors_without_the_package_fail_with_a_line_that_names_it(
    spark: Standalone, far: Far, tmp_path: Path
) -> None:
    bare = Submitter(spark, None, tmp_path)
    code, *texts = bare.outcome(READ_ALL, far.streams.nats_url, far.tier2, SOURCE)
    assert code != 0
    assert "No module named 'anabranch'" in said(*texts)


async def flush(client: Client) -> None:
    await client.cluster.flush_to_tier2()
