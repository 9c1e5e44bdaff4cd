"""The answer of Redis or Valkey to INFO, without a library: it needs two commands."""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.sources.causes import cause_of
from anabranch.common.errors import InvalidSetting, Unavailable

ANSWER_S_MAX = 3.0
ANSWER_BYTES_MAX = 256 * 1024
PORT = 6379
_DENIED = (b"-NOPERM", b"-NOAUTH", b"-WRONGPASS", b"-ERR unknown command")


async def redis_info(url: str) -> Mapping[str, str]:
    """The fields of INFO. Raises CannotLook if the server denies it, Unavailable, InvalidSetting.

    `url`: redis://user:password@host:6379, rediss:// or unix:///path.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise InvalidSetting(
            "not the address of a Redis server",
            remedy="write it as redis://host:6379 or unix:///path/redis.sock",
            scheme=parts.scheme,
        )
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await _info(parts)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
        raise Unavailable(
            "Redis does not answer",
            remedy="start it: controllers share buckets less evenly, and watermarks pause",
            cause=cause_of(error),
        ) from error


async def _info(parts: SplitResult) -> Mapping[str, str]:
    if parts.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(unquote(parts.path))
    else:
        context = ssl.create_default_context() if parts.scheme == "rediss" else None
        host, port = parts.hostname or "", parts.port or PORT
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        if parts.password is not None:
            user = [unquote(parts.username)] if parts.username else []
            writer.write(_command("AUTH", *user, unquote(parts.password)))
            await _answer(reader)
        writer.write(_command("INFO"))
        return fields_of(await _answer(reader))
    finally:
        writer.close()


def _command(*words: str) -> bytes:
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded
    )


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """The server's answer. Raises CannotLook if it refuses, ValueError if it is no Redis."""
    line = (await reader.readline()).rstrip()
    if line.startswith(_DENIED):
        raise CannotLook(
            f"Redis denies INFO: {line[1:].decode(errors='replace')}",
            "that is right for clients; ask it with an administrator's user",
        )
    if line.startswith(b"$") and line[1:].isdigit() and int(line[1:]) <= ANSWER_BYTES_MAX:
        return (await reader.readexactly(int(line[1:]) + 2))[:-2]
    if line.startswith(b"+"):
        return line[1:]
    raise ValueError("the answer is not one of Redis")


def fields_of(text: bytes) -> Mapping[str, str]:
    """The lines ``name:value`` of INFO."""
    found = {}
    for line in text.decode(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon and not name.startswith("#"):
            found[name] = value
    return found
