"""The end of a server of streams closes its connections."""

import asyncio

from kit.served_streams import LOOPBACK, served_streams


async def test_a_handler_that_still_reads_keeps_no_socket_open() -> None:
    served: list[asyncio.StreamWriter] = []

    async def reads_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        writer.write(b"hello")
        await reader.read()
        await asyncio.Event().wait()

    async with served_streams(reads_on) as port:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        assert await reader.readexactly(5) == b"hello"
        writer.close()

    (server_side,) = served
    assert server_side.get_extra_info("socket").fileno() == -1
