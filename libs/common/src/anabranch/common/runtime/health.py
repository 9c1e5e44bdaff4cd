"""Health over HTTP: `/healthz` (the process lives), `/readyz` (every part is ready), `/metrics`.

A deliberately small HTTP/1.1 responder: one request per connection, GET only, head of at most
4 KiB, answered or dropped within five seconds, at most 32 connections at a time. It needs no
framework, so every service has it, and an overloaded service can still report its state.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch.common.errors import AnabranchError, PortInUse
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.runtime.logger import get_logger
from anabranch.common.runtime.metrics import CONTENT_TYPE as METRICS_TYPE
from anabranch.common.runtime.port_file import PORT_FILE_VARIABLE, write_port_file

_log = get_logger(__name__)

REQUEST_SIZE_MAX = 4096
REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 32

_REASONS: Mapping[int, str] = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class PartHealth:
    """Whether one part of a service is ready, with the reason if it is not."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HealthReply:
    """An HTTP status and a body: an object for JSON, or Prometheus' text as it is."""

    status: int
    body: Mapping[str, object] | bytes

    def encode(self) -> bytes:
        if isinstance(self.body, bytes):
            media_type, payload = METRICS_TYPE, self.body
        else:
            media_type, payload = "application/json", json.dumps(self.body).encode() + b"\n"
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
            f"content-type: {media_type}\r\ncontent-length: {len(payload)}\r\n"
            "connection: close\r\n\r\n"
        )
        return head.encode() + payload


def is_ready(parts: Mapping[str, PartHealth]) -> bool:
    """Whether at least one part has reported and all parts are ready."""
    return bool(parts) and all(part.ready for part in parts.values())


def answer(
    head: bytes, parts: Mapping[str, PartHealth], exposition: Callable[[], bytes]
) -> HealthReply:
    """The reply to a request's head (request line and headers)."""
    line = head.split(b"\r\n", 1)[0].split(b" ")
    if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
        return HealthReply(400, {"error": "not an HTTP/1 request"})
    if line[0] != b"GET":
        return HealthReply(405, {"error": "only GET is served here"})
    match line[1].split(b"?", 1)[0]:
        case b"/healthz":
            return HealthReply(200, {"alive": True})
        case b"/readyz":
            ready = is_ready(parts)
            shown = {
                name: {"ready": part.ready, "reason": part.reason} for name, part in parts.items()
            }
            return HealthReply(200 if ready else 503, {"ready": ready, "parts": shown})
        case b"/metrics":
            return HealthReply(200, exposition())
        case _:
            return HealthReply(404, {"error": "only /healthz, /readyz and /metrics exist here"})


class HealthServer:
    """Serves `answer` with the results of `parts` and `exposition` while it is entered."""

    def __init__(
        self,
        bind: str,
        parts: Callable[[], Mapping[str, PartHealth]],
        exposition: Callable[[], bytes],
    ) -> None:
        self._host, self._port = parse_bind(bind)
        self._parts = parts
        self._exposition = exposition
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        """The bound port, also if `bind` asks for any port."""
        assert self._server is not None, "the server has not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=REQUEST_SIZE_MAX
            )
        except OSError as error:
            raise PortInUse(
                "cannot listen for health requests",
                host=self._host,
                port=self._port,
                cause=error.strerror or str(error),
            ) from error
        _log.info("health is served", host=self._host, port=self.port)
        port_file = os.environ.get(PORT_FILE_VARIABLE)
        if port_file:
            try:
                write_port_file(Path(port_file), self.port)
            except AnabranchError:
                self._server.close()
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None, "the server has not started"
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(head, self._parts(), self._exposition).encode())
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(HealthReply(400, {"error": "request too large"}).encode())
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return  # The caller went away or was too slow: it gets no answer.
        finally:
            self._open -= 1
            writer.close()
