"""Listening on an address, with named errors."""

import asyncio
import errno
from collections.abc import Callable

from anabranch.common.errors import InvalidSetting, PortInUse
from anabranch.common.model.cluster import Endpoint


async def listen(
    new_connection: Callable[[], asyncio.BaseProtocol], host: str, port: int
) -> tuple[asyncio.Server, Endpoint]:
    """Listen on the address; port 0 takes any free one. Returns the address that was bound.

    Raises PortInUse, InvalidSetting.
    """
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(new_connection, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse("the port is taken", host=host, port=port) from error
        raise InvalidSetting(
            "cannot listen on the address", host=host, port=port, cause=str(error)
        ) from error
    return server, Endpoint(host, server.sockets[0].getsockname()[1])
