"""Health and metrics for probes, with the paths of Kubernetes and of Pravega.

Pravega's tree of health has two levels here: the gateway and its parts. A part that is not ready is
STARTING, because the gateway keeps retrying it. A gateway that answers at all is alive.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from anabranch.common.errors import NotFound
from anabranch.common.runtime.health import PartHealth, is_ready
from anabranch.common.runtime.metrics import CONTENT_TYPE
from anabranch.gateway.http.routes.parts import parts_of

ROOT = "gateway"
ASPECTS = ("status", "readiness", "liveness", "details")


def routes() -> list[Route]:
    """The routes in matching order; no part has the name of an aspect."""
    aspects = [Route(f"/v1/health/{aspect}", _ASPECTS[aspect]) for aspect in ASPECTS]
    by_part = [Route(f"/v1/health/{aspect}/{{part}}", _ASPECTS[aspect]) for aspect in ASPECTS]
    return [
        Route("/ping", ping),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/health", health),
        *aspects,
        *by_part,
        Route("/v1/health/{part}", health),
    ]


async def ping(_request: Request) -> Response:
    return PlainTextResponse("pong\n")


async def healthz(_request: Request) -> Response:
    """Answer 200 while the process is alive."""
    return JSONResponse({"alive": True})


async def readyz(request: Request) -> Response:
    """Answer 200 if every part is ready, otherwise 503; the body has each part's reason."""
    parts = parts_of(request).health()
    ready = is_ready(parts)
    shown = {name: {"ready": part.ready, "reason": part.reason} for name, part in parts.items()}
    return JSONResponse({"ready": ready, "parts": shown}, 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """The metrics in Prometheus' text format."""
    return Response(parts_of(request).metrics.exposition(), media_type=CONTENT_TYPE)


async def health(request: Request) -> Response:
    """The health of the gateway, with its parts as children, or of the named part."""
    parts = parts_of(request).health()
    asked = _asked(request)
    if asked != ROOT:
        return JSONResponse(_health(asked, parts[asked].ready, _reason(parts[asked])))
    children = {name: _health(name, one.ready, _reason(one)) for name, one in parts.items()}
    told = _health(ROOT, is_ready(parts), _details(request))
    return JSONResponse({**told, "children": children})


async def status(request: Request) -> Response:
    return JSONResponse({"status": _status(_is_ready(request))})


async def readiness(request: Request) -> Response:
    return JSONResponse({"ready": _is_ready(request)})


async def liveness(request: Request) -> Response:
    _asked(request)
    return JSONResponse({"alive": True})


async def details(request: Request) -> Response:
    """The reason of each part of the gateway, or of the named part."""
    return JSONResponse({"details": _details(request)})


_ASPECTS = {
    "status": status, "readiness": readiness, "liveness": liveness, "details": details,
}  # fmt: skip


def _asked(request: Request) -> str:
    """The part that the path names, or the gateway. Raises NotFound."""
    name: str = request.path_params.get("part", ROOT)
    known = parts_of(request).health()
    if name != ROOT and name not in known:
        raise NotFound(
            "the gateway has no such part",
            remedy=f"ask for one of {', '.join((ROOT, *known))}",
            part=name,
        )
    return name


def _is_ready(request: Request) -> bool:
    parts, asked = parts_of(request).health(), _asked(request)
    return is_ready(parts) if asked == ROOT else parts[asked].ready


def _details(request: Request) -> dict[str, str]:
    parts, asked = parts_of(request).health(), _asked(request)
    if asked != ROOT:
        return _reason(parts[asked])
    return {name: _reason(part)["reason"] for name, part in parts.items()}


def _reason(part: PartHealth) -> dict[str, str]:
    return {"reason": part.reason or ("ready" if part.ready else "not ready")}


def _health(name: str, ready: bool, details: dict[str, str]) -> dict[str, object]:
    return {
        "name": name,
        "status": _status(ready),
        "readiness": ready,
        "liveness": True,
        "details": details,
        "children": {},
    }


def _status(ready: bool) -> str:
    return "UP" if ready else "STARTING"
