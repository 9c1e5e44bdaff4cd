"""Asks the monitoring port of a NATS server.

It sends one plain HTTP request over the loopback address or a closed network, without a library.
"""

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from anabranch.common.errors import Unavailable

ANSWER_DEADLINE_S = 2.0
ANSWER_SIZE_BYTES_MAX = 1024 * 1024
PORT = 8222


async def ask_monitor(url: str, page: str) -> Mapping[str, object]:
    """The JSON object at `page` of the monitoring port, such as ``varz``. Raises Unavailable."""
    try:
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            return await _ask(url, page)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise Unavailable(
            "the NATS monitoring port does not answer", url=url, cause=repr(error)
        ) from error


async def _ask(url: str, page: str) -> Mapping[str, object]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORT
    reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_SIZE_BYTES_MAX)
    try:
        path = f"{parts.path.rstrip('/')}/{page}"
        writer.write(f"GET {path} HTTP/1.0\r\nhost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        while more := await reader.read(ANSWER_SIZE_BYTES_MAX - len(answer)):
            answer += more
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"]:
        raise ValueError(f"the answer is {head[:40]!r}")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise TypeError("the answer is not a JSON object")
    return found
