"""A tiny client of the data protocol over a real socket, for tests: no retries, no cleverness."""

import asyncio
from collections.abc import Sequence

from anabranch.common.errors import ConnectionLost
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    AppendSetup,
    CreateSegment,
    Hello,
    KeepAlive,
    Message,
    ReadSegment,
    SegmentRead,
    SetupAppend,
    Stamp,
    decode_message,
    encode_message,
)
from anabranch.common.wire.packet import Packet, PacketParser

DEADLINE_S = 5.0
WRITER = bytes(range(16))


class WireClient:
    """One connection. `call` sends a request and waits for the reply with its id."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = PacketParser()
        self._packets: list[Packet] = []
        self._request_id = 0

    @classmethod
    async def connect(
        cls, host: str, port: int, *, greet: bool = True, source: str = ""
    ) -> "WireClient":
        """`source`: the address to connect from."""
        local = (source, 0) if source else None
        reader, writer = await asyncio.open_connection(host, port, local_addr=local)
        client = cls(reader, writer)
        hello, _ = await client.receive()
        assert isinstance(hello, Hello)
        if greet:
            client.send(Hello())
        return client

    def send(self, message: Message, payload: bytes = b"") -> int:
        """Send without waiting; returns the request id."""
        self._request_id += 1
        self.send_raw(b"".join(encode_message(message, self._request_id, payload)))
        return self._request_id

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive_packet(self) -> Packet | None:
        """The next packet, None at the end of the connection."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._packets:
                data = await self._reader.read(1 << 20)
                if not data:
                    return None
                self._packets = list(self._parser.feed(data))
        return self._packets.pop(0)

    async def receive(self) -> tuple[Message, bytes]:
        """The next message that is not a keep-alive, and its payload."""
        while True:
            packet = await self.receive_packet()
            if packet is None:
                raise ConnectionLost("the connection was closed")
            message = decode_message(packet)
            if not isinstance(message, KeepAlive):
                return message, packet.payload

    async def call(self, message: Message, payload: bytes = b"") -> Message:
        self.send(message, payload)
        reply, _ = await self.receive()
        return reply

    async def create(self, segment: str, revision: int = 1) -> Message:
        return await self.call(CreateSegment(segment=segment, stamp=Stamp(1, revision)))

    async def setup(
        self, segment: str, *, session: int = 1, writer_id: bytes = WRITER
    ) -> AppendSetup:
        reply = await self.call(SetupAppend(segment=segment, writer_id=writer_id, session=session))
        assert isinstance(reply, AppendSetup), reply
        return reply

    def append(
        self,
        first: int,
        events: Sequence[bytes],
        *,
        session: int = 1,
        writer_id: bytes = WRITER,
        zstd_level: int | None = None,
    ) -> bytes:
        """Send a block; returns its bytes."""
        block = encode_block(
            events, writer_id=writer_id, first_event_number=first, base_timestamp_ms=0,
            zstd_level=zstd_level,
        )  # fmt: skip
        self.send(Append(session=session, first_event_number=first, count=len(events)), block)
        return block

    async def read(
        self, segment: str, offset: int, *, size: int = 1 << 20, wait_ms: int = 0
    ) -> tuple[SegmentRead, bytes]:
        self.send(ReadSegment(segment=segment, offset=offset, size_max=size, wait_ms=wait_ms))
        reply, data = await self.receive()
        assert isinstance(reply, SegmentRead), reply
        return reply, data

    async def read_all(self, segment: str) -> bytes:
        data = b""
        while True:
            reply, more = await self.read(segment, len(data))
            data += more
            if reply.at_tail or reply.end_of_segment:
                return data

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
