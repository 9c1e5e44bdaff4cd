"""A closed loop of HTTP requests: each connection sends the next one when it has its answer.

Written for the measurement: requests are bytes that were made before, and of an answer only the
status, the length and whether it is all there are looked at, so that the load costs little beside
what it measures. HTTP/1.1 with Content-Length only.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from anabranch.common.errors import BadPacket, ConnectionLost
from bench.clock import Stopwatch

CONNECTIONS = 64
PATIENCE_SECONDS = 30.0
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


@dataclass
class Load:
    """What the connections share: the next request, until there is none, and what came of it.

    `next_request` gives None when the time is up.
    """

    next_request: Callable[[], bytes | None]
    clock: Stopwatch
    expected: bytes = b""
    """What every answer must hold."""
    times_ms: list[float] = field(default_factory=list)
    wrong: int = 0


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, load: Load, ended: "asyncio.Future[None]") -> None:
        self._load = load
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(ConnectionLost("the server hung up", reason=str(exc or "")))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            size = answer_size(self._received)
        except BadPacket as error:
            if not self._ended.done():
                self._ended.set_exception(error)
            return
        if size is None or len(self._received) < size:
            return
        self._load.times_ms.append((self._load.clock.now() - self._sent_at) * 1000)
        answer = self._received[:size]
        if not answer.startswith(b"HTTP/1.1 200") or self._load.expected not in answer:
            self._load.wrong += 1
        self._received = self._received[size:]
        self._send_next()

    def _send_next(self) -> None:
        assert self._transport is not None
        request = self._load.next_request()
        if request is None:
            if not self._ended.done():
                self._ended.set_result(None)
            self._transport.close()
            return
        self._sent_at = self._load.clock.now()
        self._transport.write(request)


def answer_size(data: bytes) -> int | None:
    """Bytes of the answer that `data` begins with; None while its head is not complete.

    Raises BadPacket for an answer without a length.
    """
    end = data.find(_END)
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(_LENGTH)
    if at < 0:
        raise BadPacket("an HTTP answer has no length")
    line = head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]
    return end + len(_END) + int(line)


async def run_load(host: str, port: int, load: Load, connections: int = CONNECTIONS) -> None:
    """Return when every connection has got its last answer. Raises ConnectionLost, BadPacket."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(_one(loop, host, port, load))


async def _one(loop: asyncio.AbstractEventLoop, host: str, port: int, load: Load) -> None:
    ended: asyncio.Future[None] = loop.create_future()
    transport, _ = await loop.create_connection(lambda: _Connection(load, ended), host, port)
    try:
        await ended
    finally:
        transport.close()


def post_request(host: str, path: str, body: bytes) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/octet-stream",
        f"Content-Length: {len(body)}", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + body


def get_request(host: str, path: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "Accept: application/octet-stream", "", "")
    return "\r\n".join(lines).encode()
