"""Assignment by the user: the checks of the rows, with Fluvio's reasons word by word."""

from collections.abc import Collection, Iterable, Sequence

from anabranch.common.model.objects import AssignedPartition, TopicResolution
from anabranch.controller.domain.cluster.objects.assignment.values import AssignedMap, Refused


def fault_of(rows: Sequence[AssignedPartition]) -> str:
    """Why the rows are no assignment; "" if they are one."""
    if not rows:
        return "no assigned partitions found"
    if rows[0].id != 0:
        return "assigned partitions must start with id 0"
    if not rows[0].replicas:
        return "assigned replicas must have at least one spu id"
    if any(row.id != index for index, row in enumerate(rows)):
        return "assigned partition ids must be in sequence and without gaps"
    return next(filter(None, _faults_of_replicas(rows)), "")


def assign(rows: Sequence[AssignedPartition], registered: Collection[int]) -> AssignedMap | Refused:
    """The map that the user asked for. `registered`: the ids of all SPUs, which may be offline."""
    if not rows:
        return Refused("invalid replica map", TopicResolution.INVALID_CONFIG)
    for row in rows:
        for spu_id in row.replicas:
            if spu_id not in registered:
                return Refused(f"invalid spu id: {spu_id}", TopicResolution.INVALID_CONFIG)
    return AssignedMap(tuple(row.replicas for row in rows))


def _faults_of_replicas(rows: Sequence[AssignedPartition]) -> Iterable[str]:
    """In the order of the checks: each one over all rows before the next one."""
    count = len(rows[0].replicas)
    for row in rows:
        if len(row.replicas) != count:
            yield f"all assigned replicas must have the same number of spu ids: {count}"
    for row in rows:
        if len(set(row.replicas)) != count:
            yield f"duplicate spu ids found in assigned partition with id: {row.id}"
    for row in rows:
        for spu_id in row.replicas:
            if spu_id < 0:
                yield f"invalid spu id: {spu_id} in assigned partition with id: {row.id}"
