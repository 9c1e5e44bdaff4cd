"""The disks of simulated stores, which outlive their processes and lose what was not synced.

A store's journal has its writes performed by the machine: each is visible at once and durable a
while later. A crash in between leaves any part of it, a paused process hears of it when it wakes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import LogCopy
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore.adapters.journal.commits import Ended
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.adapters.journal.layout import read_logs
from anabranch.segstore.domain.log.replica.names import parse_copy_name
from kit.processes import Process, Processes
from kit.rng import Random
from kit.simdisk import LOSE_ALL, RandomSurvival, SimDisk

FILE_SIZE_BYTES = 4096
QUICK_S = 0.002


@dataclass(slots=True)
class NodeDisk:
    """The disk of one node. `slow_s_max`: how long a sync may take; `life` counts its contents."""

    disk: SimDisk = field(default_factory=SimDisk)
    slow_s_max: float = QUICK_S
    life: int = 0


class SlowCommits:
    """`CommitWriter` of a process: the machine writes and syncs while the process goes on."""

    def __init__(self, processes: Processes, process: Process, node: NodeDisk, rng: Random) -> None:
        self._processes = processes
        self._process = process
        self._node = node
        self._rng = rng
        self._closed = False
        self._ended: Ended

    def start(self, ended: Ended) -> None:
        """See `CommitWriter`."""
        self._ended = ended

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """See `CommitWriter`."""
        assert not self._closed
        error: AnabranchError | None = None
        try:
            file.write(buffers, offset)
        except AnabranchError as caught:
            error = caught
        seconds = self._rng.random() * self._node.slow_s_max
        self._processes.later(seconds, lambda: self._sync(file, error))

    def _sync(self, file: DiskFile, error: AnabranchError | None) -> None:
        """By the machine. If the process is dead, what it wrote may stay unsynced."""
        if self._process.dead:
            return
        try:
            file.sync()
        except AnabranchError as caught:
            error = error or caught
        self._process.deliver(lambda: self._answer(error))

    def _answer(self, error: AnabranchError | None) -> None:
        if not self._closed:
            self._ended(error)

    def close(self) -> None:
        """See `CommitWriter`."""
        self._closed = True


class Disks:
    """The disks of one run, by node."""

    def __init__(self, processes: Processes, rng: Random, counts: Counter[str]) -> None:
        self._processes = processes
        self._rng = rng
        self._counts = counts
        self._nodes: dict[str, NodeDisk] = {}

    def of(self, node: str) -> NodeDisk:
        """A node's disk; a new one is empty."""
        return self._nodes.setdefault(node, NodeDisk())

    def open(
        self, node: str, process: Process, ids: IdSource, schedule: Callable[..., object]
    ) -> Journal:
        """Open the journal on a node's disk in a new process of it."""
        found = self.of(node)
        return open_journal(
            found.disk,
            ids=ids,
            schedule=schedule,
            file_size=FILE_SIZE_BYTES,
            commits=SlowCommits(self._processes, process, found, self._rng),
        )

    def heal(self) -> None:
        """Let all syncs be quick."""
        for found in self._nodes.values():
            found.slow_s_max = QUICK_S

    def end_process(self, node: str) -> None:
        """The node's process is dead: what it wrote stays visible, and unsynced."""
        self.of(node).disk.kill()

    def lose_power(self, node: str, *, everything: bool = False) -> None:
        """The node's machine lost its power: of the unsynced, any part is lost, or everything."""
        self._counts["losses of power"] += 1
        survival = LOSE_ALL if everything else RandomSurvival(self._rng)
        self.of(node).disk.power_loss(survival)

    def copies_on(self, node: str) -> Iterator[str]:
        """The ids of the copies on a node's disk."""
        for listed in read_logs(self.of(node).disk).values():
            parsed = parse_copy_name(listed)
            if parsed is not None:
                yield parsed[1]

    def has_copy(self, node: str, container: int, copy: LogCopy) -> bool:
        """Whether a copy is in the list of logs on a node's disk."""
        listed = read_logs(self.of(node).disk).get(container, "")
        return parse_copy_name(listed) is not None and listed.endswith(copy.copy_id)

    def wipe(self, node: str) -> None:
        """The node gets an empty disk; no process may be using the old one."""
        self._counts["wiped disks"] += 1
        self._nodes[node] = NodeDisk(life=self.of(node).life + 1)
