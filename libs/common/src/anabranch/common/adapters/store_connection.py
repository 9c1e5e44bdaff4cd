"""One connection to a segment store, shared by all its users in the process.

Clients and stores open it by TCP. A client of a gateway passes another `Dial` to `open_connection`,
which sends the same bytes through the gateway.

Request ids match replies to requests, so any number of requests may be open; the connection drops a
reply whose caller has gone. Replies to appends are cumulative and belong to an append session, so
all appends of a session carry one id, `_SESSION_BIT | session`, and its listener gets all replies.

After an unreadable packet nothing on the connection can be trusted, so the connection closes. It
also closes after a silence as long as a request's deadline. A closed connection stays closed; the
pool opens a new one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    ConnectionLost,
    Overloaded,
    UnsupportedProtocol,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.wire.messages import (
    Append,
    Failed,
    Hello,
    KeepAlive,
    Message,
    decode_message,
    encode_message,
    error_of,
)
from anabranch.common.wire.packet import PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST, PacketParser

REQUESTS_OPEN_MAX = 65_536
_SESSION_BIT = 1 << 63

M = TypeVar("M", bound=Message)
Reply = tuple[Message, bytes]


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Deadlines on the way to a segment store, in seconds."""

    connect_timeout_s: float = 5.0
    request_timeout_s: float = 20.0
    keep_alive_s: float = 15.0
    token: str = field(default="", repr=False)
    """The token in the `Hello`, which identifies the caller."""


class SessionListener(Protocol):
    """The holder of an append session. Called from the event loop; must not wait."""

    def session_replied(self, reply: Message) -> None: ...

    def session_lost(self, error: AnabranchError) -> None: ...


class SegmentStoreConnection(asyncio.Protocol):
    """A connection to one endpoint; `open_connection` creates it."""

    def __init__(self, endpoint: Endpoint, settings: ConnectionSettings) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = PacketParser()
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._sessions: dict[int, SessionListener] = {}
        self._last_request_id = 0
        self._last_session = 0
        self._packets_received = 0
        self._packets_sent = 0
        self._keep_alive: asyncio.TimerHandle | None = None
        self._failure: AnabranchError | None = None
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def closed(self) -> bool:
        return self._failure is not None

    # --- requests -------------------------------------------------------------------------

    async def request(
        self,
        message: Message,
        expected: type[M],
        *,
        timeout_s: float | None = None,
        payload: bytes = b"",
    ) -> tuple[M, bytes]:
        """Send `message`, with its payload if it has one → (reply, the reply's payload).

        Raises the error that the store answered; ConnectionLost if the connection broke or no
        reply came in time (the store may then have performed the request); Overloaded if too
        many requests are open.
        """
        received_before = self._packets_received
        replied = self.begin_request(message, payload)
        try:
            async with asyncio.timeout(timeout_s or self._settings.request_timeout_s):
                reply, data = await replied
        except TimeoutError:
            raise self._request_timed_out(message, received_before) from None
        if isinstance(reply, Failed):
            raise error_of(reply)
        if not isinstance(reply, expected):
            raise self.abort(BadPacket("a reply's kind does not match its request"))
        return reply, data

    def begin_request(self, message: Message, payload: bytes = b"") -> "asyncio.Future[Reply]":
        """Send `message` without waiting. The future gets the reply, which may be a `Failed`, or
        ConnectionLost; the caller bounds its wait, and cancels the future to drop the reply.

        Raises ConnectionLost, Overloaded.
        """
        if len(self._pending) >= REQUESTS_OPEN_MAX:
            raise Overloaded(
                "too many requests are pending on a connection", store=str(self.endpoint)
            )
        self._last_request_id += 1
        request_id = self._last_request_id
        self._send(message, request_id, payload)
        replied: asyncio.Future[Reply] = self._loop.create_future()
        self._pending[request_id] = replied
        replied.add_done_callback(lambda _: self._pending.pop(request_id, None))
        return replied

    def _request_timed_out(self, message: Message, received_before: int) -> AnabranchError:
        error = ConnectionLost(
            "the segment store did not answer in time",
            store=str(self.endpoint),
            request=type(message).__name__,
        )
        return self.abort(error) if self._packets_received == received_before else error

    def send_and_forget(self, message: Message) -> None:
        """Send a request and drop its answer. Raises ConnectionLost."""
        self._last_request_id += 1
        self._send(message, self._last_request_id)

    # --- append sessions ------------------------------------------------------------------

    def open_session(self, listener: SessionListener) -> int:
        """Return a new session number; a `SetupAppend` request must set the session up."""
        self._last_session += 1
        self._sessions[self._last_session] = listener
        return self._last_session

    def end_session(self, session: int) -> None:
        """Forget the session; later answers to it are dropped. Repeatable."""
        self._sessions.pop(session, None)

    def send_append(self, append: Append, payload: bytes) -> None:
        """Send one append; its outcome reaches the session's listener. Never waits."""
        self._send(append, _SESSION_BIT | append.session, payload)

    def _send(self, message: Message, request_id: int, payload: bytes = b"") -> None:
        if self._failure is not None or self._transport is None:
            raise self._failure or ConnectionLost("the connection is not open")
        self._packets_sent += 1
        # Until `connection_lost`, asyncio's transport drops bytes, or fails (Python 3.12, 3.13).
        if not self._transport.is_closing():
            self._transport.writelines(encode_message(message, request_id, payload))

    # --- transport callbacks --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send(Hello(token=self._settings.token), 0)
        self._schedule_keep_alive(0)

    def data_received(self, data: bytes) -> None:
        try:
            for packet in self._parser.feed(data):
                self._packets_received += 1
                self._dispatch(packet.request_id, decode_message(packet), packet.payload)
        except BadPacket as error:
            self.abort(error)

    def _dispatch(self, request_id: int, message: Message, payload: bytes) -> None:
        if isinstance(message, Hello):
            self._greet(message)
        elif request_id & _SESSION_BIT:
            listener = self._sessions.get(request_id ^ _SESSION_BIT)
            if listener is not None:
                listener.session_replied(message)
        elif request_id == 0 and isinstance(message, Failed):
            self.abort(error_of(message))
        else:
            replied = self._pending.get(request_id)
            if replied is not None and not replied.done():
                replied.set_result((message, payload))

    def _greet(self, hello: Hello) -> None:
        if not self.greeted.done():
            if hello.low <= PROTOCOL_VERSION and hello.high >= PROTOCOL_VERSION_OLDEST:
                self.greeted.set_result(None)
                return
            self.greeted.set_exception(
                UnsupportedProtocol(
                    "client and segment store have no protocol version in common",
                    store=str(self.endpoint), theirs=hello.high, ours=PROTOCOL_VERSION,
                )
            )  # fmt: skip

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLost("the segment store closed the connection", reason=str(exc or "")))
        if not self.ended.done():
            self.ended.set_result(None)

    # --- ending ---------------------------------------------------------------------------

    def abort(self, error: AnabranchError) -> AnabranchError:
        """Close at once because of `error`; return the error that all waiting callers get."""
        told = error if isinstance(error, ConnectionLost) else _lost_because(error)
        self._fail(told)
        if self._transport is not None:
            self._transport.abort()
        return told

    def close(self) -> None:
        """Close on purpose. Repeatable. `ended` completes when the socket is gone.

        Unsent bytes are dropped, so a server that stopped reading cannot delay the end.
        """
        self._fail(ConnectionLost("the connection was closed on this side"))
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: AnabranchError) -> None:
        if self._failure is not None:
            return
        error.fields = {**error.fields, "store": str(self.endpoint)}
        self._failure = error
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if not self.greeted.done():
            self.greeted.set_exception(error)
            self.greeted.exception()  # The opener may have gone.
        for replied in self._pending.values():
            if not replied.done():
                replied.set_exception(error)
        for listener in list(self._sessions.values()):
            listener.session_lost(error)
        self._sessions.clear()

    def _schedule_keep_alive(self, sent_before: int) -> None:
        def when_due() -> None:
            if self._packets_sent == sent_before:
                self._send(KeepAlive(), 0)
            self._schedule_keep_alive(self._packets_sent)

        self._keep_alive = self._loop.call_later(self._settings.keep_alive_s, when_due)


def _lost_because(error: AnabranchError) -> ConnectionLost:
    return ConnectionLost(f"the connection was given up: {error.message}", cause=error.code)


Dial = Callable[[SegmentStoreConnection], Awaitable[None]]
"""Opens a transport to the connection's endpoint and attaches the connection to it.

It runs under the connect deadline. It raises OSError or an AnabranchError, and then, or when it is
cancelled, leaves no transport open.
"""


async def dial_tcp(connection: SegmentStoreConnection) -> None:
    """The `Dial` of a process that reaches the store itself. Raises OSError."""
    endpoint = connection.endpoint
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: connection, endpoint.host, endpoint.port)


async def open_connection(
    endpoint: Endpoint, settings: ConnectionSettings, dial: Dial = dial_tcp
) -> SegmentStoreConnection:
    """Connect and exchange greetings. Raises ConnectionLost, UnsupportedProtocol, and the errors of
    `dial`."""
    connection = SegmentStoreConnection(endpoint, settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await dial(connection)
            await connection.greeted
    except (OSError, TimeoutError) as error:
        connection.abort(ConnectionLost("the segment store did not send its hello in time"))
        raise ConnectionLost(
            "the segment store cannot be reached", store=str(endpoint), reason=str(error)
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
