"""Probes the readiness of parts. Every probe has a deadline; no answer means not ready."""

import asyncio
import json
import os
from pathlib import Path
from typing import assert_never

from anabranch.cli.up.parts import HealthProbe, NatsProbe, RedisProbe
from anabranch.cli.up.plan import Answer
from anabranch.cli.up.ports import LOOPBACK

PROBE_SECONDS_MAX = 0.5
ROOM_SIZE_MIN = 4 * 1024 * 1024
"""A disk with less free space counts as full."""
_WRITE_ERROR = "write error"
_NOT_CURRENT = "is not current"
_OF_STREAMS = ("STREAM", "CONSUMER")
_STARTING = "starting"
"""The reason of a part of a service that waits for the service's other parts."""
REPLY_SIZE_MAX = 64 * 1024


async def ask(probe: NatsProbe | RedisProbe | HealthProbe) -> Answer:
    """The part's answer."""
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            match probe:
                case NatsProbe():
                    return await _ask_nats(probe)
                case RedisProbe():
                    return await _ask_redis(probe.socket)
                case HealthProbe():
                    return await _ask_health(probe)
            assert_never(probe)
    except TimeoutError:
        return Answer(False, "it does not answer in time")
    except FileNotFoundError:
        return Answer(False, "its program loads")  # its port file, or its socket, is missing
    except OSError:
        return Answer(False, "it does not listen yet")
    except ValueError:
        return Answer(False, "its answer cannot be read")


def has_room(folder: Path) -> bool:
    """Whether the disk of a directory takes writes: present, with room, and not read-only."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    read_only = bool(disk.f_flag & os.ST_RDONLY)
    return not read_only and disk.f_bavail * disk.f_frsize >= ROOM_SIZE_MIN


def read_health_reply(reply: bytes) -> tuple[bool, str]:
    """(ready, reason) from the bytes of an HTTP reply to `/readyz`."""
    head, _, body = reply.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        return True, ""
    try:
        parts = json.loads(body)["parts"]
        waiting = {
            name: str(part["reason"] or "not ready")
            for name, part in parts.items()
            if not part["ready"]
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, "does not answer with its health"
    telling = {name: why for name, why in waiting.items() if why != _STARTING}
    return False, "; ".join(f"{name}: {why}" for name, why in (telling or waiting).items())


def read_nats_health(reply: bytes, room: bool) -> Answer:
    """The meaning of a NATS server's reply to `/healthz?details=true`.

    `room`: whether its disk takes writes, without which a restart would not help. A stream that is
    not current, because it is being created or copied from other servers, says nothing about this
    server.
    """
    head, _, body = reply.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        return Answer(True)
    try:
        found = json.loads(body)
        errors = [(str(one["type"]), str(one["error"])) for one in found["errors"]]
    except (ValueError, KeyError, TypeError):
        return Answer(False, "does not answer with its health")
    stuck = [why for _, why in errors if _WRITE_ERROR in why]
    if stuck:
        return Answer(False, stuck[0], serving=True, stuck=room)
    own = [why for kind, why in errors if kind not in _OF_STREAMS or _NOT_CURRENT not in why]
    return Answer(False, own[0], serving=True) if own else Answer(bool(errors))


async def _ask_nats(probe: NatsProbe) -> Answer:
    reader, writer = await asyncio.open_connection(LOOPBACK, probe.port)
    try:
        greeting = await reader.read(5)
    finally:
        writer.close()
    if greeting != b"INFO ":
        return Answer(False, "answers, but not as a NATS server")
    reply = await _get(probe.monitor_port, "/healthz?details=true")
    return read_nats_health(reply, has_room(probe.folder))


async def _ask_redis(socket: Path) -> Answer:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(b"PING\r\n")
        answer = await reader.readline()
    finally:
        writer.close()
    if answer == b"+PONG\r\n":
        return Answer(True)
    return Answer(False, "answers, but not as a Redis server that is ready")


async def _ask_health(probe: HealthProbe) -> Answer:
    text = probe.port_file.read_text()
    if not text.strip().isdigit():
        return Answer(False, "its port file holds no port")
    return Answer(*read_health_reply(await _get(int(text), "/readyz")))


async def _get(port: int, path: str) -> bytes:
    """The bytes of the reply to a request over HTTP."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=REPLY_SIZE_MAX)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        )
        reply = await reader.read(REPLY_SIZE_MAX)
        while more := await reader.read(REPLY_SIZE_MAX - len(reply)):
            reply += more
    finally:
        writer.close()
    return reply
