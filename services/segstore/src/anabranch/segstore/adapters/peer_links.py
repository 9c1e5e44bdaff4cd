"""`Peers` over TCP: one connection to each other store, shared by the links of all containers.

    link.promise ──► connected? ──no──► one dial at a time, after a pause that grows with failures
                         │                    address: the store's record, which a watch follows
                         └──yes──► Promise, with a new number for the link

A link is used for one try: when it fails, its user makes another one. Connections are dialled when
a link needs them, and closed when the store's record names another address.

State owned: the records of the other stores as far as known, and the connections.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from anabranch.common.contracts.cluster import node_from_bytes
from anabranch.common.errors import AnabranchError, BadPacket, Corrupt, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.ids import Rng
from anabranch.common.runtime.logger import get_logger
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.replies import Done
from anabranch.segstore.adapters.peer_connection import (
    LinkContext,
    PeerLinkConnection,
    open_peer,
)
from anabranch.segstore.domain.log.replica.records import encode_link
from anabranch.segstore.domain.log.replica.wire import (
    CopyRelease,
    LinkClosed,
    Promise,
    Promised,
    Reset,
    Rewind,
    marks_in,
)
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports_replica import CopyLink, CopyListener, CopyState

DIAL_AGAIN = Backoff(first_s=0.1, longest_s=2.0)
WATCH_AGAIN = Backoff(first_s=0.5, longest_s=8.0)

Spawn = Callable[[Coroutine[None, None, None]], object]

_log = get_logger(__name__)


@dataclass(slots=True)
class _Other:
    """Another store: its connection, and the dial under way. `failures`: dials in a row."""

    node_id: str
    connection: PeerLinkConnection | None = None
    dialling: "asyncio.Future[PeerLinkConnection] | None" = None
    failures: int = 0
    next_dial_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the store has another address, which needs no pause."""


class PeerLinks:
    """`Peers`. `run` follows the records of the stores; without it nothing is reached."""

    def __init__(self, nodes: ObjectStore, context: LinkContext, spawn: Spawn, rng: Rng) -> None:
        self._nodes = nodes
        self._context = context
        self._spawn = spawn
        self._rng = rng
        self._records: dict[str, NodeRecord] = {}
        self._listed = asyncio.Event()
        """Set once all present records are known."""
        self._others: dict[str, _Other] = {}
        self._closed = False

    # --- records ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the records until cancelled."""
        failures = 0
        while True:
            try:
                async for stored in self._nodes.watch():
                    failures = 0
                    if stored is None:
                        self._listed.set()
                    else:
                        self._note(stored.key, stored.value)
            except AnabranchError as error:
                _log.warning("the stores' records cannot be followed", error=str(error))
            failures += 1
            await self._context.clock.sleep(WATCH_AGAIN.delay_s(failures, self._rng.random()))

    def _note(self, node_id: str, value: bytes) -> None:
        if not value:
            self._records.pop(node_id, None)
            return
        try:
            record = node_from_bytes(value)
        except Corrupt as error:
            _log.warning("a store's record is damaged", node=node_id, error=str(error))
            return
        former = self._records.get(node_id)
        self._records[node_id] = record
        other = self._others.get(node_id)
        if other is None or (former is not None and _dialled_as(former) == _dialled_as(record)):
            return
        other.failures, other.next_dial_s = 0, 0.0
        other.changed.set()
        if other.connection is not None and other.connection.endpoint != record.peer:
            other.connection.abort(Unavailable("the store has another address"))

    def is_gone(self, node_id: str) -> bool:
        """See `Peers.is_gone`."""
        record = self._records.get(node_id)
        return record is not None and (record.over or record.stopped)

    # --- connections --------------------------------------------------------------------------

    def link(
        self,
        node_id: str,
        container: int,
        log_id: str,
        container_epoch: int,
        listener: CopyListener,
    ) -> CopyLink:
        """See `Peers.link`."""
        begin = Promise(link=0, container=container, log_id=log_id, container_epoch=container_epoch)
        return PeerLink(self, node_id, begin, listener)

    async def connection(self, node_id: str) -> PeerLinkConnection:
        """The connection to a store, dialled if there is none. Raises Unavailable."""
        other = self._others.setdefault(node_id, _Other(node_id))
        if other.connection is not None and other.connection.failure is None:
            return other.connection
        if self._closed:
            raise Unavailable("the store is stopping")
        if other.dialling is None:
            other.dialling = asyncio.get_running_loop().create_future()
            self._spawn(self._dial(other, other.dialling))
        return await asyncio.shield(other.dialling)

    async def _dial(self, other: _Other, dialled: "asyncio.Future[PeerLinkConnection]") -> None:
        try:
            connection = await self._dialled(other)
        except AnabranchError as error:
            self._not_dialled(other, dialled, error)
            return
        except BaseException:
            self._not_dialled(other, dialled, Unavailable("the dial of another store ended"))
            raise
        other.failures, other.connection, other.dialling = 0, connection, None
        _log.info("connected to another store", node=other.node_id, store=str(connection.endpoint))
        dialled.set_result(connection)

    def _not_dialled(
        self,
        other: _Other,
        dialled: "asyncio.Future[PeerLinkConnection]",
        error: AnabranchError,
    ) -> None:
        other.failures += 1
        pause_s = DIAL_AGAIN.delay_s(other.failures, self._rng.random())
        other.next_dial_s = self._context.clock.monotonic() + pause_s
        other.dialling = None
        dialled.set_exception(error)
        dialled.exception()  # every caller may have gone

    async def _dialled(self, other: _Other) -> PeerLinkConnection:
        await self._listed.wait()
        await self._pause(other)
        record = self._records.get(other.node_id)
        if record is None or record.peer is None:
            raise Unavailable("the store announces no address for copies", node=other.node_id)
        if self.is_gone(other.node_id):
            raise Unavailable("the store's session is over", node=other.node_id)
        return await open_peer(other.node_id, record.peer, self._context)

    async def _pause(self, other: _Other) -> None:
        """Wait until the store may be dialled again, which another address permits at once."""
        left_s = other.next_dial_s - self._context.clock.monotonic()
        if left_s <= 0:
            return
        other.changed.clear()
        try:
            async with asyncio.timeout(left_s):
                await other.changed.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Close all connections, and open no more; harmless to repeat."""
        self._closed = True
        for other in self._others.values():
            if other.connection is not None:
                other.connection.close()


class PeerLink:
    """`CopyLink`, for one try. Only `PeerLinks.link` creates it."""

    def __init__(
        self, links: PeerLinks, node_id: str, begin: Promise, listener: CopyListener
    ) -> None:
        self._links = links
        self._node_id = node_id
        self._begin = begin
        self._listener = listener
        self._connection: PeerLinkConnection | None = None
        self._number = 0
        self._ended = False
        """Whether it was closed or has failed."""

    # --- calls of the leader ------------------------------------------------------------------

    async def promise(self) -> CopyState:
        """See `CopyLink.promise`."""
        assert self._connection is None, "a link is for one try"
        connection = await self._links.connection(self._node_id)
        if self._ended:
            raise Unavailable("the link was closed", node=self._node_id)
        self._connection = connection
        number = self._number = connection.add(self)
        begin = Promise(
            link=number,
            container=self._begin.container,
            log_id=self._begin.log_id,
            container_epoch=self._begin.container_epoch,
        )
        return _state(connection, *await connection.request(begin, Promised))

    async def rewind(self, to: Link) -> None:
        """See `CopyLink.rewind`."""
        connection = self._open()
        await connection.request(Rewind(link=self._number, to=encode_link(to)), Done)

    async def reset(self, base: Link) -> CopyState:
        """See `CopyLink.reset`."""
        connection = self._open()
        request = Reset(link=self._number, base=encode_link(base))
        return _state(connection, *await connection.request(request, Promised))

    def append(self, message: Sequence[Buffer]) -> None:
        """See `CopyLink.append`."""
        if self._ended:
            return
        try:
            self._open().append(self._number, tuple(message))
        except AnabranchError as error:
            self._leave()
            self.failed(error)

    def release(self, sequence: int) -> None:
        """See `CopyLink.release`."""
        if not self._ended and self._connection is not None:
            self._connection.send(CopyRelease(link=self._number, sequence=sequence))

    def close(self) -> None:
        """See `CopyLink.close`."""
        if not self._ended:
            self._ended = True
            self._leave()

    def _open(self) -> PeerLinkConnection:
        if self._ended or self._connection is None:
            raise Unavailable("the link to another store is not open", node=self._node_id)
        return self._connection

    def _leave(self) -> None:
        if self._connection is not None and self._number:
            self._connection.remove(self._number)
            self._connection.send(LinkClosed(link=self._number))

    # --- calls of the connection --------------------------------------------------------------

    def synced(self, container_epoch: int, number: int) -> None:
        """See `LinkEnd`."""
        self._listener.copy_synced((container_epoch, number))

    def flush_wanted(self) -> None:
        """See `LinkEnd`."""
        self._listener.flush_wanted()

    def failed(self, error: AnabranchError) -> None:
        """See `LinkEnd`."""
        if not self._ended:
            self._ended = True
            self._listener.copy_failed(error)


def _state(connection: PeerLinkConnection, reply: Promised, payload: bytes) -> CopyState:
    try:
        return CopyState(reply.copy_id, marks_in(payload))
    except BadPacket as error:
        raise connection.abort(error) from None


def _dialled_as(record: NodeRecord) -> tuple[object, str]:
    """What a dial depends on: a store with another address or session may answer at once."""
    return record.peer, record.session
