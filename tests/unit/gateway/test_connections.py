"""The gateway's server on a real socket: how many connections it takes, and how long it waits."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from anabranch.common.runtime.service import Lifetime
from anabranch.common.runtime.settings import NO_TARGET
from anabranch.common.runtime.telemetry import open_telemetry
from anabranch.gateway.http.edge import connections
from anabranch.gateway.http.edge.connections import peer_of
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.settings import Settings
from anabranch.gateway.wiring import listen, serve
from kit.client_bench import until

ASK = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
NEVER_S = 600.0


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once; `/hold` with the first half of an answer alone."""
    if scope["path"] == "/hold":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await PlainTextResponse("here")(scope, receive, send)


@dataclass
class Served:
    port: int
    metrics: GatewayMetrics
    callers: "list[Caller]" = field(default_factory=list)

    async def open(self, peer: str = "127.0.0.1") -> "Caller":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(peer, 0))
        self.callers.append(Caller(reader, writer))
        return self.callers[-1]

    async def until(self, open_count: int) -> None:
        await until(lambda: self.metrics.connections == open_count)

    @property
    def reasons(self) -> dict[str, int]:
        return {reason: count for (reason,), count in self.metrics._cut_off.items()}


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes = ASK) -> bytes:
        """The head of the answer."""
        self.writer.write(request)
        return await self.reader.readuntil(b"\r\n\r\n")

    async def body(self) -> bytes:
        return await self.reader.readexactly(4)

    async def refusal(self) -> tuple[int, str]:
        """What comes up to the end of the connection: its status and code."""
        head, _, body = (await self.reader.read()).partition(b"\r\n\r\n")
        assert b"content-type: application/problem+json" in head
        told: dict[str, Any] = json.loads(body)
        assert head.startswith(b"HTTP/1.1 %d " % told["status"])
        return told["status"], told["code"]

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    given = {"header_timeout_s": NEVER_S, "keep_alive_s": NEVER_S, **settings}
    metrics = GatewayMetrics(open_telemetry("gateway", NO_TARGET, "t").metrics, int, int, int, dict)
    lifetime, listener = Lifetime(), listen("127.0.0.1:0")
    port = listener.getsockname()[1]
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(app, listener, lifetime, Settings(**given), metrics))
        serving = Served(port, metrics)
        try:
            yield serving
        finally:
            for caller in serving.callers:
                await caller.close()
            lifetime.request_stop()


async def test_one_connection_more_than_there_may_be_is_told_so_and_room_is_found_again() -> None:
    async with served(connections_max=3) as s:
        callers = [await s.open(f"127.0.0.{number}") for number in (1, 2, 3)]
        await s.until(3)
        assert await (await s.open("127.0.0.4")).refusal() == (503, "overloaded")
        await callers[0].close()
        await s.until(2)
        late = await s.open("127.0.0.4")
        assert (await late.ask()).startswith(b"HTTP/1.1 200 ")
        assert s.reasons == {"overloaded": 1}


async def test_a_peer_that_has_its_share_of_connections_locks_nobody_else_out() -> None:
    async with served(connections_per_peer_max=2) as s:
        callers = [await s.open() for _ in range(2)]
        await s.until(2)
        assert await (await s.open()).refusal() == (429, "too-many-connections")
        other = await s.open("127.0.0.2")
        assert (await other.ask()).startswith(b"HTTP/1.1 200 ")
        await callers[0].close()
        await s.until(2)
        assert (await (await s.open()).ask()).startswith(b"HTTP/1.1 200 ")


async def test_refused_connections_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REFUSED_MAX", 1)
    monkeypatch.setattr(connections, "REFUSED_WAIT_S", NEVER_S)
    async with served(connections_max=1) as s:
        await s.open()
        await s.until(1)
        waiting = await s.open()
        assert await waiting.refusal() == (503, "overloaded")
        reset = await s.open()
        with suppress(ConnectionResetError):
            assert await reset.reader.read() == b""


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: h\r\nx"])
async def test_headers_that_do_not_come_to_their_end_are_given_up(begun: bytes) -> None:
    async with served(header_timeout_s=0.05) as s:
        caller = await s.open()
        caller.writer.write(begun)
        assert await caller.refusal() == (408, "headers-too-slow")
        assert s.reasons == {"headers-too-slow": 1}


async def test_a_byte_now_and_then_does_not_put_the_deadline_off() -> None:
    async with served(header_timeout_s=0.05) as s:
        caller = await s.open()
        caller.writer.write(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            while True:
                caller.writer.write(b"a: b\r\n")
                await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as tasks:
            trickling = tasks.create_task(trickle())
            assert b" 408 " in await caller.reader.readline()
            trickling.cancel()


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
async def test_a_connection_that_asks_nothing_is_closed(sent: bytes) -> None:
    async with served(header_timeout_s=0.05) as s:
        fresh = await s.open()
        fresh.writer.write(sent)
        assert await fresh.reader.read() == b""


async def test_a_connection_that_was_answered_has_the_deadline_for_its_next_request() -> None:
    async with served(header_timeout_s=0.05) as s:
        caller = await s.open()
        for _ in range(2):
            assert (await caller.ask()).startswith(b"HTTP/1.1 200 ")
            assert await caller.body() == b"here"
        caller.writer.write(ASK[:-1])
        assert await caller.refusal() == (408, "headers-too-slow")


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with served(keep_alive_s=0.02) as s:
        caller = await s.open()
        await caller.ask()
        assert await caller.body() == b"here"
        assert await caller.reader.read() == b""
        assert s.reasons == {}


async def test_an_answer_that_goes_on_has_no_deadline_for_headers() -> None:
    async with served(header_timeout_s=0.02) as s:
        held, slow = await s.open(), await s.open()
        assert b" 200 " in await held.ask(b"GET /hold HTTP/1.1\r\nhost: h\r\n\r\n")
        slow.writer.write(b"G")
        assert await slow.refusal() == (408, "headers-too-slow")
        assert not held.reader.at_eof()
        assert s.metrics.connections == 1
        await held.close()


async def test_headers_without_end_are_refused_before_they_fill_the_memory() -> None:
    async with served() as s:
        caller = await s.open()
        caller.writer.write(b"GET / HTTP/1.1\r\nx: " + b"x" * (connections.HEADERS_SIZE_BYTES_MAX))
        head = await caller.reader.readline()
        assert b" 431 " in head
        assert s.reasons == {"headers-too-large": 1}


def test_an_ipv6_network_is_one_peer() -> None:
    assert peer_of(("2001:db8::1", 5, 0, 0)) == peer_of(("2001:db8::ffff:1%eth0", 6, 0, 0))
    assert peer_of(("2001:db8:0:1::1", 5, 0, 0)) != peer_of(("2001:db8::1", 5, 0, 0))
    assert peer_of(("::ffff:10.0.0.1", 5, 0, 0)) == peer_of(("10.0.0.1", 6)) == "10.0.0.1"
    assert peer_of("") == peer_of(None) == ""
