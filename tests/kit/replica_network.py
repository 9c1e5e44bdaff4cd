"""The network between simulated stores: who reaches whom, in which direction, and how well.

A partition cuts one direction between two names, or both. As with TCP, messages that meet it wait
until it is mended, and a connection that loses a message is lost as a whole: its ends hear of that
at different times, and what was sent before may still arrive.
"""

from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from anabranch.segstore.ports_replica import CopyHost
from kit.processes import Process, Processes
from kit.replica_promises import Promises
from kit.rng import Random
from kit.ways import Way, WayFaults

NOTICE_S_MAX = 3.0
"""How long an end of a lost connection may take to hear of it."""


class Hosting(Protocol):
    """A process whose copies other stores reach."""

    process: Process
    silent: bool
    """Whether its machine ended with it, so that no connection is reset."""

    @property
    def host(self) -> CopyHost: ...

    def spawn(self, work: Coroutine[None, None, None]) -> object:
        """Run work for a caller."""
        ...


@dataclass(slots=True)
class NetworkFaults:
    """The share of messages that are lost, each with its connection; the slowest message."""

    lost: float = 0.0
    slow_s_max: float = 0.002


@dataclass(slots=True)
class _Laid:
    """A way in one direction."""

    source: str
    target: str
    way: Way


class Network:
    """The network of one run. Names are those of nodes, and of controllers."""

    def __init__(self, processes: Processes, rng: Random, counts: Counter[str]) -> None:
        self.processes = processes
        self.rng = rng
        self.counts = counts
        self.faults = NetworkFaults()
        self.promises = Promises()
        self._hosts: dict[str, Hosting] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._laid: list[_Laid] = []

    def join(self, name: str, hosting: Hosting) -> None:
        """The present process of a node listens."""
        self._hosts[name] = hosting

    def host(self, name: str) -> Hosting | None:
        """The process that listens; None if none does."""
        found = self._hosts.get(name)
        return None if found is None or found.process.dead else found

    def way(self, source: str, target: str, process: Process) -> Way:
        """A way from one name to the process of another one; messages go by `tell`."""
        way = Way(self.processes, process, self.rng, self.counts)
        way.faults = WayFaults(slow_s_max=self.faults.slow_s_max)
        if (source, target) in self._cuts:
            way.break_off()
        self._laid = [laid for laid in self._laid if not laid.way.process.dead]
        self._laid.append(_Laid(source, target, way))
        return way

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing passes in this direction."""
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass in this direction until it is mended."""
        self._cuts.add((source, target))
        for laid in self._laid:
            if (laid.source, laid.target) == (source, target):
                laid.way.break_off()

    def mend(self, source: str, target: str) -> None:
        """Deliver what waits, and let everything pass."""
        self._cuts.discard((source, target))
        for laid in list(self._laid):
            if (laid.source, laid.target) == (source, target):
                laid.way.mend()

    def set_faults(self, faults: NetworkFaults) -> None:
        """Let these happen, on the present ways, too."""
        self.faults = faults
        for laid in self._laid:
            laid.way.faults = WayFaults(slow_s_max=faults.slow_s_max)

    def heal(self) -> None:
        """Let everything pass, quickly."""
        self.set_faults(NetworkFaults())
        for source, target in sorted(self._cuts):
            self.mend(source, target)

    def loses(self) -> bool:
        """Whether the next message is lost."""
        return bool(self.faults.lost) and self.rng.random() < self.faults.lost

    def notice_s(self) -> float:
        """When an end of a lost connection hears of it."""
        return self.rng.random() * self.rng.choice((0.01, NOTICE_S_MAX))
