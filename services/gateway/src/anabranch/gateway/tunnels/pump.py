"""Both directions of one tunnel.

    client ──receive()──► write, drain ──► segment store
    client ◄──send()───── read a piece ◄── segment store

Each direction holds at most one message or piece, and the buffers of the two sockets. It takes the
next one when the other side has taken the last, so a slow side stops the other. The bytes are not
looked at. The end of one direction ends the tunnel: a half of a connection is of no use.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from anabranch.common.contracts.tunnel import PIECE_SIZE_BYTES_MAX

STALLED_S = 60.0
"""A side that takes nothing for so long ends the tunnel. It may be a machine that has vanished."""


class Ended(Enum):
    """Which side ended a tunnel."""

    CLIENT = "client"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class ClientSide:
    """`receive` returns the next bytes, None at the end. Both raise OSError if the client left."""

    receive: Callable[[], Awaitable[bytes | None]]
    send: Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class Tunnelled:
    """How many tunnels there are, requests for one that are being answered included, and the bytes
    that tunnels have tunnelled."""

    open: int = 0
    to_stores: int = 0
    from_stores: int = 0


async def pump(
    client: ClientSide,
    store: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    tunnelled: Tunnelled,
) -> Ended:
    """Carry bytes until one side ends or stalls → the side."""
    reader, writer = store
    async with asyncio.TaskGroup() as group:
        directions = (
            group.create_task(_to_store(client, writer, tunnelled)),
            group.create_task(_from_store(client, reader, tunnelled)),
        )
        done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
    return next(direction for direction in directions if direction in done).result()


async def _to_store(
    client: ClientSide, writer: asyncio.StreamWriter, tunnelled: Tunnelled
) -> Ended:
    while True:
        try:
            data = await client.receive()
        except OSError:
            return Ended.CLIENT
        if data is None:
            return Ended.CLIENT
        tunnelled.to_stores += len(data)
        try:
            writer.write(data)
            async with asyncio.timeout(STALLED_S):
                await writer.drain()
        except OSError:
            return Ended.STORE


async def _from_store(
    client: ClientSide, reader: asyncio.StreamReader, tunnelled: Tunnelled
) -> Ended:
    while True:
        try:
            data = await reader.read(PIECE_SIZE_BYTES_MAX)
        except OSError:
            return Ended.STORE
        if not data:
            return Ended.STORE
        tunnelled.from_stores += len(data)
        try:
            async with asyncio.timeout(STALLED_S):
                await client.send(data)
        except OSError:
            return Ended.CLIENT
