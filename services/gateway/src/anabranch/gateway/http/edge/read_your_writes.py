"""Lets callers read their own changes, also through another gateway.

An answer that reports a change carries the header `Anabranch-Read-Token`. A caller that sends the
value back, to any gateway, gets an answer from a state that includes the change. Within one gateway
that holds without the header, because all callers of a gateway share one client.

The header affects only the request that carries it: a wrong token costs no other caller anything.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.client.wire.read_tokens import ReadTokens, on_behalf_of

READ_TOKEN = "Anabranch-Read-Token"


class ReadYourWrites:
    """An ASGI middleware. Raises InvalidRequest if the header is not a read token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = ReadTokens.parse(Headers(scope=scope).get(READ_TOKEN, ""))

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start" and (told := str(caller)):
                MutableHeaders(scope=message)[READ_TOKEN] = told
            await send(message)

        try:
            with on_behalf_of(caller):
                await self._app(scope, receive, telling)
        finally:
            # Tasks that outlive the request, such as a held reader's, demand no points for it.
            caller.clear()
