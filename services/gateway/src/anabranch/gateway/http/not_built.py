"""The routes of Pravega's administration that this release does not serve: each answers 501."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.common.errors import NotBuilt

_STREAM = "/v1/scopes/{scope}/streams/{stream}"
_GROUPS = "/v1/scopes/{scope}/readergroups"
_HEALTH = "/v1/health"

NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (_STREAM, ("PUT",), "streams cannot be changed after their creation"),
    (f"{_STREAM}/scaling-events", ("GET",), "streams do not scale"),
    (_GROUPS, ("GET",), "there are no reader groups"),
    (f"{_GROUPS}/{{group}}", ("GET", "DELETE"), "there are no reader groups"),
    (f"{_HEALTH}/details", ("GET",), "health has no details"),
    (f"{_HEALTH}/{{part}}", ("GET",), "health is not asked by part"),
    (f"{_HEALTH}/status/{{part}}", ("GET",), "health is not asked by part"),
    (f"{_HEALTH}/readiness/{{part}}", ("GET",), "health is not asked by part"),
    (f"{_HEALTH}/liveness/{{part}}", ("GET",), "health is not asked by part"),
    (f"{_HEALTH}/details/{{part}}", ("GET",), "health is not asked by part"),
)


def routes() -> list[Route]:
    return [_route(path, methods, reason) for path, methods, reason in NOT_BUILT]


def _route(path: str, methods: tuple[str, ...], reason: str) -> Route:
    async def refuse(_request: Request) -> Response:
        raise NotBuilt(reason)

    return Route(path, refuse, methods=list(methods))
