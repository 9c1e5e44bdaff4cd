"""Live reports of one moment, as values of bounded size (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.common.contracts.live import LiveContainer, LivePartition, LiveReport
from anabranch.segstore.domain.load.partitions import HeldPartition

PARTITIONS_MAX = 500
"""In one report, so that neither side needs much memory for it. With the longest names and numbers,
its JSON has less than `LIVE_REPORT_SIZE_BYTES_MAX` bytes."""

ContainerPartitions = tuple[int, int, Sequence[HeldPartition]]
"""(container, container epoch, partitions to report)."""


@dataclass(frozen=True, slots=True)
class StorageState:
    """What the partitions that the store leads hold, and whether the store refuses records."""

    used_bytes: int
    out_of_storage: bool


def live_reports(
    node_id: str,
    session: str,
    first_sequence: int,
    storage: StorageState,
    containers: Sequence[ContainerPartitions],
    *,
    full: bool,
) -> Iterator[LiveReport]:
    """The reports, numbered from `first_sequence` on; at least one. Each is made when it is due."""
    return (
        LiveReport(
            node_id=node_id,
            session=session,
            sequence=first_sequence + at,
            full=full,
            used_bytes=storage.used_bytes,
            out_of_storage=storage.out_of_storage,
            containers=tuple(_container(part) for part in parts),
        )
        for at, parts in enumerate(_divided(containers))
    )


def _divided(containers: Sequence[ContainerPartitions]) -> Iterator[list[ContainerPartitions]]:
    """The containers, cut so that each report has at most `PARTITIONS_MAX` partitions."""
    taken: list[ContainerPartitions] = []
    room = PARTITIONS_MAX
    for container, epoch, partitions in containers:
        taken.append((container, epoch, partitions[:room]))
        at, room = room, room - len(partitions)
        while room < 0:
            yield taken
            taken = [(container, epoch, partitions[at : at + PARTITIONS_MAX])]
            at, room = at + PARTITIONS_MAX, room + PARTITIONS_MAX
    yield taken


def _container(part: ContainerPartitions) -> LiveContainer:
    container, epoch, partitions = part
    return LiveContainer(
        container=container,
        container_epoch=epoch,
        partitions=tuple(
            LivePartition.model_construct(
                segment=found.segment, base=found.base, leo=found.leo, size_bytes=found.size
            )
            for found in partitions
        ),
    )
