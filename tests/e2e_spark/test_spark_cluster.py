"""Everything on a Spark cluster whose executors have only the packed environment; tier 2 on S3."""

import os
import signal
from pathlib import Path
from zlib import crc32

from anabranch.client import Client
from anabranch.spark.pipelines import archive as archive_pipeline
from anabranch.spark.pipelines import audit as audit_pipeline
from anabranch.spark.pipelines import replay as replay_pipeline
from kit.spark_cluster import programs
from kit.spark_cluster.far import EVENTS, SEGMENTS, SOURCE, Far, payload
from kit.spark_cluster.standalone import HOME, WORKERS, Standalone
from kit.spark_cluster.submitting import Submitter, await_file, ended, said
from tidy.source import ROOT

READ_ALL = Path(programs.__path__[0], "read_all.py")
COPY = Path(programs.__path__[0], "copy_stream.py")
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


def test_executors_without_the_package_fail_with_a_line_that_names_it(
    spark: Standalone, far: Far, tmp_path: Path
) -> None:
    bare = Submitter(spark, None, tmp_path)
    code, *texts = bare.outcome(READ_ALL, far.streams.nats_url, far.tier2, SOURCE)
    assert code != 0
    assert "No module named 'anabranch'" in said(*texts)


async def flush(client: Client) -> None:
    await client.cluster.flush_to_tier2()
