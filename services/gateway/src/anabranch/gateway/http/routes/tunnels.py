"""Tunnels to segment stores: WebSockets that carry the store protocol.

    request ──room? protocol? store known?──► dial the store ──► accept ──► bytes ──► close
                │                                 │
                └─► problem document              └─► 503

Clients that need only HTTP reach the stores here. The gateway does not look into the bytes: the
greeting, the caller's token and all checksums pass from one end to the other.
"""

import asyncio
import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from anabranch.common.contracts.tunnel import (
    PATH,
    PIECE_SIZE_BYTES_MAX,
    SUBPROTOCOL,
    tunnel_end,
)
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unauthorized,
    Unavailable,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.http.edge.problem import problem_of, status_of
from anabranch.gateway.tunnels.pump import ClientSide, Ended, pump
from anabranch.gateway.tunnels.stores import KnownStores

DIAL_S = 3.0
CLOSE_S = 1.0
STORE_IS_GONE = 1014
"""Bad Gateway, among the codes of WebSockets."""

Store = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_match = re.compile(PATH.replace("{store}", "([^/]+)")).fullmatch


def routes() -> list[Route]:
    """The path for requests that ask for no WebSocket."""
    return [Route(PATH, not_upgraded)]


async def not_upgraded(_request: Request) -> Response:
    raise HTTPException(426, headers={"upgrade": "websocket", "connection": "upgrade"})


class Tunnels:
    """An ASGI application for WebSockets; at most `tunnels_max` are open."""

    def __init__(
        self, stores: KnownStores, metrics: GatewayMetrics, clock: Clock, tunnels_max: int
    ) -> None:
        self._stores = stores
        self._metrics = metrics
        self._clock = clock
        self._tunnels_max = tunnels_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = self._clock.monotonic()
        self._metrics.tunnels.open += 1
        try:
            try:
                store = await self._opened(scope)
            except AnabranchError as error:
                self._count(scope, status_of(error), began_s)
                await problem_of(error, scope["path"])(scope, receive, send)
                return
            try:
                self._count(scope, 101, began_s)
                await self._serve(store, receive, send)
            finally:
                store[1].transport.abort()
        finally:
            self._metrics.tunnels.open -= 1

    async def _opened(self, scope: Scope) -> Store:
        """A connection to the store that the path names. Raises the refusal."""
        matched = _match(scope["path"])
        if matched is None:
            raise NotFound(
                "no WebSocket is served here",
                remedy="open one on `GET /v1/stores/HOST:PORT/connection`",
            )
        if any(name == b"origin" for name, _ in scope["headers"]):
            # A page of any site could otherwise use a gateway that its reader's browser reaches.
            raise Unauthorized(
                "tunnels are not for web pages",
                remedy="read events with server-sent events in a browser",
            )
        if self._metrics.tunnels.open > self._tunnels_max:
            raise Overloaded("too many tunnels at once", limit=self._tunnels_max)
        if SUBPROTOCOL not in scope["subprotocols"]:
            raise InvalidRequest(
                "the request names no protocol that tunnels speak",
                remedy="name it in Sec-WebSocket-Protocol, or use the Python client",
                protocol=SUBPROTOCOL,
            )
        end = tunnel_end(matched[1])
        await self._stores.check(end)
        return await _dialled(end)

    async def _serve(self, store: Store, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"

        async def received() -> bytes | None:
            message = await receive()
            return message["bytes"] if message["type"] == "websocket.receive" else None

        async def sent(data: bytes) -> None:
            await send({"type": "websocket.send", "bytes": data})

        try:
            await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        except OSError:
            return  # the client has left
        ended = await pump(ClientSide(received, sent), store, self._metrics.tunnels)
        if ended is Ended.STORE:
            reason = "the segment store closed the connection"
            closing = {"type": "websocket.close", "code": STORE_IS_GONE, "reason": reason}
            try:
                async with asyncio.timeout(CLOSE_S):
                    await send(closing)
            except OSError:
                return  # the client has left, or takes nothing

    def _count(self, scope: Scope, status: int, began_s: float) -> None:
        route = PATH if _match(scope["path"]) else "other"
        self._metrics.answered("GET", route, status, self._clock.monotonic() - began_s)


async def _dialled(store: Endpoint) -> Store:
    """Raises Unavailable if the store is not reached in time."""
    try:
        async with asyncio.timeout(DIAL_S):
            return await asyncio.open_connection(
                store.host, store.port, limit=PIECE_SIZE_BYTES_MAX // 2
            )
    except OSError as error:
        raise Unavailable(
            "the gateway cannot reach the segment store",
            remedy="start the store; check that the gateway can reach the address it announces",
            store=str(store),
            cause=str(error) or type(error).__name__,
        ) from error
