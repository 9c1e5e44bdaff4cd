"""A shortcut to the most frequent routes.

Requests that match go straight to their route. All other requests, including HEAD on the same
paths, go through the framework, which serves these routes too. In either case the intake answers
the errors that the routes raise.
"""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})


class Front:
    """Sends requests that match one of `routes` to its endpoint, and all others to `rest`.

    The parameters of the paths are text. `api` is the application in the requests' scope.
    """

    def __init__(self, routes: Sequence[Route], rest: ASGIApp, api: ASGIApp) -> None:
        self._routes = [
            (route.path_regex.match, (route.methods or set()) & METHODS, route.endpoint)
            for route in routes
        ]
        self._rest = rest
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, method = scope["path"], scope["method"]
            for match, methods, endpoint in self._routes:
                if method in methods and (found := match(path)) is not None:
                    scope["app"] = self._api
                    scope["endpoint"] = endpoint
                    scope["path_params"] = found.groupdict()
                    response = await endpoint(Request(scope, receive, send))
                    await response(scope, receive, send)
                    return
        await self._rest(scope, receive, send)
