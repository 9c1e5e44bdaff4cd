"""The input and the result of every assignment strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.common.model.objects import TopicResolution

WAITING = "waiting for live spus"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered SPU that may get replicas."""

    spu_id: int
    rack: str = ""
    online: bool = True


@dataclass(frozen=True, slots=True)
class Existing:
    """The replicas that exist.

    `rows`: those of the topic's own partitions, which stay. `leads`, `follows`: of how many
    partitions of the cluster an SPU is the leader, or a follower; those of `rows` are included.
    """

    rows: tuple[tuple[int, ...], ...] = ()
    leads: Mapping[int, int] = field(default_factory=dict)
    follows: Mapping[int, int] = field(default_factory=dict)


NOTHING_EXISTS = Existing()


@dataclass(frozen=True, slots=True)
class AssignedMap:
    """The SPU ids of every partition, leader first: the existing rows, then the new ones."""

    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """No assignment is possible; `reason` names the obstacle to the user."""

    reason: str
    resolution: TopicResolution = TopicResolution.INSUFFICIENT_RESOURCES


class Strategy(Protocol):
    """A way to assign replicas."""

    def __call__(
        self,
        spus: Sequence[Candidate],
        existing: Existing,
        partitions: int,
        replication_factor: int,
        *,
        ignore_racks: bool = False,
        start: int = 0,
    ) -> AssignedMap | Refused:
        """Assign the rows that `existing` lacks of `partitions` rows.

        `start`: the running index of the first new row. The order of `spus` has no effect.
        """
        ...


def obstacle(
    spus: Sequence[Candidate], replication_factor: int, *, ignore_racks: bool
) -> Refused | None:
    """Why no strategy can assign so many replicas; None if one can."""
    missing = replication_factor - len(spus)
    if missing > 0:
        return Refused(f"need {missing} more SPU")
    if not any(spu.online for spu in spus):
        return Refused(WAITING)
    without = min((spu.spu_id for spu in spus if not spu.rack), default=None)
    if ignore_racks or without is None or not uses_racks(spus):
        return None
    other = min(spu.spu_id for spu in spus if spu.rack)
    return Refused(
        f"spu {without} has no rack, but spu {other} has one: "
        "give every spu a rack, or create the topic with racks ignored"
    )


def uses_racks(spus: Sequence[Candidate]) -> bool:
    """Whether replicas are spread over racks: at least one SPU has one."""
    return any(spu.rack for spu in spus)


def preferred(spus: Sequence[Candidate], replication_factor: int) -> list[Candidate]:
    """The SPUs to assign from, by id: those online if they suffice, otherwise all."""
    by_id = sorted(spus, key=lambda spu: spu.spu_id)
    online = [spu for spu in by_id if spu.online]
    return online if len(online) >= replication_factor else by_id
