"""One connection to a segment store: matching replies, deadlines, and what ends it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client.settings import ConnectionSettings
from anabranch.common.adapters.store_connection import SegmentStoreConnection, open_connection
from anabranch.common.errors import ConnectionLost, SegmentNotFound, UnsupportedProtocol
from anabranch.common.model.cluster import Endpoint
from anabranch.common.wire.messages import (
    GetSegmentInfo,
    Hello,
    Message,
    SegmentInfo,
    SegmentRead,
    encode_message,
)
from anabranch.common.wire.packet import PROTOCOL_VERSION
from kit.client_bench import STREAM, bench, until
from kit.fake_segstore import Direction, FakeSegmentStore, Fault, no_faults

SEGMENT = "a/b/0.#epoch.0"
INFO = GetSegmentInfo(segment=SEGMENT)
SETTINGS = ConnectionSettings(connect_timeout_s=1.0, request_timeout_s=1.0, keep_alive_s=0.02)


def hold_info(direction: Direction, message: Message) -> Fault | None:
    return Fault.HOLD if isinstance(message, SegmentInfo) else None


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[SegmentStoreConnection, FakeSegmentStore]]:
    async with FakeSegmentStore(SEGMENT) as store:
        connection = await open_connection(Endpoint("127.0.0.1", store.port), SETTINGS)
        yield connection, store
        connection.close()
        await connection.ended


async def greeted_by(greeting: bytes) -> SegmentStoreConnection:
    """Connect to a server that says just this, and nothing more."""

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(greeting)
            self.transport = transport

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        settings = ConnectionSettings(connect_timeout_s=0.05)
        return await open_connection(Endpoint("127.0.0.1", port), settings)
    finally:
        server.close()


async def test_an_answered_error_is_raised_and_the_connection_lives_on() -> None:
    async with connected() as (connection, _):
        with pytest.raises(SegmentNotFound):
            await connection.request(GetSegmentInfo(segment="no/such/0.#epoch.0"), SegmentInfo)
        reply, _ = await connection.request(INFO, SegmentInfo)
        assert reply.segment == SEGMENT


async def test_a_late_reply_to_a_cancelled_request_is_dropped() -> None:
    async with connected() as (connection, store):
        store.fault = hold_info
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await connection.request(INFO, SegmentInfo)
        store.fault = no_faults
        store.release()
        reply, _ = await connection.request(INFO, SegmentInfo)
        assert reply.segment == SEGMENT


async def test_a_server_silent_for_a_whole_deadline_loses_the_connection() -> None:
    async with connected() as (connection, store):
        store.fault = hold_info
        with pytest.raises(ConnectionLost):
            await connection.request(INFO, SegmentInfo, timeout_s=0.02)
        assert connection.closed


async def test_a_lost_connection_ends_every_request_under_way() -> None:
    async with connected() as (connection, store):
        store.fault = hold_info
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(_outcome(connection)) for _ in range(3)]
            await until(lambda: sum(isinstance(m, GetSegmentInfo) for m in store.requests) == 3)
            next(iter(store.connections)).drop()
        assert [type(task.result()) for task in waiting] == [ConnectionLost] * 3
        with pytest.raises(ConnectionLost):
            await connection.request(INFO, SegmentInfo)


async def _outcome(connection: SegmentStoreConnection) -> Exception | None:
    try:
        await connection.request(INFO, SegmentInfo)
    except ConnectionLost as error:
        return error
    return None


async def test_a_reply_of_the_wrong_kind_closes_the_connection() -> None:
    async with connected() as (connection, _):
        with pytest.raises(ConnectionLost):
            await connection.request(INFO, SegmentRead)
        assert connection.closed


async def test_a_silent_connection_is_kept_alive() -> None:
    async with connected() as (connection, store):
        await until(lambda: store.keep_alive_count > 1)
        await connection.request(INFO, SegmentInfo)


async def test_a_connection_opens_with_the_token_of_its_client() -> None:
    async with FakeSegmentStore(SEGMENT) as store:
        settings = ConnectionSettings(token="secret")
        connection = await open_connection(Endpoint("127.0.0.1", store.port), settings)
        await connection.request(INFO, SegmentInfo)
        connection.close()
        await connection.ended
    assert store.tokens == ["secret"]
    assert "secret" not in repr(settings)


async def test_a_server_of_another_protocol_is_refused_by_name() -> None:
    newer = Hello(high=PROTOCOL_VERSION + 9, low=PROTOCOL_VERSION + 9)
    with pytest.raises(UnsupportedProtocol):
        await greeted_by(b"".join(encode_message(newer, 0)))


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_what_is_no_segment_store_is_not_waited_for(greeting: bytes) -> None:
    with pytest.raises(ConnectionLost):
        await greeted_by(greeting)


async def test_an_error_inside_a_client_arrives_as_it_was_raised() -> None:
    async def fail() -> None:
        async with bench() as b, b.client.writer(STREAM):
            raise LookupError("mine")

    with pytest.raises(LookupError):
        await fail()


class EndingTransport(asyncio.Transport):
    """asyncio's of Python 3.12: a write fails between the loss of the socket and its report."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing

    def writelines(self, list_of_data: object) -> None:
        if self.closing:
            raise TypeError("'NoneType' object is not callable")


async def test_what_is_sent_before_the_loss_of_the_socket_is_reported_is_lost_with_it() -> None:
    connection = SegmentStoreConnection(Endpoint("127.0.0.1", 1), SETTINGS)
    transport = EndingTransport()
    connection.connection_made(transport)
    transport.closing = True

    connection.send_and_forget(INFO)

    connection.connection_lost(None)
    with pytest.raises(ConnectionLost):
        connection.send_and_forget(INFO)
