"""Tunnels of a served gateway: where they lead, what they hold, and how they end."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from anabranch.client import connect
from anabranch.common.contracts.tunnel import SUBPROTOCOL, tunnel_path
from anabranch.common.model.cluster import Endpoint
from anabranch.gateway.http.edge import websockets as edge
from kit.client_bench import STREAM, until, writer_settings
from kit.served_gateway import Served, served_gateway

NEVER_S = 600.0
TLS = Path(__file__).parents[2] / "kit" / "tls"


@dataclass
class RawStore:
    """A server that says and hears bytes; the fake controller knows its address."""

    port: int = 0
    callers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    taken: int = 0

    async def caller(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The next one."""
        await until(lambda: len(self.callers) > self.taken)
        self.taken += 1
        return self.callers[self.taken - 1]


@asynccontextmanager
async def raw_store() -> AsyncIterator[RawStore]:
    store = RawStore()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store.callers.append((reader, writer))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    store.port = server.sockets[0].getsockname()[1]
    try:
        yield store
    finally:
        server.close()
        for _, writer in store.callers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def tunnels(**changes: Any) -> AsyncIterator[tuple[Served, RawStore]]:
    async with asyncio.timeout(30), raw_store() as store, served_gateway(**changes) as served:
        served.gateway.bench.store.port, before = store.port, served.gateway.bench.store.port
        yield served, store
        served.gateway.bench.store.port = before


def websocket(
    served: Served, path: str, protocol: str | None = SUBPROTOCOL, **more: Any
) -> open_websocket:
    return open_websocket(
        f"ws://127.0.0.1:{served.port}{path}",
        subprotocols=None if protocol is None else [Subprotocol(protocol)],
        compression=None,
        ping_interval=None,
        proxy=None,
        **more,
    )


def to_store(served: Served, port: int) -> open_websocket:
    return websocket(served, tunnel_path(Endpoint("127.0.0.1", port)))


async def refusal(opening: open_websocket) -> tuple[int, str]:
    """The status and the code of the problem document."""
    with pytest.raises(InvalidStatus) as raised:
        await opening
    response = raised.value.response
    assert response.headers["content-type"] == "application/problem+json"
    told = json.loads(response.body)
    assert told["status"] == response.status_code
    assert told["remedy"]
    return response.status_code, told["code"]


async def closing(tunnel: ClientConnection) -> tuple[int, int]:
    """The bytes that come up to the end, and the code with which the gateway closes."""
    size = 0
    try:
        while True:
            size += len(await tunnel.recv())
    except ConnectionClosed as error:
        return size, error.rcvd.code if error.rcvd else 1006


# --- where they lead ------------------------------------------------------------------------------


async def test_a_tunnel_leads_to_stores_of_the_cluster_and_to_nothing_else() -> None:
    async with tunnels() as (served, store), raw_store() as stranger:
        path = tunnel_path(Endpoint("127.0.0.1", store.port))
        assert await refusal(to_store(served, stranger.port)) == (404, "node-not-found")
        assert await refusal(to_store(served, 1)) == (503, "unavailable")  # known, and away
        assert await refusal(websocket(served, "/v1/stores/nowhere/connection")) == (
            400, "invalid-request",
        )  # fmt: skip
        assert await refusal(websocket(served, path, None)) == (400, "invalid-request")
        assert await refusal(websocket(served, path, "mqtt")) == (400, "invalid-request")
        assert await refusal(websocket(served, "/v1/scopes")) == (404, "not-found")
        page = websocket(served, path, origin=Origin("http://elsewhere"))
        assert await refusal(page) == (403, "unauthorized")
        async with httpx.AsyncClient(base_url=served.url) as http:
            plain = await http.get(path)
            assert (plain.status_code, plain.json()["code"]) == (426, "upgrade-required")
        assert (stranger.callers, store.callers) == ([], [])
        async with to_store(served, store.port) as tunnel:
            assert tunnel.subprotocol == SUBPROTOCOL
            reader, writer = await store.caller()
            await tunnel.send(b"ask")
            assert await reader.readexactly(3) == b"ask"
            writer.write(b"told")
            assert await tunnel.recv() == b"told"
        metrics = served.gateway.parts.metrics
        exposed = metrics.exposition().decode()
    assert 'anabranch_gateway_tunnel_bytes_total{direction="to_store"} 3.0' in exposed
    assert 'anabranch_gateway_tunnel_bytes_total{direction="from_store"} 4.0' in exposed
    handshakes = 'method="GET",route="/v1/stores/{store}/connection",status="101"'
    assert f"anabranch_gateway_requests_total{{{handshakes}}} 1.0" in exposed


# --- how many, and how they are counted -----------------------------------------------------------


async def test_a_tunnel_counts_as_a_connection_until_it_ends_and_once() -> None:
    limits = {"tunnels_max": 1, "connections_per_peer_max": 2}
    async with tunnels(**limits, header_timeout_s=0.05) as (served, store):
        metrics = served.gateway.parts.metrics
        async with to_store(served, store.port):
            assert (metrics.connections, metrics.tunnels.open) == (1, 1)
            assert await refusal(to_store(served, store.port)) == (503, "overloaded")
            await until(lambda: metrics.connections == 1)
            async with AsyncExitStack() as stack:
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                stack.callback(writer.transport.abort)
                await until(lambda: metrics.connections == 2)
                assert await refusal(to_store(served, store.port)) == (429, "too-many-connections")
                assert await reader.read() == b""  # its deadline for headers has passed
            await until(lambda: metrics.connections == 1)
            assert metrics.tunnels.open == 1
        await until(lambda: metrics.connections == metrics.tunnels.open == 0)
        async with to_store(served, store.port):
            assert (metrics.connections, metrics.tunnels.open) == (1, 1)
        await until(lambda: metrics.connections == metrics.tunnels.open == 0)


async def test_a_websocket_behind_a_request_that_is_not_answered_is_reset() -> None:
    async with tunnels() as (served, store):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        path = tunnel_path(Endpoint("127.0.0.1", store.port))
        writer.write(
            b"GET /v1/scopes/plant/streams/sensors/events?wait=0.5 HTTP/1.1\r\nhost: h\r\n\r\n"
            + f"GET {path} HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"sec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n".encode()
        )
        assert await reader.read() == b""
        metrics = served.gateway.parts.metrics
        await until(lambda: metrics.connections == 0)
        writer.close()
        assert store.callers == []


@pytest.mark.parametrize("early", [b"\x81\x80\0\0\0\0", b"\x8f\x80\0\0\0\0"])
async def test_frames_before_the_handshake_is_over_that_are_wrong_reset_the_connection(
    early: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with tunnels() as (served, store):
        held = asyncio.Event()
        stores = served.gateway.parts.stores

        async def look() -> frozenset[Endpoint]:
            await held.wait()
            return frozenset()

        stores._look = look
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        path = tunnel_path(Endpoint("127.0.0.1", store.port))
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"sec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n".encode()
        )
        await until(lambda: served.gateway.parts.metrics.tunnels.open == 1)
        writer.write(early)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        held.set()
        await until(lambda: served.gateway.parts.metrics.connections == 0)
        writer.close()
    assert "Fatal error" not in caplog.text


# --- how they end ---------------------------------------------------------------------------------


async def test_the_end_of_one_side_ends_the_other_after_everything_was_carried() -> None:
    async with tunnels() as (served, store):
        async with to_store(served, store.port) as tunnel:
            _, writer = await store.caller()
            writer.write(b"last words" * 100_000)
            writer.close()
            assert await closing(tunnel) == (1_000_000, 1014)
        async with to_store(served, store.port) as tunnel:
            reader, _ = await store.caller()
            tunnel.transport.abort()
            assert await reader.read() == b""


async def test_text_and_messages_that_are_too_large_end_a_tunnel() -> None:
    async with tunnels() as (served, store):
        for message, code in (("text", 1003), (b"x" * (1024 * 1024 + 1), 1009)):
            async with to_store(served, store.port) as tunnel:
                reader, _ = await store.caller()
                await tunnel.send(message)
                assert await closing(tunnel) == (0, code)
                assert await reader.read() == b""


async def test_tunnels_end_at_once_when_the_gateway_stops() -> None:
    async with tunnels() as (served, store), to_store(served, store.port) as tunnel:
        reader, _ = await store.caller()
        served.lifetime.request_stop()
        assert await closing(tunnel) == (0, 1012)
        assert await reader.read() == b""
        metrics = served.gateway.parts.metrics
        await until(lambda: metrics.connections == metrics.tunnels.open == 0)


async def test_a_caller_that_takes_nothing_cannot_keep_a_tunnel_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edge, "CLOSE_WAIT_S", 0.0)
    monkeypatch.setattr("anabranch.gateway.http.routes.tunnels.CLOSE_S", 0.0)
    async with tunnels() as (served, store):
        tunnel = await to_store(served, store.port)
        tunnel.transport.pause_reading()
        _, writer = await store.caller()
        metrics = served.gateway.parts.metrics
        writer.write(b"x" * 64 * 1024 * 1024)
        await until(lambda: metrics.tunnels.from_stores > 0)
        writer.transport.abort()
        await until(lambda: metrics.connections == 0)
        tunnel.transport.abort()


# --- what they hold -------------------------------------------------------------------------------


async def settled(seen: Callable[[], int], asking: httpx.AsyncClient) -> int:
    """The number, once it has not changed while many other requests were answered."""
    last = -1
    while seen() != last:
        last = seen()
        for _ in range(5):
            await asking.get("/ping")
    return last


async def test_a_store_that_takes_nothing_stops_its_client_and_the_other_way_round() -> None:
    total = 32 * 1024 * 1024
    async with tunnels() as (served, store), httpx.AsyncClient(base_url=served.url) as http:
        carried = served.gateway.parts.metrics.tunnels
        tunnel = await to_store(served, store.port)
        _, writer = await store.caller()
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        tunnel.transport.pause_reading()
        writer.write(b"x" * total)
        # as a peer writes them that knows no back-pressure
        for _ in range(total // 100_000):
            tunnel.protocol.send_binary(b"x" * 100_000)
            tunnel.transport.write(b"".join(tunnel.protocol.data_to_send()))
        await settled(lambda: carried.from_stores, http)
        await settled(lambda: carried.to_stores, http)
        assert carried.to_stores < total / 2
        assert tunnel.transport.get_write_buffer_size() > 0
        assert carried.from_stores < total / 2
        assert writer.transport.get_write_buffer_size() > 0
        tunnel.transport.abort()


async def test_many_small_messages_and_fragments_are_one_stream() -> None:
    async with tunnels() as (served, store), to_store(served, store.port) as tunnel:
        reader, _ = await store.caller()
        for number in range(5000):
            tunnel.protocol.send_binary(b"", fin=False)
            tunnel.protocol.send_continuation(b"%04d" % number, fin=number % 2 == 0)
            if number % 2:
                tunnel.protocol.send_continuation(b"", fin=True)
        tunnel.transport.write(b"".join(tunnel.protocol.data_to_send()))
        wanted = b"".join(b"%04d" % number for number in range(5000))
        assert await reader.readexactly(len(wanted)) == wanted


# --- clients --------------------------------------------------------------------------------------


async def test_a_writer_whose_tunnels_are_cut_stores_each_event_once_and_in_order() -> None:
    async with served_gateway(2) as served, connect(served.url) as client:
        store = served.gateway.bench.store
        settings = writer_settings(block_size_bytes=1000)
        async with client.writer(STREAM, settings) as writer:
            for round_ in range(5):
                for number in range(200):
                    writer.write(b"%d" % (round_ * 200 + number), key=str(number % 5))
                await until(lambda: bool(store.connections))
                for connection in list(store.connections):
                    connection.drop()
        async with client.reader(STREAM, until_tail=True) as reader:
            events = [event async for event in reader]
    for key in range(5):
        mine = [int(event.payload) for event in events if event.key == str(key)]
        assert mine == [n for n in range(1000) if n % 5 == key]


async def test_a_tunnel_leads_through_a_proxy_that_ends_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with served_gateway() as served, asyncio.TaskGroup() as tasks:

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.transport.abort()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", served.port)
            tasks.create_task(carry(reader, there[1]))
            tasks.create_task(carry(there[0], writer))

        proxy = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
        port = proxy.sockets[0].getsockname()[1]
        async with connect(f"https://127.0.0.1:{port}") as client:
            async with client.writer(STREAM) as writer:
                writer.write(b"1" * 1_000_000)
            async with client.reader(STREAM, until_tail=True) as reader:
                assert [len(event.payload) async for event in reader] == [1_000_000]
        assert served.gateway.parts.metrics.tunnels.to_stores > 1_000_000
        proxy.close()
