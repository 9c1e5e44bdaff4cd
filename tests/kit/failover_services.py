"""What the processes of a simulated cluster reach: buckets, servers of streams, and tier 2."""

from collections import Counter
from dataclasses import dataclass

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from kit.process_chunks import ProcessChunks
from kit.process_objects import Bucket, ProcessObjects
from kit.process_streams import ProcessStreams
from kit.processes import Process, Processes
from kit.rng import Random
from kit.sim_stream import RELIABLE, SimServers
from kit.virtual_time import START_MS
from kit.ways import Way, WayFaults

MESSAGE_SIZE_MAX = 2000


@dataclass(slots=True)
class Ways:
    """The ways of one process. NATS keeps both the buckets and the logs, on servers that a process
    may lose separately."""

    buckets: Way
    watches: Way
    """For the changes of buckets that the process watches."""
    logs: Way
    tier_two: Way

    @property
    def to_buckets(self) -> tuple[Way, ...]:
        return self.buckets, self.watches

    @property
    def to_nats(self) -> tuple[Way, ...]:
        return self.buckets, self.watches, self.logs

    def set_faults(self, faults: WayFaults) -> None:
        """Let these happen on all ways."""
        for way in (self.buckets, self.watches, self.logs, self.tier_two):
            way.faults = faults

    def mend(self) -> None:
        """Let everything pass, quickly."""
        self.set_faults(WayFaults())
        for way in (self.buckets, self.watches, self.logs, self.tier_two):
            way.mend()


class Services:
    """All services of one run."""

    def __init__(self, processes: Processes, rng: Random, container_count: int) -> None:
        self.processes = processes
        self.rng = rng
        self.container_count = container_count
        self.counts: Counter[str] = Counter()
        self.nodes = self._bucket()
        self.controllers = self._bucket()
        self.cluster = self._bucket()
        self.placements = self._bucket()
        self.servers = SimServers(rng, RELIABLE, processes.later)
        self.tier_two = MemoryChunkStorage()
        self._ids = 0

    def _bucket(self) -> Bucket:
        return Bucket(lambda: START_MS + int(self.processes.now_s * 1000), self.rng)

    def next_number(self) -> int:
        """A number that no other part of the run has, for ids."""
        self._ids += 1
        return self._ids

    def ways_of(self, process: Process) -> Ways:
        """The ways of a new process."""
        ways = Ways(*(self.way(process) for _ in range(4)))
        ways.watches.watched = True
        return ways

    def way(self, process: Process) -> Way:
        """One more way of a process."""
        return Way(self.processes, process, self.rng, self.counts)

    def objects(self, bucket: Bucket, ways: Ways) -> ProcessObjects:
        """A bucket as one process reaches it."""
        return ProcessObjects(bucket, ways.buckets, ways.watches)

    def streams(self, ways: Ways) -> ProcessStreams:
        """The streams as one process reaches them."""
        return ProcessStreams(self.servers, ways.logs, MESSAGE_SIZE_MAX)

    def chunks(self, ways: Ways) -> ProcessChunks:
        """Tier 2 as one process reaches it."""
        return ProcessChunks(self.tier_two, ways.tier_two)
