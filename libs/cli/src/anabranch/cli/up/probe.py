"""Asking a part whether it is ready. Every question has a deadline; no answer means not ready."""

import asyncio
import json
from pathlib import Path
from typing import assert_never

from anabranch.cli.up.parts import HealthProbe, NatsProbe, RedisProbe
from anabranch.cli.up.ports import LOOPBACK

PROBE_SECONDS_MAX = 0.5
REPLY_SIZE_MAX = 64 * 1024


async def ask(probe: NatsProbe | RedisProbe | HealthProbe) -> tuple[bool, str]:
    """(ready, why not)."""
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            match probe:
                case NatsProbe():
                    return await _ask_nats(probe.port)
                case RedisProbe():
                    return await _ask_redis(probe.socket)
                case HealthProbe():
                    return await _ask_health(probe)
            assert_never(probe)
    except TimeoutError:
        return False, "does not answer in time"
    except OSError:
        return False, ""  # nobody listens yet


def read_health_reply(reply: bytes) -> tuple[bool, str]:
    """(ready, why not) from the bytes of an HTTP reply to `/readyz`."""
    head, _, body = reply.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        return True, ""
    try:
        parts = json.loads(body)["parts"]
        waiting = [
            f"{name}: {part['reason'] or 'not ready'}"
            for name, part in parts.items()
            if not part["ready"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, "answers with something else than its health"
    return False, "; ".join(waiting)


async def _ask_nats(port: int) -> tuple[bool, str]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        greeting = await reader.read(5)
    finally:
        writer.close()
    return greeting == b"INFO ", "answers, but not as a NATS server"


async def _ask_redis(socket: Path) -> tuple[bool, str]:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(b"PING\r\n")
        answer = await reader.readline()
    finally:
        writer.close()
    return answer == b"+PONG\r\n", "answers, but not as a Redis server that is ready"


async def _ask_health(probe: HealthProbe) -> tuple[bool, str]:
    text = probe.port_file.read_text()
    if not text.strip().isdigit():
        return False, "its port file holds no port"
    reader, writer = await asyncio.open_connection(LOOPBACK, int(text), limit=REPLY_SIZE_MAX)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        reply = await reader.read(REPLY_SIZE_MAX)
        while more := await reader.read(REPLY_SIZE_MAX - len(reply)):
            reply += more
    finally:
        writer.close()
    return read_health_reply(reply)
