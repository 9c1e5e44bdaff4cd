"""The restarts of a store with a large table, on a cluster and a table in memory."""

import signal
from pathlib import Path

import pytest

from bench.case import case_of
from bench.workloads.w22_table_restart import INDEXES, STORE, FilledTable
from kit.bench_fake import FakeStopwatch
from kit.bench_table_fake import CALL_SECONDS, FakeTable, Fault

CASE = case_of(32)
BLOCKS = 3
STARTING_LOOKS = 2


class FakeCluster:
    """Starts a store again as soon as it was looked at twice."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.signals: list[signal.Signals] = []
        self._pid = 100
        self._looks_left = 0
        (data_dir / INDEXES / "0").mkdir(parents=True)

    def pids_of(self, part: str) -> list[int]:
        assert part == STORE
        self._looks_left -= 1
        return [self._pid] if self._looks_left < 0 else []

    def signal(self, part: str, how: signal.Signals) -> None:
        assert part == STORE
        self.signals.append(how)
        self._pid += 1
        self._looks_left = STARTING_LOOKS


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    return FakeCluster(tmp_path)


async def filled(cluster: FakeCluster, fault: Fault = "none") -> FilledTable:
    clock = FakeStopwatch()
    table = FilledTable(cluster, FakeTable(clock, fault), CASE, BLOCKS, clock)
    await table.fill()
    return table


async def test_a_restart_counts_from_the_new_process_to_the_answer_of_all_partitions(
    cluster: FakeCluster,
) -> None:
    table = await filled(cluster)

    seconds = await table.restart(signal.SIGTERM, keep_index=True)

    assert seconds == pytest.approx(CALL_SECONDS)
    assert cluster.signals == [signal.SIGTERM]
    assert (cluster.data_dir / INDEXES).exists()


async def test_a_rebuild_starts_without_the_index(cluster: FakeCluster) -> None:
    table = await filled(cluster)

    await table.restart(signal.SIGKILL, keep_index=False)

    assert cluster.signals == [signal.SIGKILL]
    assert not (cluster.data_dir / INDEXES).exists()


async def test_a_filled_table_has_all_its_blocks(cluster: FakeCluster) -> None:
    table = await filled(cluster)

    assert table.entries == BLOCKS * 1_000
    assert await table.is_right()


@pytest.mark.parametrize("fault", ["misreads", "miscounts"])
async def test_a_table_that_is_not_as_it_was_filled_is_reported(
    cluster: FakeCluster, fault: Fault
) -> None:
    table = await filled(cluster, fault)

    assert not await table.is_right()
