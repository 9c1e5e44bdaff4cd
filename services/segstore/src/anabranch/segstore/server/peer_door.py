"""The door for other stores: leaders reach the copies of this store through it.

    connected ──hello of a store with the join token──► serving ──► closed
                                                             (bad packet, idle, limit, store gone)

`handlers/copies.py` performs the requests. The store's throttle never pauses the door: a follower
that did not read would hold up the acknowledgements of the leader. The leader bounds what is in
flight.

It closes a connection for the same reasons as the TCP door for clients, and says why. The answers
of a link are small; a leader that leaves too many of them untaken is disconnected.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    ConnectionLost,
    Overloaded,
    Unauthorized,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.model.joining import is_peer, peer_proof
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.logger import get_logger
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.message import KeepAlive, Message
from anabranch.common.wire.messages import failed
from anabranch.common.wire.packet import Packet, PacketParser
from anabranch.segstore.domain.log.replica.wire import (
    PEER_VERSION,
    PEER_VERSION_OLDEST,
    CopyAppend,
    CopyRelease,
    LinkClosed,
    PeerHello,
    Promise,
    Reset,
    Rewind,
    Welcome,
    check_versions,
    decode_peer,
    encode_peer,
)
from anabranch.segstore.handlers.copies import CopyDesk, Spawn
from anabranch.segstore.ports_replica import CopyHost
from anabranch.segstore.server.admission import Admission
from anabranch.segstore.server.listening import listen
from anabranch.segstore.server.room import SMALL_SIZE_BYTES, HalfPacket
from anabranch.segstore.shell.memory.tail import CallLater

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Times in seconds, buffers in bytes. `untaken_max` bounds the answers that a leader leaves
    untaken; the others are as in `TcpLimits`."""

    connections_max: int = 256
    unfinished_max: int = 256 * 1024 * 1024
    packet_s: float = 60.0
    hello_s: float = 5.0
    idle_s: float = 10.0
    keep_alive_s: float = 2.0
    tick_s: float = 1.0
    untaken_max: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerServed:
    """The objects that all connections of the door share."""

    host: CopyHost
    node_id: str
    join_token: str
    ids: IdSource
    clock: Clock
    call_later: CallLater
    spawn: Spawn
    limits: PeerLimits


class PeerConnection(asyncio.Protocol):
    """One leader's store. All calls come from the event loop's thread."""

    def __init__(self, served: PeerServed, admission: "Admission[PeerConnection]") -> None:
        self._served = served
        self._admission = admission
        self._transport: asyncio.Transport | None = None
        self._parser = PacketParser()
        self._challenge = served.ids.new_id()
        self._greeted = False
        self._node_id = ""
        now = served.clock.monotonic()
        self._connected_at = self._received_at = self._sent_at = now
        self._half = HalfPacket(admission.room, "", self._has_room)
        self._reading_paused = False
        self._cancel_tick: Callable[[], None] | None = None
        self._desk = CopyDesk(served.host, self.send, served.spawn)

    # --- the transport's calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports have the methods of asyncio.Transport but not its type.
        self._transport = cast("asyncio.Transport", transport)
        self._cancel_tick = self._served.call_later(self._served.limits.tick_s, self._tick)
        name = transport.get_extra_info("peername")
        peer = str(name[0]) if name else ""
        try:
            self._admission.admit(self, peer)
        except Overloaded as error:
            self.refuse(error)
            return
        self._half = HalfPacket(self._admission.room, peer, self._has_room)
        self.send(PeerHello(node_id=self._served.node_id, challenge=self._challenge))

    def connection_lost(self, _: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        self._admission.remove(self)
        self._half.end()
        self._parser = PacketParser()
        if self._cancel_tick is not None:
            self._cancel_tick()
        self._desk.close()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        now = self._received_at = self._served.clock.monotonic()
        completed = False
        try:
            for packet in self._parser.feed(data):
                completed = True
                if self._transport is None or self._transport.is_closing():
                    return
                self._handle(packet)
            if not self._greeted and self._parser.unfinished_size_bytes > SMALL_SIZE_BYTES:
                raise BadPacket("the first packet is too large for a hello")
            self._half.received(self._parser, now, completed=completed)
        except AnabranchError as error:
            self.refuse(error)
        self._adjust_reading()

    # --- packets ------------------------------------------------------------------------------

    def _handle(self, packet: Packet) -> None:
        message = decode_peer(packet)
        if not self._greeted:
            self._greet(message)
            return
        match message:
            case CopyAppend() | CopyRelease() | LinkClosed():
                self._desk.take(message, packet.payload)
            case Promise() | Rewind() | Reset():
                self._desk.ask(message, packet.request_id)
            case KeepAlive():
                pass
            case _:
                raise BadPacket("a leader does not send this", kind=type(message).__name__)

    def _greet(self, message: Message) -> None:
        served = self._served
        if not isinstance(message, PeerHello):
            raise BadPacket("the first packet is not a hello", kind=type(message).__name__)
        if not check_versions(message):
            raise UnsupportedProtocol(
                "the stores have no version of their protocol in common",
                theirs_low=message.low, theirs_high=message.high,
                ours_low=PEER_VERSION_OLDEST, ours_high=PEER_VERSION,
            )  # fmt: skip
        if not is_peer(
            served.join_token, self._challenge, message.node_id, served.node_id, message.proof
        ):
            raise Unauthorized(
                "a store without the join token asked for copies",
                remedy="give all stores the same ANABRANCH_SEGSTORE_JOIN_TOKEN_FILE",
                node=message.node_id,
            )
        self._greeted = True
        self._node_id = message.node_id
        proof = peer_proof(served.join_token, message.challenge, served.node_id, message.node_id)
        self.send(Welcome(proof=proof))

    # --- answers ------------------------------------------------------------------------------

    def send(self, message: Message, request_id: int = 0, payload: Buffer = b"") -> None:
        """Write a packet; does nothing once the connection is gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._sent_at = self._served.clock.monotonic()
        pieces = (payload,) if payload else ()
        transport.writelines(encode_peer(message, request_id, *pieces))
        if transport.get_write_buffer_size() > self._served.limits.untaken_max:
            _log.warning("closed the connection of a store that does not take its answers",
                         node=self._node_id)  # fmt: skip
            transport.abort()

    def refuse(self, error: AnabranchError) -> None:
        """Send the error to the other store, and close."""
        _log.warning(
            "closed the connection of another store",
            node=self._node_id, code=error.code, error=str(error),
        )  # fmt: skip
        self.close(error)

    def close(self, error: AnabranchError) -> None:
        """Send the reason to the other store, and close."""
        self.send(failed(error))
        if self._transport is not None:
            self._transport.close()

    # --- time and room ------------------------------------------------------------------------

    def _has_room(self) -> None:
        """Read on: the incomplete packet was granted its room."""
        now = self._received_at = self._served.clock.monotonic()
        self._half.read_again(now)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pause = self._half.waits
        if pause and not self._reading_paused:
            transport.pause_reading()
        elif self._reading_paused and not pause:
            transport.resume_reading()
        self._reading_paused = pause

    def _tick(self) -> None:
        if self._transport is None:
            return
        limits, now = self._served.limits, self._served.clock.monotonic()
        self._cancel_tick = self._served.call_later(limits.tick_s, self._tick)
        if self._transport.is_closing():
            self._transport.abort()  # the other store has not even taken the refusal
        elif not self._greeted and now - self._connected_at > limits.hello_s:
            self.refuse(BadPacket("no hello came in time", seconds=limits.hello_s))
        elif self._half.waits:
            self._keep_alive(now)
        elif self._half.overdue(now, self._received_at, limits.packet_s):
            late = ConnectionLost("a packet was not complete in time", limit_s=limits.packet_s)
            self.refuse(late)
        elif now - self._received_at > limits.idle_s:
            self.refuse(ConnectionLost("no packet arrived in time", seconds=limits.idle_s))
        else:
            self._keep_alive(now)

    def _keep_alive(self, now: float) -> None:
        if now - self._sent_at >= self._served.limits.keep_alive_s:
            self.send(KeepAlive())


class PeerDoor:
    """Listens for other stores, and closes their connections at the end."""

    def __init__(self, served: PeerServed) -> None:
        self._served = served
        limits = served.limits
        self._admission: Admission[PeerConnection] = Admission(
            connections_max=limits.connections_max,
            per_peer_max=limits.connections_max,
            unfinished_max=limits.unfinished_max,
        )
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> Endpoint:
        """Listen; port 0 takes any free one. Raises PortInUse, InvalidSetting."""
        self._server, endpoint = await listen(
            lambda: PeerConnection(self._served, self._admission), host, port
        )
        return endpoint

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._admission)

    def close(self) -> None:
        """Tell every store that this one stops, and close."""
        if self._server is not None:
            self._server.close()
        for connection in self._admission.connections():
            connection.close(Unavailable("the store is stopping"))
