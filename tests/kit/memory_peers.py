"""Stores that replicate logs to each other inside one process, and the register of their ISRs.

Links call the other store's copies directly, in order, on the running loop. Faults: a store that is
silent (nothing arrives at it, nothing comes from it), links that are cut, acknowledgements that are
held back, a session that is over; a register that is away, or whose answers are lost.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from anabranch.common.errors import AnabranchError, Deposed, OutcomeUnknown, Unavailable
from anabranch.common.model.cluster import LogCopy
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports_replica import CopyHost, CopyListener, CopyState, Replicas

T = TypeVar("T")


@dataclass(slots=True)
class MemoryRegister:
    """The ISRs of all containers. An epoch counts as taken when it is first used."""

    nodes: tuple[str, ...]
    isr_min: int = 1
    isrs: dict[int, tuple[LogCopy, ...]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    away: bool = False
    lost_answers: int = 0
    """So many changes take effect without an answer."""
    late: list[Callable[[], None]] | None = None
    """If it is a list, changes are kept in it, and raise OutcomeUnknown. Such a change takes effect
    only if no other change did meanwhile."""
    changes: list[tuple[str, ...]] = field(default_factory=list)
    revision: int = 0

    async def read(self, container: int, container_epoch: int) -> Replicas:
        await asyncio.sleep(0)
        self._check(container, container_epoch)
        self.epochs[container] = container_epoch
        return self._replicas(container)

    async def change(
        self, container: int, container_epoch: int, isr: tuple[LogCopy, ...]
    ) -> Replicas:
        await asyncio.sleep(0)
        self._check(container, container_epoch)

        revision = self.revision

        def apply() -> None:
            if (self.revision, self.epochs.get(container)) == (revision, container_epoch):
                self.revision += 1
                self.isrs[container] = isr
                self.changes.append(tuple(copy.node_id for copy in isr))

        if self.late is not None:
            self.late.append(apply)
            raise OutcomeUnknown("no answer of the register", operation="")
        apply()
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("no answer of the register", operation="")
        return self._replicas(container)

    def _check(self, container: int, container_epoch: int) -> None:
        if self.away:
            raise Unavailable("the register is away")
        found = self.epochs.get(container, 0)
        if container_epoch < found:
            raise Deposed("another epoch was taken", found=found)

    def _replicas(self, container: int) -> Replicas:
        return Replicas(self.nodes, self.isrs.get(container, ()), self.isr_min)

    def members(self, container: int = 0) -> tuple[str, ...]:
        """The stores in the ISR, in order."""
        return tuple(sorted(copy.node_id for copy in self.isrs.get(container, ())))


@dataclass(slots=True)
class Faults:
    """The faults of the ways to one store."""

    silent: bool = False
    refused: bool = False
    """Connections fail at once."""
    hold_acks: bool = False
    gone: bool = False
    way_s: float = 0.0


class MemoryPeers:
    """The other stores, as `Peers`."""

    def __init__(self) -> None:
        self.hosts: dict[str, CopyHost] = {}
        self.faults: dict[str, Faults] = {}
        self.links: list[MemoryLink] = []
        self.counts: Counter[str] = Counter()

    def of(self, node_id: str) -> Faults:
        """The faults of the ways to a store, to be changed."""
        return self.faults.setdefault(node_id, Faults())

    def link(
        self,
        node_id: str,
        container: int,
        log_id: str,
        container_epoch: int,
        listener: CopyListener,
    ) -> "MemoryLink":
        found = MemoryLink(self, node_id, (container, log_id), container_epoch, listener)
        self.links.append(found)
        return found

    def is_gone(self, node_id: str) -> bool:
        return self.of(node_id).gone

    def cut(self, node_id: str) -> None:
        """All links to the store are lost; new ones work."""
        for link in [link for link in self.links if link.node_id == node_id]:
            link.cut()

    def let_acks_go(self, node_id: str) -> None:
        """The acknowledgements that were held back arrive."""
        self.of(node_id).hold_acks = False
        for link in [link for link in self.links if link.node_id == node_id]:
            link.let_acks_go()

    def kill(self, node_id: str) -> None:
        """The store is dead: its links are lost, and no other can be made."""
        self.of(node_id).refused = True
        self.cut(node_id)


class MemoryLink:
    """`CopyLink` to a store in this process, and the caller that its copies see."""

    def __init__(
        self,
        peers: MemoryPeers,
        node_id: str,
        log: tuple[int, str],
        container_epoch: int,
        listener: CopyListener,
    ) -> None:
        self.node_id = node_id
        self._peers = peers
        self._faults = peers.of(node_id)
        self._container, self._log_id = log
        self._epoch = container_epoch
        self._listener = listener
        self._sent: deque[Callable[[CopyHost], None]] = deque()
        self._acks: list[Position] = []
        self._closed = False

    # --- CopyLink -----------------------------------------------------------------------------

    async def promise(self) -> CopyState:
        self._peers.counts["promises"] += 1
        return await self._call(
            lambda host: host.promise(self._container, self._log_id, self._epoch, self)
        )

    async def rewind(self, to: Link) -> None:
        self._peers.counts["rewinds"] += 1
        await self._call(lambda host: host.rewind(self._container, self._epoch, to, self))

    async def reset(self, base: Link) -> CopyState:
        self._peers.counts["resets"] += 1
        return await self._call(
            lambda host: host.reset(self._container, self._log_id, self._epoch, base, self)
        )

    def append(self, message: Sequence[Buffer]) -> None:
        data = b"".join(message)
        self._send(lambda host: host.append(self._container, self._epoch, data, self))

    def release(self, sequence: int) -> None:
        self._send(lambda host: host.release(self._container, self._epoch, sequence, self))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._peers.links.remove(self)
            self._peers.hosts[self.node_id].lost(self)

    async def _call(self, work: Callable[[CopyHost], Awaitable[T]]) -> T:
        if self._faults.refused:
            raise Unavailable("the store refuses connections", node=self.node_id)
        await asyncio.sleep(self._faults.way_s)
        if self._faults.silent:
            await asyncio.Event().wait()
        result = await work(self._peers.hosts[self.node_id])
        if self._faults.silent:
            await asyncio.Event().wait()
        return result

    def _send(self, call: Callable[[CopyHost], None]) -> None:
        self._sent.append(call)
        asyncio.get_running_loop().call_later(self._faults.way_s, self._deliver)

    def _deliver(self) -> None:
        call = self._sent.popleft()
        if not self._closed and not self._faults.silent:
            call(self._peers.hosts[self.node_id])

    def cut(self) -> None:
        """The connection is lost."""
        if not self._closed:
            self.close()
            self._listener.copy_failed(Unavailable("the link is lost", node=self.node_id))

    # --- CopyCaller ---------------------------------------------------------------------------

    def synced(self, container: int, container_epoch: int, through: Position) -> None:
        assert (container, container_epoch) == (self._container, self._epoch)
        if self._faults.hold_acks:
            self._acks.append(through)
        else:
            self._back(lambda: self._listener.copy_synced(through))

    def flush_wanted(self, container: int, container_epoch: int) -> None:
        assert (container, container_epoch) == (self._container, self._epoch)
        self._back(self._listener.flush_wanted)

    def refused(self, container: int, container_epoch: int, error: AnabranchError) -> None:
        assert (container, container_epoch) == (self._container, self._epoch)
        self._back(lambda: self._refused(error))

    def _refused(self, error: AnabranchError) -> None:
        self.close()
        self._listener.copy_failed(error)

    def let_acks_go(self) -> None:
        """What was held back arrives."""
        acks, self._acks = self._acks, []
        for through in acks:
            self._back(partial(self._listener.copy_synced, through))

    def _back(self, call: Callable[[], None]) -> None:
        def arrive() -> None:
            if not self._closed and not self._faults.silent:
                call()

        asyncio.get_running_loop().call_later(self._faults.way_s, arrive)
