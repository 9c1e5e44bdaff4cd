"""Assignment by load: the leader is the SPU that leads the fewest partitions of the cluster, and
each follower the one that follows the fewest.

With racks, a follower comes from a rack that the row has least of; of equal SPUs, the one with the
lowest id is taken. Offline SPUs are used only if too few are online, and never lead.
"""

from collections import Counter
from collections.abc import Sequence

from anabranch.controller.domain.cluster.objects.assignment.values import (
    AssignedMap,
    Candidate,
    Existing,
    Refused,
    obstacle,
    preferred,
)


def assign(
    spus: Sequence[Candidate],
    existing: Existing,
    partitions: int,
    replication_factor: int,
    *,
    ignore_racks: bool = False,
    start: int = 0,  # noqa: ARG001  # a strategy by load needs no index
) -> AssignedMap | Refused:
    """A `Strategy`."""
    refused = obstacle(spus, replication_factor, ignore_racks=ignore_racks)
    if refused is not None:
        return refused
    able = preferred(spus, replication_factor)
    leads, follows = Counter(existing.leads), Counter(existing.follows)
    rows = list(existing.rows)
    while len(rows) < partitions:
        row = _row(able, replication_factor, leads, follows, ignore_racks=ignore_racks)
        leads[row[0]] += 1
        follows.update(row[1:])
        rows.append(row)
    return AssignedMap(tuple(rows))


def _row(
    able: Sequence[Candidate],
    factor: int,
    leads: Counter[int],
    follows: Counter[int],
    *,
    ignore_racks: bool,
) -> tuple[int, ...]:
    leader = min(
        (spu for spu in able if spu.online), key=lambda spu: (leads[spu.spu_id], spu.spu_id)
    )
    row = [leader]
    while len(row) < factor:
        racks = Counter[str]() if ignore_racks else Counter(spu.rack for spu in row)

        def burden(spu: Candidate, racks: Counter[str] = racks) -> tuple[bool, int, int, int]:
            return not spu.online, racks[spu.rack], follows[spu.spu_id], spu.spu_id

        row.append(min((spu for spu in able if spu not in row), key=burden))
    return tuple(spu.spu_id for spu in row)
