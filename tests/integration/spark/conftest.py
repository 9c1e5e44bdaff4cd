"""One Spark session and one cluster for all tests of this package, which are in one group.

Both end with the last of these tests: idle, they take a tenth of a processor. pytest's scope
`package` would end them with the run, because the folder is no Python package.

A usual run takes those that cover each part once; `make test-spark` takes all of them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.spark.session import local_session
from kit.cluster_thread import ClusterThread, cluster_thread
from kit.spark_following import SCOPE, World
from kit.thorough import is_thorough

USUAL = frozenset(
    {
        "test_stores_and_tier_2_give_the_same_rows_which_are_the_events_written",
        "test_reading_ends_and_starts_at_positions_without_loss_or_repetition",
        "test_a_session_leaves_nothing_in_the_current_directory",
        "test_tables",  # a module name stands for all of its tests
        "test_each_event_comes_once_over_restarts_splits_and_merges",
        "test_pushed_filters_change_no_result[tier2]",
        "test_columns_on_request_tell_where_an_event_comes_from[nats_url]",
        "test_nothing_is_found_in_a_healthy_stream_beside_them",
        "test_a_damage_is_not_found_again_as_the_gap_that_it_leaves",
        "test_a_batch_that_spark_did_not_note_is_not_written_again",
        "test_keys_and_times_reach_the_stream",
        "test_what_is_refused_tells_users_what_to_do",
        "test_a_restarted_query_has_each_row_of_the_tables_once",
    }
)
FOLDER = Path(__file__).parent
LONG = "one of the long proofs in Spark: make test-spark runs all of them"

_shared = ExitStack()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the long proofs to `make test-spark`."""
    if is_thorough():
        return
    for item in items:
        path = Path(item.path)
        if path.parent == FOLDER and not {path.stem, item.name} & USUAL:
            item.add_marker(pytest.mark.skip(reason=LONG))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End what these tests share with the last of them."""
    if nextitem is None or not nextitem.path.is_relative_to(FOLDER):
        _shared.close()


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    yield _shared.enter_context(local_session("tests", quick=True))
    _shared.close()  # if the run was interrupted


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    """A cluster to which each module adds a scope of its own."""
    yield _shared.enter_context(cluster_thread(tmp_path_factory.mktemp("spark") / "data"))
    _shared.close()


@pytest.fixture(scope="session")
def _following_scope(running: ClusterThread) -> None:
    running.run(lambda client: client.scopes.create(SCOPE))


@pytest.fixture
def world(
    session: SparkSession, running: ClusterThread, tmp_path: Path, _following_scope: None
) -> Iterator[World]:
    """A test's queries, which end with it."""
    yield World(session, running, tmp_path)
    for query in session.streams.active:
        query.stop()
