"""A server of streams on the loopback address, for tests of what connects to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served_streams(handler: Handler) -> AsyncIterator[int]:
    """Serve every connection with `handler` during the block; the port.

    At the end it closes all connections, whatever their handlers still wait for. If the end of an
    event loop cancels a handler, CPython 3.11 leaves its socket open, and a later test fails when
    the garbage collector finds it.
    """
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await handler(reader, writer)

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()
