"""Live reports: the leaders of partitions report record numbers and sizes to the controllers.

A store publishes a report on `subjects.live_report(<node id>)` every `REPORT_S` if anything has
changed, and in full every `FULL_S`. No stream keeps it, and controllers keep only the newest
numbers, in memory. A controller drops the part of a container that comes from another store than
the placement's owner, or with another container epoch.
"""

from anabranch.common.contracts.base import Contract

REPORT_S = 0.4
FULL_S = 10.0
LIVE_REPORT_SIZE_BYTES_MAX = 512 * 1024


class LivePartition(Contract):
    """A segment of a topic. `size_bytes`: what it keeps; -1: not known.

    `base`, `leo`: the numbers of the first record that is kept and of the next one that is written.
    All of them are readable, because a record counts once every in-sync copy has it.
    """

    segment: str
    base: int
    leo: int
    size_bytes: int


class LiveContainer(Contract):
    """The partitions of a container that this store leads, or those that have changed."""

    container: int
    container_epoch: int
    partitions: tuple[LivePartition, ...] = ()


class LiveReport(Contract):
    """`session`: the store's. `full`: every partition is listed, possibly over several reports.

    `used_bytes`: what the partitions that this store leads hold. `out_of_storage`: the store
    refuses records for topics, because its storage size is used up.
    """

    node_id: str
    session: str
    sequence: int
    full: bool = False
    used_bytes: int = 0
    out_of_storage: bool = False
    containers: tuple[LiveContainer, ...] = ()
