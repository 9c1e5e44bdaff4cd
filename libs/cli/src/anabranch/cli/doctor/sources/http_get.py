"""One GET request over HTTP/1.0, without a library: for health, metrics and monitoring ports.

The answer is whole when the server closes the connection. Its size and its time are bounded.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from anabranch.cli.doctor.sources.causes import cause_of
from anabranch.common.errors import Unavailable

ANSWER_S_MAX = 3.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers`: by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def get(url: str, *, seconds_max: float = ANSWER_S_MAX) -> Answer:
    """The answer, of any status. Raises Unavailable without one; fields {cause}."""
    try:
        async with asyncio.timeout(seconds_max):
            return parsed(await _exchange(url))
    except TimeoutError as error:
        shown = without_login(url)
        raise Unavailable("no answer in time", url=shown, cause="timeout") from error
    except (OSError, ValueError) as error:
        shown = without_login(url)
        raise Unavailable("no answer", url=shown, cause=cause_of(error)) from error


def without_login(url: str) -> str:
    """The URL without the user and the password that it may hold."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


async def _exchange(url: str) -> bytes:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        request = f"GET {path} HTTP/1.0\r\nhost: {shown}:{port}\r\naccept: */*\r\n\r\n"
        writer.write(request.encode())
        answer = b""
        while more := await reader.read(1 << 16):
            answer += more
            if len(answer) > ANSWER_BYTES_MAX:
                raise ValueError("the answer is too large")
        return answer
    finally:
        writer.close()


def parsed(answer: bytes) -> Answer:
    """The answer in these bytes. Raises ValueError if they are not HTTP."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ValueError("the answer is not HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Answer(int(words[1]), headers, body)
