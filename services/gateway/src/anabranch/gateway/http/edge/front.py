"""A shortcut to the most frequent routes.

A POST or GET of events goes straight to its route. All other requests, including other methods on
the same path, go through the framework, which serves these routes too. In either case the intake
answers the errors that the routes raise.
"""

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = frozenset({"GET", "POST"})
Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class Front:
    """Sends matching requests to `endpoint` and all others to `rest`.

    `template` is a path with names in braces. `api` is the application in the requests' scope.
    """

    def __init__(self, template: str, endpoint: Endpoint, rest: ASGIApp, api: ASGIApp) -> None:
        self._match = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template)).fullmatch
        self._endpoint = endpoint
        self._rest = rest
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = None
        if scope["type"] == "http" and scope["method"] in METHODS:
            match = self._match(scope["path"])
        if match is None:
            await self._rest(scope, receive, send)
            return
        scope["app"] = self._api
        scope["endpoint"] = self._endpoint
        scope["path_params"] = match.groupdict()
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
