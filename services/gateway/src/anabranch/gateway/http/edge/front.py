"""The shortest way to the routes that are asked most.

A POST or GET of events goes straight to its route; everything else, other methods on the same
path included, goes the long way through the framework, which serves these routes too and so keeps
the last word on them. What the routes raise is answered by the intake in either case.
"""

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = frozenset({"GET", "POST"})
Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class Front:
    """`template` is a path of names in braces; `rest` gets what does not match. `api` is the
    application that requests find in their scope."""

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
