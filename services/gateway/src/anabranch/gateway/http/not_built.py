"""The routes of Pravega's administration that this release does not serve: each answers 501."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.common.errors import NotBuilt

_GROUPS = "/v1/scopes/{scope}/readergroups"

NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (_GROUPS, ("GET",), "there are no reader groups"),
    (f"{_GROUPS}/{{group}}", ("GET", "DELETE"), "there are no reader groups"),
)


def routes() -> list[Route]:
    return [_route(path, methods, reason) for path, methods, reason in NOT_BUILT]


def _route(path: str, methods: tuple[str, ...], reason: str) -> Route:
    async def refuse(_request: Request) -> Response:
        raise NotBuilt(reason)

    return Route(path, refuse, methods=list(methods))
