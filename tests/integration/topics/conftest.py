"""The cluster that the tests of a module share: one controller, one store with a journal.

The controller looks for records that are to go every second.
"""

from collections.abc import Iterator

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings
from kit.module_cluster import running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    settings = UpSettings(tmp_path_factory.mktemp("topics"), redis=False)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ANABRANCH_CONTROLLER_TOPIC_RETENTION_PERIOD_S", "1")
        with running_cluster(settings) as running:
            yield running
