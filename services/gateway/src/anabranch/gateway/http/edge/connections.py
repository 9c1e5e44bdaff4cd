"""The gateway's connections: bounded in number, in total and per peer, and in time.

    accepted ──room──► headers ──complete──► request (`intake`) ──answered──► idle ──► closed
        │                 │   ▲                                                │
        └─► 503, 429      └─► 408, 431, closed        next request ◄───────────┘

If there is no room for a connection, the gateway sends a problem document at once and closes it.
The deadline for headers runs from the connection's first moment, or from the next request's first
byte, and no byte extends it. Bytes that follow an answered request have the same deadline. A
request for a WebSocket hands its connection over (`websockets`), which stays counted until it ends.

uvicorn's protocol does everything else. It has no hooks, so this class overrides its methods.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from anabranch.common.errors import (
    AnabranchError,
    HeadersTooLarge,
    HeadersTooSlow,
    Overloaded,
    TooManyConnections,
)
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.http.edge.problem import problem_of
from anabranch.gateway.http.edge.websockets import WebSocketConnection

HEADERS_SIZE_BYTES_MAX = 64 * 1024
REFUSED_MAX = 64
"""The most refused connections that wait for their peers; further ones are reset."""
REFUSED_WAIT_S = 1.0
IPV6_PREFIX_BITS = 64
"""The addresses of one network count as one peer."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`header_timeout_s`: how long a request's headers may take."""

    connections_max: int
    connections_per_peer_max: int
    header_timeout_s: float


class Connections:
    """Counts the connections of one server."""

    def __init__(self, limits: ConnectionLimits, metrics: GatewayMetrics) -> None:
        self.limits = limits
        self.refused = 0
        """The number of refused connections that are still open."""
        self._metrics = metrics
        self._by_peer: Counter[str] = Counter()

    def enter(self, peer: str) -> AnabranchError | None:
        """Count one more connection; or return the error if it exceeds a limit."""
        limits = self.limits
        error: AnabranchError | None = None
        if self._metrics.connections >= limits.connections_max:
            error = Overloaded("too many connections", limit=limits.connections_max)
        elif self._by_peer[peer] >= limits.connections_per_peer_max:
            limit = limits.connections_per_peer_max
            error = TooManyConnections("too many connections of one peer", peer=peer, limit=limit)
        if error is not None:
            self.cut_off(error)
            return error
        self._by_peer[peer] += 1
        self._metrics.connections += 1
        return None

    def leave(self, peer: str) -> None:
        """Count the end of a connection that `enter` admitted."""
        self._metrics.connections -= 1
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]

    def cut_off(self, error: AnabranchError) -> None:
        """Count a connection that the gateway ends with this error."""
        self._metrics.cut_off(error.code)


class Connection(HttpToolsProtocol):
    """See the module."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._counted_in = connections
        self._peer: str | None = None
        """None: the connection is not counted."""
        self._deadline: asyncio.TimerHandle | None = None
        self._is_in_headers = False
        self._headers_size_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast(asyncio.Transport, transport)
        peer = peer_of(connection.get_extra_info("peername"))
        refused = self._counted_in.enter(peer)
        if refused is not None:
            self._refuse(connection, refused)
            return
        self._peer = peer
        super().connection_made(connection)
        self._watch()

    def _refuse(self, transport: asyncio.Transport, error: AnabranchError) -> None:
        """Send the error and wait a little, because a reset would discard it at the peer."""
        if self._counted_in.refused >= REFUSED_MAX:
            transport.abort()
            return
        self._counted_in.refused += 1
        transport.write(_answer(error))
        transport.write_eof()
        self._deadline = self.loop.call_later(REFUSED_WAIT_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        was_refused = self._peer is None and self._deadline is not None
        self._disarm()
        if self._peer is not None:
            peer, self._peer = self._peer, None
            self._counted_in.leave(peer)
            super().connection_lost(exc)
        elif was_refused:
            self._counted_in.refused -= 1

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            return
        self._headers_size_bytes += len(data)
        super().data_received(data)
        if self._peer is None:
            return  # The WebSocket owns the socket now.
        if not self._is_in_headers:
            self._headers_size_bytes = 0
        elif self._headers_size_bytes > HEADERS_SIZE_BYTES_MAX:
            limit = HEADERS_SIZE_BYTES_MAX
            self._cut_off(HeadersTooLarge("the headers exceed the limit", limit=limit))
        self._watch()

    def handle_websocket_upgrade(self) -> None:
        """Hand the socket and its place in the count over to a WebSocket.

        No method here is called afterwards. The upgrade is refused while a request is still being
        answered, because that request would never learn of the connection's end.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        self._disarm()
        assert self._peer is not None
        left, self._peer = partial(self._counted_in.leave, self._peer), None
        self.ws_protocol_class = cast(Any, partial(WebSocketConnection, left))
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        super().on_headers_complete()

    def _watch(self) -> None:
        """Run the deadline while no request is being answered.

        uvicorn itself closes idle connections.
        """
        if self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            self._disarm()
        elif self._deadline is None:
            wait_s = self._counted_in.limits.header_timeout_s
            self._deadline = self.loop.call_later(wait_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        seconds = self._counted_in.limits.header_timeout_s
        self._cut_off(HeadersTooSlow("the headers did not arrive in time", seconds=seconds))

    def _cut_off(self, error: AnabranchError) -> None:
        if self.transport.is_closing():
            return
        self._counted_in.cut_off(error)
        if self._is_in_headers:
            self.transport.write(_answer(error))
        self.transport.close()


def protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """The factory that uvicorn calls for each connection."""

    def connection(**uvicorn: Any) -> Connection:
        return Connection(connections, **uvicorn)

    make: Callable[..., asyncio.Protocol] = connection
    return cast(type[asyncio.Protocol], make)


def peer_of(peername: object) -> str:
    """The peer of a socket's address: an IPv4 address, or an IPv6 network."""
    if not isinstance(peername, tuple) or not peername:
        return ""
    host = str(peername[0]).partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_PREFIX_BITS), strict=False))


def _answer(error: AnabranchError) -> bytes:
    """The bytes of an answer that ends its connection."""
    response = problem_of(error, "")
    lines = [b"%b: %b\r\n" % header for header in response.raw_headers]
    start = STATUS_LINE[response.status_code]
    return b"".join([start, *lines, b"connection: close\r\n\r\n", bytes(response.body)])
