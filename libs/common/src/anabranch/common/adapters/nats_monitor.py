"""Asks the monitoring ports of NATS servers.

It sends one plain HTTP request over the loopback address or a closed network, without a library.
Only these ports tell whether a server syncs every write.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from anabranch.common.errors import Unavailable
from anabranch.common.model.nats_server import MonitoredServer, monitored_server
from anabranch.common.workflow.bounded import for_each

ANSWER_DEADLINE_S = 2.0
ANSWER_SIZE_BYTES_MAX = 1024 * 1024
ASKED_AT_ONCE_MAX = 8
PORT = 8222


async def ask_servers(urls: Sequence[str]) -> Sequence[MonitoredServer]:
    """The servers whose monitoring ports at `urls` answer, in that order.

    All are asked at once, because one that is away takes the whole deadline.
    """
    found: dict[str, MonitoredServer] = {}

    async def ask(url: str) -> None:
        with suppress(Unavailable):
            server = monitored_server(await ask_monitor(url, "varz"))
            if server is not None:
                found[url] = server

    await for_each(dict.fromkeys(urls), ASKED_AT_ONCE_MAX, ask)
    return [found[url] for url in urls if url in found]


async def jetstream_server_count(urls: Sequence[str]) -> int | None:
    """The number of servers in the JetStream cluster of the first server that answers.

    It includes servers that are away. 1: the server is not clustered. None: no server answers.
    """
    for url in urls:
        with suppress(Unavailable):
            match await ask_monitor(url, "jsz"):
                case {"meta_cluster": {"cluster_size": int(count)}}:
                    return count
                case {"server_id": str()}:
                    return 1
    return None


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
