"""A store that replicates its logs, in a simulated cluster: its journal is on the node's disk, and
other stores and controllers reach its copies over the network."""

from collections.abc import Callable
from dataclasses import replace

from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.segstore.adapters.memory_log import MemoryFrames
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.ports_replica import CopyHost, ReplicatedLogs
from anabranch.segstore.shell.node.copy_keeping import CopyKeeping
from kit.failover_services import Services
from kit.failover_store import StoreProcess
from kit.replica_disks import FILE_SIZE_BYTES, Disks
from kit.replica_links import SimPeers
from kit.replica_network import Network
from kit.replica_parts import ReplicaParts, logs_in, replica_parts

JOURNAL_SIZE_BYTES_MAX = 6 * FILE_SIZE_BYTES


class ReplicaStore(StoreProcess):
    """One life of a store. `is_gone`: whether the session of another one is over."""

    def __init__(
        self,
        services: Services,
        network: Network,
        disks: Disks,
        node_id: str,
        rate: float,
        *,
        is_gone: Callable[[str], bool],
        former_may_run: bool,
    ) -> None:
        self.silent = False
        self._network = network
        self._disks = disks
        self._is_gone = is_gone
        self.parts: ReplicaParts
        super().__init__(services, node_id, rate, None, former_may_run=former_may_run)
        network.join(node_id, self)

    @property
    def host(self) -> CopyHost:
        """See `Hosting`."""
        return self.parts.copies

    def _new_log(self, frames: MemoryFrames | None) -> DurableDataLog:
        assert frames is None, "the journal is on the node's disk"
        process = self.process
        journal = self._disks.open(self.node_id, process, self._ids, process.loop.call_soon)
        peers = SimPeers(
            self._network,
            self.node_id,
            process,
            gone=self._is_gone,
            is_silent=lambda: self.silent,
        )
        self.parts = replica_parts(
            journal,
            self.node_id,
            process,
            ids=self._ids,
            register=self._placements,
            peers=peers,
            spawn=self.spawn,
            number=self._services.next_number(),
            may_acknowledge_alone=lambda: self.session.held,
            flush_wanted=self._flush,
            failed=self._fail,
        )
        self._keeping = CopyKeeping(
            self.parts.copies,
            self.parts.log,
            self._services.objects(self._services.placements, self.ways),
            node_id=self.node_id,
            logs=lambda: logs_in(journal),
            bytes_max=JOURNAL_SIZE_BYTES_MAX,
            journal_size=lambda: journal.live_size,
            clock=process.clock,
            back_off_s=self._back_off_s,
        )
        return self.parts.log

    def _replicated(self) -> ReplicatedLogs:
        return self.parts.log

    async def _beside(self) -> None:
        await self._keeping.run()

    def _flush(self, container: int) -> None:
        """A copy holds up an old journal file: flush the container soon."""
        for opened in self.store.open_containers():
            if opened.container.container == container:
                opened.flusher.hurry()

    def _record(self) -> NodeRecord:
        return replace(super()._record(), peer=Endpoint(self.node_id, 2))
