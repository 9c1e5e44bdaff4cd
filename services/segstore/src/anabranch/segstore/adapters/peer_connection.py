"""The connection from this store to another one, shared by the links of all containers.

`domain/log/replica/wire.py` describes the protocol. Request ids match replies to requests. Packets
without one belong to a link, and their order is that in which the other store sent them.

After an unreadable packet, a silence, or a wrong proof, nothing on the connection can be trusted,
so it closes, and all its links fail. A closed connection stays closed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    Overloaded,
    Unauthorized,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.model.joining import is_peer, peer_proof
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.message import KeepAlive, Message
from anabranch.common.wire.messages import error_of
from anabranch.common.wire.packet import PacketParser
from anabranch.common.wire.replies import Done, Failed
from anabranch.segstore.domain.log.replica.wire import (
    PEER_VERSION,
    CopyAppend,
    CopySynced,
    FlushWanted,
    PeerHello,
    Promised,
    Refused,
    Welcome,
    check_versions,
    decode_peer,
    encode_peer,
    error_in,
)

M = TypeVar("M", bound=Message)
Reply = tuple[Message, bytes]
CallLater = Callable[[float, Callable[[], None]], Callable[[], None]]
"""(seconds, callback) → a function that cancels it."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Times in seconds, buffers in bytes.

    `request_s` is the deadline of a request. With more than `unsent_max` bytes that the other store
    does not take, a link that appends more fails.
    """

    dial_s: float = 2.0
    request_s: float = 10.0
    idle_s: float = 10.0
    keep_alive_s: float = 2.0
    tick_s: float = 1.0
    unsent_max: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkContext:
    """The objects that all connections of a store share."""

    node_id: str
    join_token: str
    ids: IdSource
    clock: Clock
    call_later: CallLater
    limits: LinkLimits


class LinkEnd(Protocol):
    """A link as its connection sees it. Called from the event loop; must not wait."""

    def synced(self, container_epoch: int, number: int) -> None: ...

    def flush_wanted(self) -> None: ...

    def failed(self, error: AnabranchError) -> None:
        """The link was refused, or lost with its connection. Called at most once."""
        ...


class PeerLinkConnection(asyncio.Protocol):
    """A connection to the store `node_id`; `open_peer` creates it."""

    def __init__(self, node_id: str, endpoint: Endpoint, context: LinkContext) -> None:
        self.node_id = node_id
        self.endpoint = endpoint
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._parser = PacketParser()
        self._challenge = context.ids.new_id()
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._links: dict[int, LinkEnd] = {}
        self._last_request_id = 0
        self._last_link = 0
        self._received_at = self._sent_at = context.clock.monotonic()
        self._cancel_tick: Callable[[], None] | None = None
        self._failure: AnabranchError | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def failure(self) -> AnabranchError | None:
        """The reason why the connection is closed; None while it is open."""
        return self._failure

    # --- links --------------------------------------------------------------------------------

    def add(self, end: LinkEnd) -> int:
        """Begin a link; returns its number. Raises Unavailable."""
        self._check_open()
        self._last_link += 1
        self._links[self._last_link] = end
        return self._last_link

    def remove(self, link: int) -> None:
        """Forget a link, which is notified no more; harmless to repeat."""
        self._links.pop(link, None)

    async def request(self, message: Message, expected: type[M]) -> tuple[M, bytes]:
        """Send a request → (reply, its payload).

        Raises the error that the other store answered, and Unavailable if the connection is lost or
        no reply comes in time; the other store may then have performed the request.
        """
        self._check_open()
        self._last_request_id += 1
        request_id = self._last_request_id
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = replied
        try:
            self._send(message, request_id)
            async with asyncio.timeout(self._context.limits.request_s):
                reply, payload = await replied
        except TimeoutError as error:
            raise Unavailable(
                "another store did not answer in time",
                node=self.node_id, store=str(self.endpoint), request=type(message).__name__,
            ) from error  # fmt: skip
        finally:
            self._pending.pop(request_id, None)
        if isinstance(reply, Failed):
            raise error_of(reply)
        if not isinstance(reply, expected):
            bad = BadPacket("a reply's kind does not match its request", node=self.node_id)
            raise self.abort(bad)
        return reply, payload

    def append(self, link: int, message: "tuple[Buffer, ...]") -> None:
        """Send a message of the log. Raises Overloaded, Unavailable."""
        self._check_open()
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._context.limits.unsent_max:
            raise Overloaded(
                "another store does not take the messages of its copies",
                node=self.node_id, limit=self._context.limits.unsent_max,
            )  # fmt: skip
        self._send(CopyAppend(link=link), 0, *message)

    def send(self, message: Message) -> None:
        """Send a message that has no reply; does nothing once the connection is closed."""
        if self._failure is None:
            self._send(message, 0)

    def _send(self, message: Message, request_id: int, *payload: Buffer) -> None:
        assert self._transport is not None
        self._sent_at = self._context.clock.monotonic()
        # Until `connection_lost`, asyncio's transport drops bytes, or fails (Python 3.12, 3.13).
        if not self._transport.is_closing():
            self._transport.writelines(encode_peer(message, request_id, *payload))

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure.copy()
        if self._transport is None:
            raise Unavailable("the connection to another store is not open", node=self.node_id)

    # --- the transport's calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._received_at = self._context.clock.monotonic()
        self._cancel_tick = self._context.call_later(self._context.limits.tick_s, self._tick)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received_at = self._context.clock.monotonic()
        try:
            for packet in self._parser.feed(data):
                self._dispatch(packet.request_id, decode_peer(packet), packet.payload)
        except AnabranchError as error:
            self.abort(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._fail(Unavailable("another store closed the connection", reason=str(exc or "")))

    def _dispatch(self, request_id: int, message: Message, payload: bytes) -> None:
        match message:
            case CopySynced() | FlushWanted() | Refused():
                self._notify(message)
            case PeerHello():
                self._greet(message)
            case Welcome():
                self._welcomed(message)
            case Failed() if request_id == 0:
                self.abort(error_of(message))
            case Failed() | Done() | Promised():
                replied = self._pending.get(request_id)
                if replied is not None and not replied.done():
                    replied.set_result((message, payload))
            case KeepAlive():
                pass
            case _:
                raise BadPacket("a follower does not send this", kind=type(message).__name__)

    def _notify(self, news: CopySynced | FlushWanted | Refused) -> None:
        end = self._links.get(news.link)
        if end is None:
            return  # closed, and the other store does not know yet
        match news:
            case CopySynced():
                end.synced(news.container_epoch, news.number)
            case FlushWanted():
                end.flush_wanted()
            case Refused():
                self.remove(news.link)
                end.failed(error_in(news))

    def _greet(self, hello: PeerHello) -> None:
        context = self._context
        if not check_versions(hello):
            raise UnsupportedProtocol(
                "the stores have no version of their protocol in common",
                store=str(self.endpoint), theirs=hello.high, ours=PEER_VERSION,
            )  # fmt: skip
        if hello.node_id != self.node_id:
            raise Unavailable(
                "another store listens on the address",
                expected=self.node_id, found=hello.node_id,
            )  # fmt: skip
        proof = peer_proof(context.join_token, hello.challenge, context.node_id, self.node_id)
        self.send(PeerHello(node_id=context.node_id, challenge=self._challenge, proof=proof))

    def _welcomed(self, welcome: Welcome) -> None:
        context = self._context
        if not is_peer(
            context.join_token, self._challenge, self.node_id, context.node_id, welcome.proof
        ):
            raise Unauthorized("another store does not have the join token", node=self.node_id)
        if not self.greeted.done():
            self.greeted.set_result(None)

    # --- ending -------------------------------------------------------------------------------

    def abort(self, error: AnabranchError) -> AnabranchError:
        """Close at once because of `error`; returns the error that the links get."""
        self._fail(_closed_because(error))
        if self._transport is not None:
            self._transport.abort()
        assert self._failure is not None
        return self._failure

    def close(self) -> None:
        """Close on purpose; its links fail. Harmless to repeat."""
        self.abort(Unavailable("the connection was closed on this side"))

    def _fail(self, error: AnabranchError) -> None:
        if self._failure is not None:
            return
        error.fields = {**error.fields, "node": self.node_id, "store": str(self.endpoint)}
        self._failure = error
        if self._cancel_tick is not None:
            self._cancel_tick()
        if not self.greeted.done():
            self.greeted.set_exception(error)
            self.greeted.exception()  # the opener may have gone
        for replied in tuple(self._pending.values()):
            if not replied.done():
                replied.set_exception(error.copy())
        links, self._links = self._links, {}
        for end in links.values():
            end.failed(error.copy())

    def _tick(self) -> None:
        if self._failure is not None:
            return
        limits, now = self._context.limits, self._context.clock.monotonic()
        self._cancel_tick = self._context.call_later(limits.tick_s, self._tick)
        if now - self._received_at > limits.idle_s:
            self.abort(Unavailable("another store was silent for too long", limit_s=limits.idle_s))
        elif self.greeted.done() and now - self._sent_at >= limits.keep_alive_s:
            self.send(KeepAlive())


def _closed_because(error: AnabranchError) -> AnabranchError:
    """The error as one after which a caller tries again."""
    if isinstance(error, Unavailable):
        return error
    return Unavailable(
        f"the connection to another store was given up: {error.message}", cause=error.code
    )


async def open_peer(node_id: str, endpoint: Endpoint, context: LinkContext) -> PeerLinkConnection:
    """Connect and exchange greetings. Raises Unavailable."""
    connection = PeerLinkConnection(node_id, endpoint, context)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(context.limits.dial_s):
            await loop.create_connection(lambda: connection, endpoint.host, endpoint.port)
            await connection.greeted
    except (OSError, TimeoutError) as error:
        connection.close()
        raise Unavailable(
            "another store cannot be reached",
            node=node_id, store=str(endpoint), reason=str(error),
        ) from error  # fmt: skip
    except BaseException:
        connection.close()
        raise
    return connection
