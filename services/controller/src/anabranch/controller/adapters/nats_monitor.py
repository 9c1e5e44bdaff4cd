"""Reads JetStream's configuration from the NATS server's monitoring port.

It sends one plain HTTP request over the loopback address or a closed network, without a library.
"""

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from anabranch.common.errors import MetadataNotSynced
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.durability import MONITOR_SETTING, SYNC_SETTING

ANSWER_DEADLINE_S = 2.0
ASK_BUDGET_S = 10.0
PAUSE_S = 0.2
ANSWER_SIZE_BYTES_MAX = 1024 * 1024
PORT = 8222


async def jetstream_status(
    url: str, clock: Clock, *, budget_s: float = ASK_BUDGET_S
) -> Mapping[str, object]:
    """JetStream's state and configuration, from the server. Raises MetadataNotSynced.

    The request is repeated until `budget_s` is used up, because the server may still be starting.
    """
    deadline = clock.monotonic() + budget_s
    while True:
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                return await _ask(url)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            if clock.monotonic() >= deadline:
                raise MetadataNotSynced(
                    "the NATS monitoring port does not answer, so the durability of the metadata "
                    "is unknown",
                    remedy=f"give the server `http: …` and the controller {MONITOR_SETTING}, or "
                    f"set {SYNC_SETTING}=unchecked",
                    url=url,
                    cause=repr(error),
                ) from error
        await clock.sleep(PAUSE_S)


async def _ask(url: str) -> Mapping[str, object]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORT
    reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_SIZE_BYTES_MAX)
    try:
        path = f"{parts.path.rstrip('/')}/jsz?config=1"
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
