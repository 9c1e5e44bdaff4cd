"""What placement knows of a store, and the actions that it decides upon. Pure data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as placement sees it."""

    live: bool
    """Alive as far as known."""
    over: bool = False
    """Its session is over for good; it serves no container whose log is shared."""
    stopped: bool = False
    """It shut down by itself. Its session is over a while later, without an `EndSession`."""
    log_home: str = ""
    """The place of the logs that it writes. Stores with an equal one share their logs."""
    rack: str = ""
    draining: bool = False


def may_receive(view: StoreView) -> bool:
    """Whether containers may be placed on the store."""
    return view.live and not view.draining


@dataclass(frozen=True, slots=True)
class Replication:
    """How many stores replicate a log, and the fewest in-sync copies that acknowledge.

    `isr_min` 0: more than half of the replicas.
    """

    replicas: int = 1
    isr_min: int = 0

    def isr_min_of(self, replicas: int) -> int:
        """The fewest in-sync copies of a log with so many replicas."""
        return min(self.isr_min or replicas // 2 + 1, replicas)


@dataclass(frozen=True, slots=True)
class Create:
    """The container's first placement. `followers` and `isr_min`: if its log is replicated."""

    container: int
    store: str
    followers: tuple[str, ...] = ()
    isr_min: int = 0


@dataclass(frozen=True, slots=True)
class Retarget:
    """Place the container elsewhere at once: no store served it where it was.

    `followers` and `isr_min`: if its log is replicated.
    """

    container: int
    store: str
    followers: tuple[str, ...] = ()
    isr_min: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Ask the container's store to release it for `store`; its own store means that it stays.

    A container with a replicated log moves to a store with an in-sync copy, which continues it.
    """

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class EndSession:
    """Mark the record of a dead store as over, so that its containers may fail over."""

    store: str


@dataclass(frozen=True, slots=True)
class FailOver:
    """Have `store` open the container, whose log it shares, in place of its present store."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class Elect:
    """Find the replica that leads the container's log from now on."""

    container: int


@dataclass(frozen=True, slots=True)
class Reassign:
    """Begin to replace the replicas of the container by these, of which the first may lead."""

    container: int
    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Write the replica list, whose first member stays the owner.

    `done`: the wanted replicas are reached, so there is no wish any more.
    """

    container: int
    replicas: tuple[str, ...]
    isr_min: int
    done: bool


Assignment = Create | Retarget | Move | FailOver
"""The actions that choose the store of a container."""
Action = Assignment | EndSession | Elect | Reassign | SetReplicas
