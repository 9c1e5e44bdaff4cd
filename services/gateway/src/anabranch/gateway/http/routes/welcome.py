"""The first page: what answers here, and where to continue.

Programs get a JSON document, browsers a page with the same and an example to copy. The example
names the address by which the caller reached the gateway. The header `Host` gives that address, so
it is text of the caller: only a plain host and port enter the page, because a reader pastes the
example into a shell.
"""

import re
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from anabranch.gateway.http.routes.parts import parts_of

PATHS = ("/", "/v1")
NAME = "Anabranch"
DESCRIPTION = (
    "Anabranch stores streams of events and moves them between programs. "
    "This gateway serves a cluster over HTTP."
)
LINKS: Mapping[str, tuple[str, str]] = {
    "docs": ("/docs", "the interface, to read and to try in a browser"),
    "openapi": ("/openapi.json", "the same as an OpenAPI document"),
    "api": ("/v1", "the root of the interface"),
    "scopes": ("/v1/scopes", "the scopes of this cluster"),
    "health": ("/healthz", "whether the gateway is alive"),
    "readiness": ("/readyz", "whether the gateway and the cluster are ready"),
    "metrics": ("/metrics", "metrics for Prometheus"),
}
PAGES = Path(__file__).parents[1] / "pages"
HTML = "text/html"
HEADERS = {
    "cache-control": "no-store",
    "vary": "accept",
    "x-content-type-options": "nosniff",
}
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PROGRAMS = frozenset({"application/json", "application/*", "*/*"})
_PLAIN_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def routes() -> list[Route]:
    return [Route(path, welcome) for path in PATHS]


async def welcome(request: Request) -> Response:
    """200 with the document, or with the page if the caller prefers HTML."""
    if prefers_html(request.headers.get("accept", "")):
        host, bind = request.headers.get("host", ""), parts_of(request).settings.bind
        address = address_of(request.scope["scheme"], host, bind)
        return HTMLResponse(_page(address), headers={**HEADERS, "content-security-policy": POLICY})
    return JSONResponse(_document(), headers=HEADERS)


def prefers_html(accept: str) -> bool:
    """Whether an Accept header names HTML before a form for programs; anything else gets JSON."""
    for item in accept.split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in (HTML, "application/xhtml+xml"):
            return True
        if media_type in _PROGRAMS:
            return False
    return False


def address_of(scheme: str, host: str, bind: str) -> str:
    """The gateway's address for its caller; `bind` replaces a host that is not a plain one."""
    return f"{scheme}://{host if _PLAIN_HOST.fullmatch(host) else bind}"


def _document() -> dict[str, object]:
    links = {name: path for name, (path, _) in LINKS.items()}
    told = {"name": NAME, "version": _version(), "description": DESCRIPTION}
    return {**told, "links": links}


def _page(address: str) -> str:
    links = "\n".join(
        f'<dt><a href=".{path}">{path}</a></dt><dd>{meaning}</dd>'
        for path, meaning in LINKS.values()
    )
    template = Template((PAGES / "welcome.html").read_text(encoding="utf-8"))
    return template.substitute(
        name=NAME,
        version=escape(_version()),
        description=escape(DESCRIPTION),
        links=links,
        address=escape(address),
    )


def _version() -> str:
    return version("anabranch-gateway")
