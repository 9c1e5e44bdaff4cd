"""`Peers` of a simulated store: links to the copies of other stores over the simulated network.

A link is a connection of its own. Its messages arrive in order, or it is lost. Those of an earlier
link may arrive after those of a later one, also from the same leader.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from anabranch.common.errors import AnabranchError, ConnectionLost, Unavailable
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports_replica import CopyHost, CopyListener, CopyState
from kit.processes import Process
from kit.replica_network import Hosting, Network
from kit.ways import Way

T = TypeVar("T")

ASK_S_MAX = 5.0


class FarEnd:
    """`CopyCaller`: the leader as the other store's process sees it over one link."""

    def __init__(self, link: "SimLink", node_id: str, hosting: Hosting, back: Way) -> None:
        self._link = link
        self._node_id = node_id
        self._promises = link.network.promises
        self._copy_id = ""
        self._back = back
        self.hosting = hosting
        self.open = True

    @property
    def host(self) -> CopyHost:
        return self.hosting.host

    async def promise(self, container: int, log_id: str, container_epoch: int) -> CopyState:
        """Have the store promise, and remember that it did."""
        state = await self.host.promise(container, log_id, container_epoch, self)
        if self._is_present():
            self._promises.promised(self._node_id, container_epoch, state)
        self._copy_id = state.copy_id
        return state

    def _is_present(self) -> bool:
        """Whether no other process took the node over; a former one writes nothing any more, but
        may repeat what it has answered before."""
        return self._link.network.host(self._node_id) is self.hosting

    async def reset(
        self, container: int, log_id: str, container_epoch: int, base: Link
    ) -> CopyState:
        """Have the store create the copy again."""
        state = await self.host.reset(container, log_id, container_epoch, base, self)
        self._copy_id = state.copy_id
        self._promises.reset(self._node_id)
        return state

    def synced(self, container: int, container_epoch: int, through: Position) -> None:
        """See `CopyCaller`."""
        if self.open and self._is_present():
            self._promises.kept(self._node_id, container_epoch, self._copy_id)
        self._tell(lambda: self._link.heard_synced(through))

    def flush_wanted(self, container: int, container_epoch: int) -> None:
        """See `CopyCaller`."""
        self._tell(self._link.heard_flush_wanted)

    def refused(self, container: int, container_epoch: int, error: AnabranchError) -> None:
        """See `CopyCaller`."""
        self._tell(lambda: self._link.lose(error))

    def _tell(self, arrive: Callable[[], None]) -> None:
        if self.open and self._link.carries():
            self._back.tell(arrive)

    def perform(self, begin: "Begin[T]", answer: Callable[[T | AnabranchError], None]) -> None:
        """Do the work of a request, and send its answer."""

        async def run() -> None:
            try:
                result: T | AnabranchError = await begin(self)
            except AnabranchError as error:
                result = error
            self._tell(lambda: answer(result))

        self.hosting.spawn(run())

    def lose(self) -> None:
        """The connection is lost, as the other store's process hears."""
        if self.open:
            self.open = False
            self.host.lost(self)


Begin = Callable[[FarEnd], Coroutine[None, None, T]]


class SimLink:
    """`CopyLink`, in the leader's process."""

    def __init__(
        self,
        peers: "SimPeers",
        node_id: str,
        container: int,
        *,
        log_id: str,
        container_epoch: int,
        listener: CopyListener,
    ) -> None:
        self._peers = peers
        self.network = peers.network
        self._node_id = node_id
        self._container = container
        self._log_id = log_id
        self._epoch = container_epoch
        self._listener = listener
        self._there: Way | None = None
        self._far: FarEnd | None = None
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._asked = 0
        self._broken = False
        self._failure: AnabranchError | None = None
        self._closed = False

    # --- CopyLink -----------------------------------------------------------------------------

    async def promise(self) -> CopyState:
        """See `CopyLink`."""
        return await self._ask(lambda far: far.promise(self._container, self._log_id, self._epoch))

    async def rewind(self, to: Link) -> None:
        """See `CopyLink`."""
        await self._ask(lambda far: far.host.rewind(self._container, self._epoch, to, far))

    async def reset(self, base: Link) -> CopyState:
        """See `CopyLink`."""
        return await self._ask(
            lambda far: far.reset(self._container, self._log_id, self._epoch, base)
        )

    def append(self, message: Sequence[Buffer]) -> None:
        """See `CopyLink`."""
        data = b"".join(message)
        self._send(lambda far: far.host.append(self._container, self._epoch, data, far))

    def release(self, sequence: int) -> None:
        """See `CopyLink`."""
        self._send(lambda far: far.host.release(self._container, self._epoch, sequence, far))

    def close(self) -> None:
        """See `CopyLink`."""
        if not self._closed:
            self._closed = True
            self._fail_waiting(Unavailable("the link was closed"))
            self._send(lambda far: far.lose())

    # --- the connection -----------------------------------------------------------------------

    def carries(self) -> bool:
        """Whether the next message passes; a loss breaks the connection."""
        if not self._broken and self.network.loses():
            self.network.counts["peer connections lost"] += 1
            self._break()
        return not self._broken

    def _connect(self) -> None:
        network, own = self.network, self._peers.process
        hosting = network.host(self._node_id)
        if hosting is None:
            self._broken = True
            refused = ConnectionLost("nothing listens there", node=self._node_id)
            if not network.is_cut(self._node_id, self._peers.node_id):
                network.processes.later(0.001, lambda: own.deliver(lambda: self.lose(refused)))
            return
        self._there = network.way(self._peers.node_id, self._node_id, hosting.process)
        back = network.way(self._node_id, self._peers.node_id, own)
        self._far = FarEnd(self, self._node_id, hosting, back)
        there, far = self._there, self._far
        ended = ConnectionLost("the store's process ended", node=self._node_id)

        def reset() -> None:
            if not hosting.silent:
                back.tell(lambda: self.lose(ended))

        hosting.process.at_death.append(reset)
        own.at_death.append(lambda: None if self._peers.is_silent() else there.tell(far.lose))

    def _break(self) -> None:
        """Carry nothing more; both ends hear of it sooner or later."""
        self._broken = True
        network, far = self.network, self._far
        assert far is not None
        lost = ConnectionLost("the connection was lost", node=self._node_id)
        own, other = self._peers.process, far.hosting.process
        network.processes.later(network.notice_s(), lambda: own.deliver(lambda: self.lose(lost)))
        network.processes.later(network.notice_s(), lambda: other.deliver(far.lose))

    def _send(self, arrive: Callable[[FarEnd], object]) -> None:
        if self._failure is None and self._far is not None and self.carries():
            there, far = self._there, self._far
            assert there is not None
            there.tell(lambda: _handle(far, arrive))

    async def _ask(self, begin: "Begin[T]") -> T:
        if self._failure is not None:
            raise self._failure
        assert not self._closed, "a closed link is used no more"
        if self._far is None and not self._broken:
            self._connect()
        self._asked += 1
        number = self._asked
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answer(result: T | AnabranchError) -> None:
            if waiting.done():
                return
            if isinstance(result, AnabranchError):
                waiting.set_exception(result)
            else:
                waiting.set_result(result)

        self._waiting[number] = waiting  # type: ignore[assignment]
        self._send(lambda far: far.perform(begin, answer))
        try:
            async with asyncio.timeout(ASK_S_MAX):
                return await waiting
        except TimeoutError as error:
            raise Unavailable("the other store did not answer", node=self._node_id) from error
        finally:
            del self._waiting[number]

    # --- what arrives -------------------------------------------------------------------------

    def heard_synced(self, through: Position) -> None:
        """The copy synced messages."""
        if self._is_open():
            self._listener.copy_synced(through)

    def heard_flush_wanted(self) -> None:
        """The copy asks for a flush."""
        if self._is_open():
            self._listener.flush_wanted()

    def lose(self, error: AnabranchError) -> None:
        """The connection is lost, or the copy refused a message."""
        if self._is_open():
            self._failure = error
            self._fail_waiting(error)
            self._listener.copy_failed(error)

    def _is_open(self) -> bool:
        return not self._closed and self._failure is None

    def _fail_waiting(self, error: AnabranchError) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _handle(far: FarEnd, arrive: Callable[[FarEnd], object]) -> None:
    if far.open:
        arrive(far)


class SimPeers:
    """`Peers` of one process. `gone`: whether a store's session is over, as far as it knows."""

    def __init__(
        self,
        network: Network,
        node_id: str,
        process: Process,
        *,
        gone: Callable[[str], bool],
        is_silent: Callable[[], bool],
    ) -> None:
        self.network = network
        self.node_id = node_id
        self.process = process
        self.is_silent = is_silent
        self._gone = gone

    def link(
        self,
        node_id: str,
        container: int,
        log_id: str,
        container_epoch: int,
        listener: CopyListener,
    ) -> SimLink:
        """See `Peers`."""
        return SimLink(
            self,
            node_id,
            container,
            log_id=log_id,
            container_epoch=container_epoch,
            listener=listener,
        )

    def is_gone(self, node_id: str) -> bool:
        """See `Peers`."""
        return self._gone(node_id)
