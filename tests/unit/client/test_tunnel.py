"""Tunnels through a gateway, against a peer that is driven by hand."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from anabranch.client.settings import ConnectionSettings
from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.client.wire.tunnel import Tunnel, dial_through
from anabranch.common.adapters.store_connection import SegmentStoreConnection, open_connection
from anabranch.common.contracts.tunnel import (
    MESSAGE_SIZE_BYTES_MAX,
    PIECE_SIZE_BYTES_MAX,
    SUBPROTOCOL,
    tunnel_end,
    tunnel_path,
)
from anabranch.common.errors import (
    AnabranchError,
    ConnectionLost,
    InvalidRequest,
    NodeNotFound,
    Overloaded,
    Unauthorized,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.cluster import Endpoint
from kit.served_streams import served_streams

STORE = Endpoint("10.0.0.7", 9090)
PROBLEM = "application/problem+json"


class Inner(asyncio.Protocol):
    """What travels in the tunnel; `aborts_at`: it gives up at so many bytes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None
        self.aborts_at = 1 << 60

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(b"hello")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= self.aborts_at:
            assert self.transport is not None
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Socket(asyncio.Transport):
    """Keeps what is written, and ends when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.aborts = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def abort(self) -> None:
        self.aborts += 1

    def is_closing(self) -> bool:
        return self.aborts > 0


class Peer:
    """A gateway's end of a WebSocket."""

    def __init__(self, url: str = "http://gateway:80", token: str = "") -> None:
        self.calls = GatewayCalls(url, token=token)
        self.inner = Inner()
        self.tunnel = Tunnel(self.calls.door(tunnel_path(STORE)), self.calls, self.inner)
        self.socket = Socket()
        self.frames = ServerProtocol(subprotocols=[Subprotocol(SUBPROTOCOL)])
        self.tunnel.connection_made(self.socket)
        (self.request,) = self.heard()
        assert isinstance(self.request, Request)

    def heard(self) -> list[Request | Response | Frame]:
        data, self.socket.written = bytes(self.socket.written), bytearray()
        self.frames.receive_data(data)
        return self.frames.events_received()

    def say(self, data: bytes | None = None) -> None:
        self.tunnel.data_received(b"".join(self.frames.data_to_send()) if data is None else data)

    def accept(self, *, without: bool = False) -> None:
        """Open the tunnel; `without` the protocol of tunnels."""
        assert isinstance(self.request, Request)
        response = self.frames.accept(self.request)
        if without:
            del response.headers["Sec-WebSocket-Protocol"]
        self.frames.send_response(response)

    def end(self) -> None:
        """The socket is gone."""
        self.tunnel.connection_lost(None)

    @property
    def reason(self) -> str:
        """Why the connection in the tunnel was lost, once."""
        self.end()
        (error,) = self.inner.lost
        return str(error)


def opened() -> Peer:
    peer = Peer()
    peer.accept()
    peer.say()
    peer.tunnel.opened.result()
    peer.heard()
    return peer


def problem(status: int, code: str) -> bytes:
    body = b'{"code":"%b","detail":"told","remedy":"do","fields":{"limit":7}}' % code.encode()
    return answer(status, PROBLEM, body)


def answer(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Any\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


# --- the handshake --------------------------------------------------------------------------------


async def test_a_tunnel_is_asked_for_by_the_address_of_the_store_and_with_the_token() -> None:
    peer = Peer("http://gateway:80/behind/", token="mine")
    assert isinstance(peer.request, Request)
    assert peer.request.path == "/behind/v1/stores/10.0.0.7:9090/connection"
    assert peer.request.headers["Authorization"] == "Bearer mine"
    assert peer.request.headers["Sec-WebSocket-Protocol"] == SUBPROTOCOL
    assert "Sec-WebSocket-Extensions" not in peer.request.headers


async def test_nothing_is_sent_before_the_gateway_has_opened_the_tunnel() -> None:
    peer = Peer()
    peer.tunnel.write(b"early")
    assert not peer.socket.written
    assert peer.inner.transport is None
    peer.accept()
    peer.say()
    assert [event.data for event in peer.heard() if isinstance(event, Frame)] == [b"hello"]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (problem(503, "overloaded"), Overloaded),
        (problem(404, "node-not-found"), NodeNotFound),
        (problem(404, "not-found"), UnsupportedProtocol),
        (problem(426, "upgrade-required"), UnsupportedProtocol),
        (problem(403, "unauthorized"), Unauthorized),
        (answer(502, "text/html", b"<h1>away</h1>"), Unavailable),
        (answer(200, "text/html", b"<h1>It works!</h1>"), InvalidRequest),
        (answer(302, "text/html", b""), InvalidRequest),
        (b"+OK redis\r\n", Unavailable),
    ],
)
async def test_a_refusal_is_the_error_that_the_gateway_told(
    told: bytes, error: type[AnabranchError]
) -> None:
    peer = Peer()
    for byte in (told[:20], told[20:]):
        peer.say(byte)
    assert type(peer.tunnel.opened.exception()) is error
    assert peer.socket.aborts
    peer.end()
    assert (peer.inner.transport, peer.inner.lost) == (None, [])


async def test_a_gateway_that_agrees_to_no_protocol_or_says_nothing_opens_no_tunnel() -> None:
    peer = Peer()
    peer.accept(without=True)
    peer.say()
    assert isinstance(peer.tunnel.opened.exception(), UnsupportedProtocol)
    assert peer.socket.aborts
    silent = Peer()
    silent.end()
    assert isinstance(silent.tunnel.opened.exception(), ConnectionLost)
    cut = Peer()
    cut.say(b"HTTP/1.1 101 Swi")
    cut.tunnel.eof_received()
    assert isinstance(cut.tunnel.opened.exception(), Unavailable)


# --- bytes ----------------------------------------------------------------------------------------


async def test_bytes_that_come_with_the_answer_or_in_fragments_are_one_stream() -> None:
    peer = Peer()
    peer.accept()
    peer.frames.send_binary(b"one ")
    peer.frames.send_binary(b"t", fin=False)
    peer.frames.send_continuation(b"", fin=False)
    peer.frames.send_continuation(b"wo", fin=True)
    peer.say()
    assert peer.inner.received == b"one two"
    peer.frames.send_binary(b" three")
    for byte in b"".join(peer.frames.data_to_send()):
        peer.say(bytes([byte]))
    assert peer.inner.received == b"one two three"


async def test_what_is_written_goes_to_the_socket_at_once_in_pieces_of_bounded_size() -> None:
    peer = opened()
    block = bytes(range(256)) * 4096 * 3
    peer.tunnel.writelines([b"head", memoryview(block)])
    assert len(peer.socket.written) > len(block)  # a peer that reads nothing makes nothing wait
    pieces = [bytes(event.data) for event in peer.heard() if isinstance(event, Frame)]
    assert b"".join(pieces) == b"head" + block
    assert max(map(len, pieces)) == PIECE_SIZE_BYTES_MAX


async def test_a_ping_is_answered() -> None:
    peer = opened()
    peer.frames.send_ping(b"there?")
    peer.say()
    (pong,) = peer.heard()
    assert isinstance(pong, Frame)
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"there?")


# --- the end --------------------------------------------------------------------------------------


async def test_whatever_is_no_stream_of_bytes_ends_the_tunnel_and_says_why() -> None:
    wrong: dict[str, Callable[[ServerProtocol], object]] = {
        "sent text": lambda f: f.send_text(b"text"),
        "1012 (service restart)": lambda f: f.send_close(CloseCode.SERVICE_RESTART),
        "exceeds limit": lambda f: f.send_binary(b"x" * (MESSAGE_SIZE_BYTES_MAX + 1)),
        "incorrect masking": lambda f: f.writes.append(b"\x82\x81\0\0\0\0x"),
        "invalid opcode": lambda f: f.writes.append(b"\x83\x00"),
        "exceeds": too_big_in_fragments,
    }
    for told, send in wrong.items():
        peer = opened()
        send(peer.frames)
        peer.frames.writes.append(b"\x82\x05after")
        peer.say()
        peer.tunnel.write(b"late")
        assert peer.socket.aborts == 1, told
        assert not peer.inner.received.endswith(b"after")
        assert told in peer.reason


def too_big_in_fragments(frames: ServerProtocol) -> None:
    frames.send_binary(b"x" * MESSAGE_SIZE_BYTES_MAX, fin=False)
    frames.send_continuation(b"x", fin=True)


async def test_a_connection_that_gives_up_in_the_middle_hears_no_more() -> None:
    peer = opened()
    peer.inner.aborts_at = 3
    peer.frames.send_binary(b"bad")
    peer.frames.send_binary(b"more")
    peer.say()
    assert peer.inner.received == b"bad"
    assert peer.socket.aborts == 1
    assert peer.tunnel.is_closing()
    assert peer.reason == "None"


async def test_a_socket_that_ends_without_a_word_ends_the_connection() -> None:
    peer = opened()
    assert peer.frames.state is OPEN
    peer.tunnel.eof_received()
    assert peer.reason


async def test_a_gateway_that_never_answers_costs_the_connect_deadline_and_no_socket() -> None:
    gone = asyncio.Event()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # up to the end
        gone.set()
        writer.close()

    settings = ConnectionSettings(connect_timeout_s=0.05)
    async with served_streams(served) as port:
        calls = GatewayCalls(f"http://127.0.0.1:{port}")

        async def dial(connection: SegmentStoreConnection) -> None:
            await dial_through(calls, connection)

        with pytest.raises(ConnectionLost):
            await open_connection(STORE, settings, dial)
        async with asyncio.timeout(2):
            await gone.wait()


# --- addresses ------------------------------------------------------------------------------------


def test_a_store_is_named_by_its_address_in_the_path() -> None:
    assert tunnel_path(Endpoint("::1", 9)) == "/v1/stores/::1:9/connection"
    assert tunnel_end("10.0.0.7:9090") == STORE
    assert tunnel_end("::1:9") == Endpoint("::1", 9)
    for wrong in ("host", "host:", ":9", "host:x", "host:70000", "host:٣", ""):
        with pytest.raises(InvalidRequest):
            tunnel_end(wrong)


def test_a_gateway_behind_tls_is_reached_with_tls_by_tunnels_too() -> None:
    plain = GatewayCalls("http://u:p@gateway:81").door("/x")
    secure = GatewayCalls("https://gateway").door("/x")
    assert (plain.url, plain.tls) == ("ws://u:p@gateway:81/x", None)
    assert secure.url == "wss://gateway/x"
    assert secure.tls is not None
    assert secure.tls.check_hostname
