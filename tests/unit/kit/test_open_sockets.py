"""Sockets that outlive their event loop are told."""

import asyncio
import gc
import socket

import pytest

from kit.open_sockets import OpenSockets


def test_a_socket_that_outlives_its_loop_is_told_once_with_its_place() -> None:
    sockets = OpenSockets()
    ours, theirs = socket.socketpair()
    loop = asyncio.new_event_loop()
    with theirs, sockets.watching():
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
        assert sockets.left_over() == []
        loop.close()
        (told,) = sockets.left_over()
        assert __file__ in told
        assert sockets.left_over() == []
    del transport
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        gc.collect()


def test_a_closed_socket_is_not_told() -> None:
    sockets = OpenSockets()
    ours, theirs = socket.socketpair()

    async def connect() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=ours
        )
        transport.close()

    with theirs, sockets.watching():
        asyncio.run(connect())
        assert sockets.left_over() == []
