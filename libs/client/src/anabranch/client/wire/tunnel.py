"""The way to a segment store through a gateway: the store protocol inside a WebSocket.

    connection ──bytes──► Tunnel ──binary messages──► gateway ──bytes──► segment store

A tunnel is the protocol of the socket to the gateway and the transport of a store connection. The
borders of messages have no meaning. A tunnel keeps nothing that the connection writes: it goes to
the socket at once. Text and violations of the protocol end the tunnel, and the connection then
reports ConnectionLost. The library that frames the messages does no I/O of its own; only clients of
a gateway load it, with their first connection.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from anabranch.client.wire.http_calls import Door, GatewayCalls
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.contracts.tunnel import (
    MESSAGE_SIZE_BYTES_MAX,
    PIECE_SIZE_BYTES_MAX,
    SUBPROTOCOL,
    tunnel_path,
)
from anabranch.common.errors import (
    AnabranchError,
    ConnectionLost,
    Fenced,
    NodeNotFound,
    NotFound,
    Retry,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
)

NOT_FOUND = 404
UPGRADE_REQUIRED = 426


class Tunnel(asyncio.Transport, asyncio.Protocol):
    """A WebSocket as a transport. `opened` raises the reason if the gateway opens no tunnel."""

    def __init__(self, door: Door, calls: GatewayCalls, connection: asyncio.Protocol) -> None:
        super().__init__()
        self._connection = connection
        self._calls = calls
        self._socket: asyncio.Transport | None = None
        self._frames = ClientProtocol(
            parse_uri(door.url),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=MESSAGE_SIZE_BYTES_MAX,
        )
        self._headers = door.headers
        self._is_attached = False
        """Set by the handshake: from then on the connection hears of the tunnel's end."""
        self._is_open = False
        """Set from the handshake to the end of the tunnel."""
        self._reason: Exception | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- the transport of the connection --------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; after the end they are dropped, as every transport does."""
        if not self._is_open:
            return
        whole = memoryview(data)
        for start in range(0, len(whole), PIECE_SIZE_BYTES_MAX):
            self._frames.send_binary(whole[start : start + PIECE_SIZE_BYTES_MAX])
        self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """As `write`, for all of them."""
        self.write(b"".join(list_of_data))

    def abort(self) -> None:
        """End at once; unsent bytes are dropped. Repeatable."""
        self._is_open = False
        if self._socket is not None:
            self._socket.abort()

    def close(self) -> None:
        """As `abort`: a gateway that does not read cannot delay the end."""
        self.abort()

    @property
    def is_attached(self) -> bool:
        """Whether the gateway opened the tunnel; the connection ends it from then on."""
        return self._is_attached

    def is_closing(self) -> bool:
        return not self._is_open

    # --- the protocol of the socket -------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        request = self._frames.connect()
        request.headers.update(self._headers)
        self._frames.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        self._take()

    def eof_received(self) -> None:
        self._frames.receive_eof()
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        reason = self._reason or exc
        if self._is_attached:
            self._connection.connection_lost(reason)
        else:
            self._refuse(ConnectionLost("the gateway closed the connection", reason=_text(reason)))

    def _take(self) -> None:
        """Hand on the bytes that have arrived."""
        for event in self._frames.events_received():
            if isinstance(event, Response):
                self._answered(event)
            elif self._is_open and isinstance(event, Frame):
                self._received(event)
        if self._frames.handshake_exc is not None:  # an answer that is no HTTP, or was cut off
            cause = _text(self._frames.handshake_exc)
            self._refuse(Unavailable("the gateway did not complete its answer", cause=cause))
            self.abort()
        elif self._is_open:
            self._flush()
            if self._frames.state is not State.OPEN:
                self._end(f"the gateway broke the protocol: {_text(self._frames.parser_exc)}")

    def _answered(self, response: Response) -> None:
        """The gateway's answer to the handshake."""
        if self._frames.handshake_exc is not None:
            self._refuse(self._refusal_of(response))
        elif self._frames.subprotocol != SUBPROTOCOL:
            self._refuse(_no_tunnels("the gateway did not agree to the protocol of tunnels"))
        elif not self.opened.done():
            self._is_attached = self._is_open = True
            self.opened.set_result(None)
            self._connection.connection_made(self)
            return
        self.abort()

    def _received(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.BINARY | Opcode.CONT:
                self._connection.data_received(bytes(frame.data))
            case Opcode.TEXT:
                self._end("the gateway sent text")
            case Opcode.CLOSE:
                self._flush()  # the answer to it
                self._end(f"the gateway closed the tunnel: {self._frames.close_rcvd}")

    def _end(self, reason: str) -> None:
        self._reason = ConnectionError(reason)
        self.abort()

    def _refuse(self, error: AnabranchError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # the opener may have gone

    def _refusal_of(self, response: Response) -> AnabranchError:
        kind = response.headers.get("content-type", "")
        error = self._calls.refusal(response.status_code, kind, bytes(response.body or b""))
        if response.status_code == NOT_FOUND and not isinstance(error, NodeNotFound):
            return _no_tunnels("the gateway has no tunnels to segment stores")
        if response.status_code == UPGRADE_REQUIRED:
            return UnsupportedProtocol(
                "the gateway received no request for a WebSocket",
                remedy="let every proxy before the gateway pass WebSockets",
            )
        return error

    def _flush(self) -> None:
        assert self._socket is not None
        pieces = [piece for piece in self._frames.data_to_send() if piece]
        if pieces and not self._socket.is_closing():
            self._socket.writelines(pieces)


async def dial_through(calls: GatewayCalls, connection: SegmentStoreConnection) -> None:
    """A `Dial` that attaches the connection to a tunnel through the gateway.

    Raises ConnectionLost if another attempt may help: the gateway is away, is full, does not reach
    the store or does not know it. Raises Unauthorized and UnsupportedProtocol.
    """
    door = calls.door(tunnel_path(connection.endpoint))
    tunnel = Tunnel(door, calls, connection)
    where = parse_uri(door.url)
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: tunnel, where.host, where.port, ssl=door.tls)
        await tunnel.opened
    except (Retry, Fenced, NotFound, Unknown) as error:
        raise ConnectionLost(
            "the gateway opened no tunnel to the segment store",
            gateway=calls.url,
            cause=error.code,
            reason=error.message,
        ) from error
    finally:
        if not tunnel.is_attached:
            tunnel.abort()


def _no_tunnels(message: str) -> UnsupportedProtocol:
    return UnsupportedProtocol(message, remedy="upgrade the gateway, or check its address")


def _text(error: Exception | None) -> str:
    return "" if error is None else str(error) or type(error).__name__
