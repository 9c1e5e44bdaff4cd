"""A connection that reconnects, against a server that accepts attempts and then talks nonsense."""

import asyncio

from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.nats_target import nats_target

SECONDS_MAX = 10
FAILED_ATTEMPTS = 2
INFO = b'INFO {"server_id": "fake", "max_payload": 1048576}\r\n'


class Fickle:
    """Serves the first connection until `hang_up`, fails the next ones, then serves again.

    A failed attempt stays open at this end until the client closes its own: that is what `let_go`
    counts.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self.hang_up = asyncio.Event()
        self.back = asyncio.Event()
        self.let_go = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            if 1 < self.accepted <= 1 + FAILED_ATTEMPTS:
                writer.write(b"the server is starting\r\n")
                await reader.read()
                self.let_go.release()
            else:
                await self._greet(reader, writer)
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = self.accepted == 1
        writer.write(INFO)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        if first:
            await self.hang_up.wait()
            return
        self.back.set()
        await reader.read()


async def test_every_attempt_to_reconnect_that_fails_is_closed_before_the_next_one() -> None:
    fickle = Fickle()
    server = await asyncio.start_server(fickle.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = await connect_nats(nats_target(f"nats://{host}:{port}"), "test")
    try:
        async with asyncio.timeout(SECONDS_MAX):
            fickle.hang_up.set()
            await fickle.back.wait()
            for _ in range(FAILED_ATTEMPTS):
                await fickle.let_go.acquire()
    finally:
        await close_nats(client)
        server.close()
    assert fickle.accepted == FAILED_ATTEMPTS + 2
