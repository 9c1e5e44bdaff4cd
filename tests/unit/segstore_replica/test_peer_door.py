"""The door for other stores does not trust what they send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from anabranch.common.errors import BadPacket, ConnectionLost, Unauthorized, UnsupportedProtocol
from anabranch.common.model.cluster import Endpoint
from anabranch.common.model.joining import peer_proof
from anabranch.common.wire.message import Hello, KeepAlive, Message
from anabranch.common.wire.messages import encode_message
from anabranch.common.wire.packet import PacketParser, encode_packet
from anabranch.common.wire.replies import Failed
from anabranch.segstore.domain.log.replica.wire import (
    CopyAppend,
    LinkClosed,
    PeerHello,
    Promise,
    Promised,
    Rewind,
    Welcome,
    decode_peer,
    encode_peer,
)
from kit.fake_copies import FakeCopies
from kit.peer_stores import FOLLOWER, TOKEN, door_to

PROMISE = Promise(link=1, container=5, log_id="a-log", container_epoch=4)


class Caller:
    """A program that speaks to the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = PacketParser()
        self._messages: list[Message] = []

    def send(self, message: Message, request_id: int = 0, payload: bytes = b"") -> None:
        self.send_raw(b"".join(encode_peer(message, request_id, payload)))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> Message | None:
        """The next message but keep-alives; None at the end, also if it is a reset: the door had
        not read everything that this caller sent.
        """
        async with asyncio.timeout(5):
            while True:
                while self._messages:
                    message = self._messages.pop(0)
                    if not isinstance(message, KeepAlive):
                        return message
                data = b""
                with suppress(ConnectionResetError):
                    data = await self._reader.read(1 << 16)
                if not data:
                    return None
                self._messages = [decode_peer(packet) for packet in self._parser.feed(data)]

    async def greet(self, node_id: str = "store-1", token: str = TOKEN) -> Message | None:
        hello = await self.receive()
        assert isinstance(hello, PeerHello)
        proof = peer_proof(token, hello.challenge, node_id, hello.node_id)
        self.send(PeerHello(node_id=node_id, challenge="mine", proof=proof))
        return await self.receive()


@asynccontextmanager
async def called(endpoint: Endpoint) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


async def refused(caller: Caller) -> str:
    """The code with which the door closed the connection."""
    failure = await caller.receive()
    assert isinstance(failure, Failed), failure
    assert await caller.receive() is None
    return failure.code


async def test_the_door_proves_that_it_has_the_join_token() -> None:
    async with door_to(FakeCopies()) as endpoint, called(endpoint) as caller:
        welcome = await caller.greet()
        assert welcome == Welcome(proof=peer_proof(TOKEN, "mine", FOLLOWER, "store-1"))


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" * 9, BadPacket.code),
        (b"".join(encode_packet(99, 0, b"\x80")), BadPacket.code),
        (b"".join(encode_packet(1, 0, b"junk")), BadPacket.code),
        (b"".join(encode_message(Hello(), 0)), BadPacket.code),
        (b"".join(encode_peer(PROMISE, 1)), BadPacket.code),
        (b"".join(encode_peer(PeerHello(node_id="x", challenge="y"))), Unauthorized.code),
        (
            b"".join(encode_peer(PeerHello(node_id="x", challenge="y", low=7, high=8))),
            UnsupportedProtocol.code,
        ),
        (encode_packet(1, 0, bytes(60_000), bytes(1 << 20))[0][:40], BadPacket.code),
        (b"", BadPacket.code),
    ],
)
async def test_a_program_that_is_no_store_of_the_cluster_is_told_why(
    first: bytes, code: str
) -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, called(endpoint) as caller:
        assert isinstance(await caller.receive(), PeerHello)
        caller.send_raw(first)
        assert await refused(caller) == code
    assert copies.calls == []


@pytest.mark.parametrize(
    "packet",
    [
        encode_peer(PROMISE, 2),
        encode_peer(Rewind(link=1, to=b"short"), 2),
        encode_peer(Promised(copy_id=""), 2),
        encode_packet(99, 0, b"\x80"),
        [b"\xff" * 40],
    ],
)
async def test_a_bad_packet_closes_the_connection_and_loses_its_links(
    packet: list[bytes],
) -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, called(endpoint) as caller:
        await caller.greet()
        caller.send(PROMISE, 1)
        assert isinstance(await caller.receive(), Promised)
        caller.send_raw(b"".join(packet))
        assert await refused(caller) == BadPacket.code
        await copies.until("lost", 5)


async def test_requests_on_unknown_links_are_answered_and_messages_dropped() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, called(endpoint) as caller:
        await caller.greet()
        caller.send(CopyAppend(link=7), 0, b"a message")
        caller.send(LinkClosed(link=7))
        caller.send(Rewind(link=7, to=bytes(28)), 3)
        reply = await caller.receive()
        assert isinstance(reply, Failed)
        assert reply.code == "unavailable"
        assert copies.calls == []


async def test_a_link_performs_one_request_at_a_time() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, called(endpoint) as caller:
        await caller.greet()
        copies.gate.clear()
        caller.send(PROMISE, 1)
        caller.send(Rewind(link=1, to=bytes(28)), 2)
        reply = await caller.receive()
        assert isinstance(reply, Failed)
        assert reply.code == "busy"
        copies.gate.set()
        assert isinstance(await caller.receive(), Promised)


async def test_a_connection_that_ends_in_the_middle_of_a_packet_loses_its_links() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint:
        async with called(endpoint) as caller:
            await caller.greet()
            caller.send(PROMISE, 1)
            await caller.receive()
            caller.send_raw(b"".join(encode_peer(CopyAppend(link=1), 0, bytes(100)))[:50])
        await copies.until("lost", 5)
    assert [call[0] for call in copies.calls] == ["promise", "lost"]


async def test_a_silent_leader_is_disconnected() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, called(endpoint) as caller:
        await caller.greet()
        assert await refused(caller) == ConnectionLost.code
