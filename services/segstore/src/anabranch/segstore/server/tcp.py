"""The TCP door: packets in, packets out, one protocol object per connection.

    connected ──Hello──► serving ──► closed      (bad packet, idle, limit, client gone)

`admission.py` bounds the number of connections, `room.py` the memory of their incomplete packets.
The connection handles each request synchronously as soon as it is parsed, and writes an answer when
the container delivers it. It stops reading from its client while the store is over its limits,
while the client does not take its answers, and until the loop's next turn if others wait
(`turns.py`). Before it closes because of an untrusted or unservable packet, it sends a Failed
packet with the reason, so that no client waits in vain.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import structlog

from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    ConnectionLost,
    Invalid,
    Overloaded,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.loops import pauses_after_writelines
from anabranch.common.wire.messages import (
    Append,
    CreateTransient,
    DescribeTable,
    GetEntries,
    Hello,
    KeepAlive,
    Message,
    ReadSegment,
    ScanEntries,
    SetupAppend,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST,
    Packet,
    PacketParser,
)
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.handlers.append import AppendDesk
from anabranch.segstore.handlers.control import ControlDesk, Spawn
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.handlers.tables import TableDesk
from anabranch.segstore.handlers.transient import TransientDesk
from anabranch.segstore.server.admission import Admission
from anabranch.segstore.server.listening import listen
from anabranch.segstore.server.room import SMALL_SIZE_BYTES, HalfPacket
from anabranch.segstore.server.turns import Turn
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.memory.tail import CallLater
from anabranch.segstore.shell.node.store import Store

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """Times in seconds, buffers in bytes.

    Above `write_buffer_max` bytes of untaken answers, the store stops reading the client's
    requests. It stops answering reads earlier, at `held_up_bytes`, and continues at half of them. A
    client that takes no answer for `stalled_s`, while the store holds too many, is disconnected.
    `packet_s` is the time limit of a packet from its first byte to its last. `unfinished_max`
    bounds the incomplete packets of all connections together.
    """

    connections_max: int = 1000
    per_peer_max: int = 500
    unfinished_max: int = 256 * 1024 * 1024
    packet_s: float = 60.0
    hello_s: float = 10.0
    idle_s: float = 90.0
    keep_alive_s: float = 30.0
    tick_s: float = 5.0
    write_buffer_max: int = 4 * 1024 * 1024
    held_up_bytes: int = 64 * 1024
    stalled_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The objects and limits that all connections of a server share."""

    store: Store
    throttle: Throttle
    clock: Clock
    call_later: CallLater
    spawn: Spawn
    node_id: str
    ids: IdSource
    limits: TcpLimits


class Connection(asyncio.Protocol):
    """One client. All calls come from the event loop's thread."""

    def __init__(self, served: Served, admission: "Admission[Connection]") -> None:
        self._served = served
        self._admission = admission
        self._transport: asyncio.Transport | None = None
        self._parser = PacketParser()
        self._greeted = False
        self._writing_paused = False
        self._pauses = True
        self._reading_paused = False
        self._waits_for_store = False
        self._turn = Turn(admission.turns)
        self._turn_is_over = False
        now = served.clock.monotonic()
        self._connected_at = self._received_at = self._sent_at = self._taken_at = now
        self._half = HalfPacket(admission.room, "", self._has_room)
        self._unsent = 0
        self._cancel_tick: Callable[[], None] | None = None
        self._appends = AppendDesk(served.store, self.send)
        self._reads = ReadDesk(served.store, self.send, served.spawn)
        self._tables = TableDesk(served.store, self.send, served.spawn)
        self._control = ControlDesk(served.store, served.spawn)
        self._transients = TransientDesk(served.store, served.ids)

    # --- the transport's calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports have the methods of asyncio.Transport but not its type.
        self._transport = cast("asyncio.Transport", transport)
        self._pauses = pauses_after_writelines(transport)
        limits = self._served.limits
        self._transport.set_write_buffer_limits(
            high=limits.held_up_bytes, low=limits.held_up_bytes // 2
        )
        self._cancel_tick = self._served.call_later(limits.tick_s, self._tick)
        peer = _address(self._transport)
        try:
            self._admission.admit(self, peer)
        except Overloaded as error:
            self.refuse(error)
            return
        self._half = HalfPacket(self._admission.room, peer, self._has_room)
        self.send(Hello(node_id=self._served.node_id), 0)

    def connection_lost(self, _: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        self._admission.remove(self)
        self._half.end()
        self._parser = PacketParser()  # frees a partial packet if references to this object remain
        if self._cancel_tick is not None:
            self._cancel_tick()
        self._appends.close()
        self._reads.close()
        self._tables.close()
        self._transients.close()
        self._served.throttle.forget(self._store_is_open)

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
        except Invalid as error:
            self.refuse(error)
        if self._turn.is_over(len(data), now) and not self._turn_is_over:
            self._turn_is_over = True
            self._served.call_later(0.0, self._next_turn)
        self._adjust_reading()

    def _next_turn(self) -> None:
        self._turn_is_over = False
        self._adjust_reading()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client does not take its answers."""
        self._writing_paused = True
        self._unsent = self._unsent_size()
        self._taken_at = self._served.clock.monotonic()
        self._reads.pause(self._unsent)
        self._tables.pause()
        self._adjust_reading()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writing_paused = False
        self._unsent = 0
        self._reads.resume()
        self._tables.resume()
        self._adjust_reading()

    # --- requests -----------------------------------------------------------------------------

    def _handle(self, packet: Packet) -> None:
        message = decode_message(packet)
        if not self._greeted:
            self._greet(message)
        elif isinstance(message, Append):
            self._appends.append(packet.request_id, message, packet.payload)
        elif isinstance(message, SetupAppend):
            self._appends.setup(packet.request_id, message)
        elif not isinstance(message, KeepAlive):
            self._handle_request(packet.request_id, message, packet.payload)

    def _handle_request(self, request_id: int, message: Message, payload: bytes) -> None:
        def deliver(reply: Message) -> None:
            self.send(reply, request_id)

        try:
            if isinstance(message, ReadSegment):
                self._reads.submit(request_id, message)
            elif isinstance(message, CreateTransient):
                self._transients.create(message, deliver)
            elif isinstance(message, GetEntries | ScanEntries | DescribeTable):
                self._tables.ask(request_id, message, payload)
            else:
                self._control.ask(message, deliver, Given(payload))
        except BadPacket:
            raise
        except AnabranchError as error:
            self.send(failed(error), request_id)

    def _greet(self, message: Message) -> None:
        if not isinstance(message, Hello):
            raise BadPacket("the first packet is not a hello", kind=type(message).__name__)
        if message.low > PROTOCOL_VERSION or message.high < PROTOCOL_VERSION_OLDEST:
            raise UnsupportedProtocol(
                "client and store have no protocol version in common",
                client_low=message.low,
                client_high=message.high,
                store_low=PROTOCOL_VERSION_OLDEST,
                store_high=PROTOCOL_VERSION,
            )
        self._greeted = True

    # --- answers ------------------------------------------------------------------------------

    def send(self, message: Message, request_id: int, payload: bytes | memoryview = b"") -> None:
        """Write a packet; does nothing once the connection is gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._sent_at = self._served.clock.monotonic()
        pieces = encode_message(message, request_id, payload)
        if self._pauses:
            transport.writelines(pieces)
        else:
            transport.write(b"".join(pieces))

    def refuse(self, error: AnabranchError) -> None:
        """Send the error to the client, and close."""
        self.send(failed(error), 0)
        if self._transport is not None:
            self._transport.close()

    def _adjust_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        throttle = self._served.throttle
        sends_much = self._turn.sends_much(self._received_at)
        paused = throttle.paused if sends_much else throttle.paused_for_all
        if paused and not self._waits_for_store:
            self._waits_for_store = True
            throttle.when_open(self._store_is_open)
        unsent_max = self._served.limits.write_buffer_max
        pause = (
            self._turn_is_over
            or self._waits_for_store
            or self._half.waits
            or (self._writing_paused and self._unsent_size() > unsent_max)
        )
        if pause and not self._reading_paused:
            transport.pause_reading()
        elif self._reading_paused and not pause:
            transport.resume_reading()
        self._reading_paused = pause

    def _unsent_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _stalled(self, now: float) -> bool:
        """Whether the client has taken nothing for long while the store holds too many answers."""
        if not self._writing_paused:
            return False
        unsent = self._unsent_size()
        if unsent < self._unsent:
            self._unsent, self._taken_at = unsent, now
        full = self._served.store.catch_up.outgoing.full
        return full and now - self._taken_at > self._served.limits.stalled_s

    def _store_is_open(self) -> None:
        self._waits_for_store = False
        self._read_again()

    def _has_room(self) -> None:
        """Read on: the incomplete packet was granted its room."""
        self._read_again()

    def _read_again(self) -> None:
        now = self._received_at = self._served.clock.monotonic()
        self._half.read_again(now)
        self._adjust_reading()

    def _tick(self) -> None:
        if self._transport is None:
            return
        limits, now = self._served.limits, self._served.clock.monotonic()
        self._cancel_tick = self._served.call_later(limits.tick_s, self._tick)
        if self._transport.is_closing():
            self._transport.abort()  # the client has not even taken the refusal
        elif not self._greeted and now - self._connected_at > limits.hello_s:
            self.refuse(BadPacket("no hello came in time", seconds=limits.hello_s))
        elif self._stalled(now):
            _log.warning(
                "closed the connection of a client that does not take its answers",
                unsent=self._unsent,
            )
            self._transport.abort()
        elif self._waits_for_store or self._half.waits:
            self._keep_alive(now)
        elif self._half.overdue(now, self._received_at, limits.packet_s):
            self.refuse(
                ConnectionLost("a packet was not complete in time", limit_s=limits.packet_s)
            )
        elif now - self._received_at > limits.idle_s:
            _log.info("closed an idle connection", seconds=limits.idle_s)
            self.refuse(ConnectionLost("no packet arrived in time", seconds=limits.idle_s))
        else:
            self._keep_alive(now)

    def _keep_alive(self, now: float) -> None:
        if now - self._sent_at > self._served.limits.keep_alive_s:
            self.send(KeepAlive(), 0)


def _address(transport: asyncio.Transport) -> str:
    """The peer's address without its port."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


class TcpServer:
    """Listens, and closes its connections at the end."""

    def __init__(self, served: Served) -> None:
        self._served = served
        limits = served.limits
        self._admission: Admission[Connection] = Admission(
            connections_max=limits.connections_max,
            per_peer_max=limits.per_peer_max,
            unfinished_max=limits.unfinished_max,
        )
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> Endpoint:
        """Listen; port 0 takes any free one. Raises PortInUse, InvalidSetting."""
        self._server, endpoint = await listen(
            lambda: Connection(self._served, self._admission), host, port
        )
        return endpoint

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._admission)

    @property
    def unfinished_size(self) -> int:
        """Bytes of room that incomplete packets hold."""
        return self._admission.room.used

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones continue."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Tell every client that the store stops, and close."""
        self.stop_accepting()
        for connection in self._admission.connections():
            connection.refuse(Unavailable("the store is stopping"))
