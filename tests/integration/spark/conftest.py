"""One Spark session and one cluster for all tests of this package, which are in one group."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.spark.session import local_session
from kit.cluster_thread import ClusterThread, cluster_thread


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    with local_session("tests", quick=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    """A cluster to which each module adds a scope of its own."""
    with cluster_thread(tmp_path_factory.mktemp("spark") / "data") as found:
        yield found
