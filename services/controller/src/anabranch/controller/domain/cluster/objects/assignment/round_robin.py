"""Assignment in turn: *round-robin with gap* without racks, a diagonal walk with racks.

Without racks, of `n` SPUs in the order of their ids, the partition with running index `i` is led by
number `i mod n`. Its followers come after its leader, behind a gap that widens by one with every
full turn, so that the same leader gets other followers::

    5 SPUs, 3 replicas:  0 1 2   1 2 3   2 3 4   3 4 0   4 0 1   0 2 3   1 3 4   …

With racks, the SPUs are first put into an order in which neighbours are in different racks, as far
as the sizes of the racks allow. A partition then gets consecutive SPUs of this order.

The running index continues from one topic to the next one. Offline SPUs are used only if too few
are online, and never lead. The tables are those of Fluvio's documentation.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from anabranch.controller.domain.cluster.objects.assignment.values import (
    AssignedMap,
    Candidate,
    Existing,
    Refused,
    obstacle,
    preferred,
    uses_racks,
)


def assign(
    spus: Sequence[Candidate],
    existing: Existing,
    partitions: int,
    replication_factor: int,
    *,
    ignore_racks: bool = False,
    start: int = 0,
) -> AssignedMap | Refused:
    """A `Strategy`."""
    refused = obstacle(spus, replication_factor, ignore_racks=ignore_racks)
    if refused is not None:
        return refused
    row_of = _rows(
        preferred(spus, replication_factor), replication_factor, ignore_racks=ignore_racks
    )
    missing = range(partitions - len(existing.rows))
    return AssignedMap((*existing.rows, *(row_of(start + i) for i in missing)))


def diagonal(spus: Sequence[Candidate]) -> list[Candidate]:
    """The SPUs in an order in which neighbours are in different racks, as far as possible.

    The racks are rows, the largest first, and the SPUs of a rack are its columns. The walk goes one
    row down and one column to the right with each step.
    """
    by_rack: dict[str, list[Candidate]] = defaultdict(list)
    for spu in sorted(spus, key=lambda spu: spu.spu_id):
        by_rack[spu.rack].append(spu)
    racks = sorted(by_rack.values(), key=lambda rack: (-len(rack), rack[0].rack))
    columns = len(racks[0])
    found: dict[int, Candidate] = {}
    row = column = 0
    for step in range(1, len(racks) * columns + 1):
        spu = racks[row][column % len(racks[row])]
        found.setdefault(spu.spu_id, spu)
        row = (row + 1) % len(racks)
        column = (step // len(racks) + row) % columns
    return list(found.values())


def _rows(
    able: Sequence[Candidate], factor: int, *, ignore_racks: bool
) -> Callable[[int], tuple[int, ...]]:
    """The row of each running index."""
    in_racks = uses_racks(able) and not ignore_racks
    order = diagonal(able) if in_racks else list(able)
    if not all(spu.online for spu in order):
        return lambda index: _with_offline(order, factor, index, in_racks=in_racks)
    ids = [spu.spu_id for spu in order]
    return lambda index: _row(ids, factor, index, gaps=not in_racks)


def _row(ids: Sequence[int], factor: int, index: int, *, gaps: bool) -> tuple[int, ...]:
    count = len(ids)
    gap = index // count % (count - factor + 1) if gaps else 0
    followers = (ids[(index + k + gap) % count] for k in range(1, factor))
    return (ids[index % count], *followers)


def _with_offline(
    order: Sequence[Candidate], factor: int, index: int, *, in_racks: bool
) -> tuple[int, ...]:
    """All SPUs that are online, in turn, and as many others as are missing."""
    online = _turned([spu for spu in order if spu.online], index)
    others = _turned([spu for spu in order if not spu.online], index)
    row = list(online)
    while len(row) < factor:
        racks = Counter(spu.rack for spu in row) if in_racks else Counter[str]()
        chosen = min(others, key=lambda spu, racks=racks: racks[spu.rack])  # type: ignore[misc]
        others.remove(chosen)
        row.append(chosen)
    return tuple(spu.spu_id for spu in row)


def _turned(spus: list[Candidate], index: int) -> list[Candidate]:
    at = index % len(spus)
    return spus[at:] + spus[:at]
