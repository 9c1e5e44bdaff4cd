"""The interface as a page for browsers: Swagger UI over /openapi.json.

The files of Swagger UI come from the installed package fastapi-offline, whose code is never
imported: nothing is read before a browser asks for it. The page names every address relative to
its own, and its policy allows no other host.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from anabranch.common.errors import NotFound
from anabranch.gateway.http.routes.welcome import HTML, PAGES

PATH = "/docs"
ASSET_PATH = "/docs/{asset}"
BUNDLE = "fastapi_offline"
JAVASCRIPT = "text/javascript"
CSS = "text/css"
SVG = "image/svg+xml"
BUNDLED: Mapping[str, str] = {"swagger-ui-bundle.js": JAVASCRIPT, "swagger-ui.css": CSS}
OWN: Mapping[str, str] = {"start.js": JAVASCRIPT, "icon.svg": SVG}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles on elements, and its style sheet holds images as data."""
HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
ASSET_HEADERS = {**HEADERS, "cache-control": "public, max-age=3600"}


def routes() -> list[Route]:
    return [Route(PATH, page), Route(ASSET_PATH, asset)]


async def page(_request: Request) -> Response:
    headers = {**HEADERS, "cache-control": "no-cache", "content-security-policy": POLICY}
    return FileResponse(PAGES / "docs.html", media_type=HTML, headers=headers)


async def asset(request: Request) -> Response:
    """A file of the page. Raises NotFound."""
    name = request.path_params["asset"]
    media_type = OWN.get(name) or BUNDLED.get(name)
    if media_type is None:
        raise NotFound("the page has no such file", remedy=f"open {PATH}", name=name)
    folder = PAGES if name in OWN else _bundle()
    return FileResponse(folder / name, media_type=media_type, headers=ASSET_HEADERS)


def _bundle() -> Path:
    """The folder with the files of Swagger UI. Raises NotFound."""
    found = find_spec(BUNDLE)
    if found is None or found.origin is None:
        raise NotFound("Swagger UI is not installed", remedy="install fastapi-offline")
    return Path(found.origin).parent / "static"
