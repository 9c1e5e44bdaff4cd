"""A small S3 in memory behind real HTTP, which misbehaves as told: answers lost, errors, silence.

It takes no notice of signatures. Answers are lost as networks lose them: the request has arrived
and was performed or not, and the connection ends without a word.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import parse_qs, unquote, urlsplit

from anabranch.common.storage.location import BucketLocation, ObjectOptions

_ERROR = "<Error><Code>{}</Code><Message>as told</Message></Error>"
_REASONS = {200: "OK", 206: "Partial Content", 204: "No Content", 404: "Not Found"}


class Fault(Enum):
    """What happens to one request instead of its answer."""

    PERFORMED_AND_LOST = "performed and lost"
    LOST = "lost"
    PERFORMED_AND_SILENT = "performed, never answered"
    BUSY = (503, "SlowDown")
    STILL_BEING_WRITTEN = (409, "ConditionalRequestConflict")
    FORBIDDEN = (403, "AccessDenied")
    NO_BUCKET = (404, "NoSuchBucket")


@dataclass(slots=True)
class ScriptedS3:
    """`faults` are used up, one per request (None: it goes well); then all goes well. The methods
    of the requests are remembered."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault | None] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    page_size: int = 1000
    replaces: bool = False
    """Whether it takes no notice of conditions, as old servers do."""

    @property
    def options(self) -> ObjectOptions:
        return ObjectOptions(endpoint=f"http://127.0.0.1:{self.port}", allow_http=True)

    @property
    def location(self) -> BucketLocation:
        return BucketLocation("s3", "bucket", "")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request by request, until it ends or is to be cut."""
        try:
            while line := (await reader.readline()).decode():
                headers = await _headers(reader)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = line.split()
                self.requests.append(method)
                fault = self.faults.pop(0) if self.faults else None
                answer = self._answer(fault, method, target, headers, body)
                if fault is Fault.PERFORMED_AND_SILENT:
                    await reader.read()  # until the caller has had enough
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _answer(
        self, fault: Fault | None, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> bytes | None:
        """The bytes to send; None cuts the connection."""
        match fault:
            case None:
                return self._perform(method, target, headers, body)
            case Fault.LOST:
                return None
            case Fault.PERFORMED_AND_LOST | Fault.PERFORMED_AND_SILENT:
                self._perform(method, target, headers, body)
                return None
            case _:
                status, code = fault.value
                return _response(status, _ERROR.format(code).encode())

    def _perform(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        parts = urlsplit(target)
        name = unquote(parts.path).removeprefix("/bucket").removeprefix("/")
        if method == "GET" and not name:
            return self._list(parse_qs(parts.query))
        if method == "PUT":
            conditional = headers.get("if-none-match") == "*" and not self.replaces
            if name in self.objects and conditional:
                return _response(412, _ERROR.format("PreconditionFailed").encode())
            self.objects[name] = body
            return _response(200, b"")
        if method == "DELETE":
            self.objects.pop(name, None)
            return _response(204, b"")
        if name not in self.objects:
            return _response(404, _ERROR.format("NoSuchKey").encode())
        return _object(method, self.objects[name], headers.get("range", ""))

    def _list(self, query: Mapping[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        names = sorted(n for n in self.objects if n.startswith(prefix) and n > after)
        page, more = names[: self.page_size], len(names) > self.page_size
        contents = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(self.objects[name])}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag></Contents>'
            for name in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{contents}</ListBucketResult>"
        )
        return _response(200, text.encode())


@asynccontextmanager
async def scripted_s3() -> AsyncIterator[ScriptedS3]:
    """Serve on a free port of the loopback address."""
    served = ScriptedS3()
    connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        await served.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for connection in connections:
            connection.close()
            with suppress(ConnectionError):
                await connection.wait_closed()


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        found[name.lower()] = value.strip()
    return found


def _object(method: str, data: bytes, asked: str) -> bytes:
    head = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    if method == "HEAD":
        return _response(200, b"", head, length=len(data))
    if not asked:
        return _response(200, data, head)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    part = data[int(first) : int(last) + 1]
    if not part:
        return _response(416, _ERROR.format("InvalidRange").encode())
    until = int(first) + len(part) - 1
    return _response(206, part, f"{head}Content-Range: bytes {first}-{until}/{len(data)}\r\n")


def _response(status: int, body: bytes, headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    reason = _REASONS.get(status, "As Told")
    first = f'HTTP/1.1 {status} {reason}\r\nContent-Length: {size}\r\nETag: "e"\r\n'
    return f"{first}{headers}\r\n".encode() + body
