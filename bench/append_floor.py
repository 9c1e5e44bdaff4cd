"""The least that two programs on uvloop pay for an awaited append: a packet, a synced write, an
answer. `bench.append_costs` shows it beside what the client and the store pay.

    python -m bench.append_floor FILE PORT_FILE     the server; it writes to FILE
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import uvloop

from anabranch.cli.up.ports import LOOPBACK
from bench.systems.process import server

REQUEST_SIZE_BYTES = 1_183
ANSWER_SIZE_BYTES = 83
"""The sizes of the packets of W3."""
FILE_SIZE_BYTES = 64 * 1024 * 1024


class _Server(asyncio.Protocol):
    """Writes each request behind the last one, synced, and answers it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._offset = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        os.pwritev(self._fd, [data], self._offset, os.RWF_DSYNC)
        self._offset = (self._offset + len(data)) % (FILE_SIZE_BYTES - REQUEST_SIZE_BYTES)
        self._transport.write(bytes(ANSWER_SIZE_BYTES))


class _Client(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._answered = self._loop.create_future()

    def data_received(self, _: bytes) -> None:
        self._answered.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(ConnectionResetError("the server ended"))

    async def append(self) -> None:
        self._answered = self._loop.create_future()
        self._transport.write(bytes(REQUEST_SIZE_BYTES))
        await self._answered


@asynccontextmanager
async def bare_appends(directory: Path) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], int]]:
    """A call that appends one event to a server that does nothing else, and the server's process
    id."""
    port_file = directory / "port"
    command = (sys.executable, "-m", "bench.append_floor", str(directory / "file"), str(port_file))

    async def is_ready() -> bool:
        return port_file.exists()

    async with server(command, directory / "log", is_ready) as process_id:
        port = int(await asyncio.to_thread(port_file.read_text))
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(_Client, LOOPBACK, port)
        try:
            yield client.append, process_id
        finally:
            transport.abort()


async def _serve(file: Path, port_file: Path) -> None:
    fd = os.open(file, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(FILE_SIZE_BYTES), 0)
    os.fsync(fd)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Server(fd), LOOPBACK, 0, family=socket.AF_INET)
    part = port_file.with_suffix(".part")
    part.write_text(str(listening.sockets[0].getsockname()[1]))
    part.rename(port_file)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
