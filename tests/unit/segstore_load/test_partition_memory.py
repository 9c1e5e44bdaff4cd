"""The memory of idle partitions in a store."""

import gc
import tracemalloc

import pytest

from anabranch.segstore.shell.memory.residency import ResidencyLimits
from kit.tiered_driver import TieredDriver
from kit.topic_parts import TopicContainer, partition

COUNT = 1000
IDLE_BYTES_MAX = 2200
WRITTEN_BYTES_MAX = 3600
"""Once written to by one writer: the writer's mark, and an extent in memory and in the catalog."""


@pytest.mark.parametrize(("appends", "limit"), [(0, IDLE_BYTES_MAX), (1, WRITTEN_BYTES_MAX)])
def test_an_idle_partition_takes_few_bytes(appends: int, limit: int) -> None:
    """In a container that was opened again, so that its log and tier 2 are not counted."""
    driver = TieredDriver(
        cache_size=0,
        container_type=TopicContainer,
        residency=ResidencyLimits(segments_max=2 * COUNT),
    )
    for ordinal in range(COUNT):
        driver.create(partition(ordinal))
    for ordinal in range(COUNT * appends):
        driver.append_once(1, [b"x" * 100], segment=partition(ordinal))
    driver.commit()
    driver.flush()
    driver.replies.clear()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    former = driver.container
    driver.crash()
    assert driver.container is not former
    for ordinal in range(COUNT):
        driver.known(partition(ordinal))
    container = driver.container
    assert container.notices.partitions is not None
    container.notices.partitions.touch(container.applied.state.names)
    container.notices.partitions.settle(container.applied.state.living)
    container.notices.partitions.take_all()
    gc.collect()
    per_partition = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    tracemalloc.stop()
    driver.finish()
    assert per_partition <= limit
